package dut

import (
	"context"
	"fmt"
)

// aboutLines describes a concentrator in a line.
func (g *Gateway) aboutLines() string {
	about := "gatewayd, PPPoE concentrator, data path " + g.Path + ", RADIUS accounts (CHAP)"
	if g.NAT {
		about += ", masquerade"
	}
	if g.Ident != "" {
		about += ", ident (" + g.Ident + ")"
	}
	return about
}

// LinePool are the addresses of PPPoE clients; the last ones of the network are leased by DHCP to nobody.
func (g *Gateway) LinePool() string {
	return fmt.Sprintf("%s-%s", g.Gateway.Next(), hostOf(g.LAN, 1<<(32-g.LAN.Bits())-8))
}

// LeasePool are the addresses that LinePool leaves.
func (g *Gateway) LeasePool() string {
	last := 1<<(32-g.LAN.Bits()) - 2
	return fmt.Sprintf("%s-%s", hostOf(g.LAN, last-5), hostOf(g.LAN, last))
}

// Unlike looks whether a router that is to masquerade does.
func (g *Gateway) Unlike(ctx context.Context, env Env) (string, error) {
	if !g.NAT {
		return "", nil
	}
	return Forwarder{Masquerade: true}.Unlike(ctx, env)
}

var _ Proven = (*Gateway)(nil)
