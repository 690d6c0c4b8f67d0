package dut

import (
	"context"
	"fmt"

	"github.com/gateweigh/gateweigh/lab/client"
)

// Methods of Ident: towards the client's address, and towards the router's, which masquerades.
const (
	IdentNAT        = "nat"
	IdentMasquerade = "masquerade"
)

// NewConcentrator makes a gatewayd whose clients log in over PPPoE.
func NewConcentrator(datapath string, clients int) *Gateway {
	g := NewGateway(datapath, clients)
	g.Lines, g.Admission.Kind = true, client.AdmitNone
	return g
}

// newMasquerading makes a concentrator that masquerades, with an ident method or none.
func newMasquerading(ident string, clients int) *Gateway {
	g := NewConcentrator("ebpf", clients)
	g.Masquerade, g.Ident = true, ident
	return g
}

// newIdentNAT makes a concentrator that answers for its clients' addresses.
func newIdentNAT(clients int) *Gateway {
	g := NewConcentrator("ebpf", clients)
	g.Ident = IdentNAT
	return g
}

// aboutLines describes a concentrator in a line.
func (g *Gateway) aboutLines(path string) string {
	about := "gatewayd, PPPoE concentrator, data path " + path + ", RADIUS accounts (CHAP)"
	if g.Masquerade {
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
	if !g.Masquerade {
		return "", nil
	}
	return Forwarder{Masquerade: true}.Unlike(ctx, env)
}

var _ Proven = (*Gateway)(nil)
