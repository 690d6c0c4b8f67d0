package dut

import (
	"context"
	"fmt"
)

// aboutPPPoE describes gatewayd as a PPPoE concentrator in one line, for reports.
func (g *Gateway) aboutPPPoE() string {
	about := "gatewayd, PPPoE concentrator, data path " + g.Path + ", RADIUS accounts (CHAP)"
	if g.NAT {
		about += ", masquerade"
	}
	if g.Ident != "" {
		about += ", ident (" + g.Ident + ")"
	}
	return about
}

// PPPoEPool is the range of addresses for PPPoE clients, "FIRST-LAST", for gatewayd's configuration. It leaves out the
// last addresses of the network, which are DHCPPool's.
func (g *Gateway) PPPoEPool() string {
	return fmt.Sprintf("%s-%s", g.Gateway.Next(), hostOf(g.LAN, 1<<(32-g.LAN.Bits())-8))
}

// DHCPPool is the range of the addresses that gatewayd leases by DHCP, "FIRST-LAST". gatewayd's configuration needs a
// range that does not overlap PPPoEPool; no client of a PPPoE lab asks for a lease.
func (g *Gateway) DHCPPool() string {
	last := 1<<(32-g.LAN.Bits()) - 2
	return fmt.Sprintf("%s-%s", hostOf(g.LAN, last-5), hostOf(g.LAN, last))
}

// FailedProof checks that a gateway with NAT masquerades: no connection may show a client's address to the server.
// Without NAT there is nothing to prove.
func (g *Gateway) FailedProof(ctx context.Context, env Env) (string, error) {
	if !g.NAT {
		return "", nil
	}
	return Forwarder{Masquerade: true}.FailedProof(ctx, env)
}

var _ Provable = (*Gateway)(nil)
