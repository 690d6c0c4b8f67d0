package gateway

import (
	"context"
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// conntrack.Ender ends a client's connections together with its session or lease, so that the next client with the
// address gets none of the former one's packets.
var _ session.Cutter = (*conntrack.Ender)(nil)

// openConnections creates the Ender, which ends the connections of clients that have logged out.
func (g *gateway) openConnections(context.Context) (opened, error) {
	var failures budget.OncePerMinute
	failed := func(err error) {
		failures.Do(func() {
			g.log.Error("ending the connections of clients that have left: they may go on, and be counted for the next client "+
				"of their address", "err", err)
		})
	}
	g.connections = &conntrack.Ender{Gateway: g.cfg.LAN.Address.Addr(),
		Gateway6: g.cfg.LAN.Address6.Addr(), Forget: g.forgetConnections, Failed: failed}
	return opened{close: func() error {
		if g.table != nil {
			g.connections.End() // all that Schedule has gathered; it logs errors
		}
		return nil
	}}, nil
}

// endFormer ends the connections of addresses in the LAN, of both families, where nobody is logged in: the table's file
// may be lost, or the last daemon may have died before it had ended those of a session.
func (g *gateway) endFormer() error {
	in := g.loggedIn()
	err := g.connections.EndWhere(func(a netip.Addr) bool {
		return !in[a] && !g.isBehindLoggedIn(a) && (g.isClient4(a) || g.isClient6(a))
	})
	if err != nil {
		g.connections.Failed(err)
	}
	return nil
}

// isBehindLoggedIn reports whether an address is of a network that was delegated to a client that is logged in.
func (g *gateway) isBehindLoggedIn(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	s, known := g.table.Get(addr)
	return known && s.State == session.Authenticated
}

// loggedIn has the addresses of clients that are logged in, further ones included.
func (g *gateway) loggedIn() map[netip.Addr]bool {
	in := map[netip.Addr]bool{}
	g.table.Each(func(s session.Session) bool {
		if s.State == session.Authenticated {
			for _, addr := range append([]netip.Addr{s.Addr}, s.FurtherAddrs...) {
				in[addr] = true
			}
		}
		return true
	})
	return in
}

// forgetConnections has the data path forget connections that connection tracking has forgotten.
func (g *gateway) forgetConnections(all []conntrack.Connection) error {
	if g.dp.Forget == nil {
		return nil
	}
	var ways []datapath.Tracked
	for _, c := range all {
		for _, t := range []conntrack.Tuple{c.Orig, c.Reply} {
			ways = append(ways, datapath.Tracked{From: t.From, To: t.To, Protocol: t.Protocol})
		}
	}
	return g.dp.Forget(ways)
}
