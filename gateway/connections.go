package gateway

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/conntrack"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// forgetter is a data path that remembers connections' ways itself.
type forgetter interface {
	// Forget forgets the packets of each direction of connections. Those that it does not know are no error.
	Forget([]datapath.Tracked) error
}

// connections are those of clients: they end with the session or lease that they belong to, so that the next client of an
// address gets none of the former one's packets.
type connections struct {
	*conntrack.Ender
	g        *gateway
	failures budget.Seldom
}

var _ session.Cutter = (*connections)(nil)

func (c *connections) End(of ...netip.Prefix)     { c.tell(c.Ender.End(of...)) }
func (c *connections) EndSoon(of ...netip.Prefix) { c.Ender.EndSoon(c.tell, of...) }
func (c *connections) Ended(a netip.Addr)         { c.tell(c.Ender.Ended(a)) }

func (c *connections) tell(err error) {
	if err != nil {
		c.failures.Do(func() {
			c.g.log.Error("ending the connections of clients that have left: they may go on, and be counted for the next client of their address", "err", err)
		})
	}
}

// openConnections has the table end connections. Those of addresses that have no client by now end at once: the table's
// file may be lost, or the last daemon may not have come to it.
func (g *gateway) openConnections() {
	g.connections = &connections{Ender: &conntrack.Ender{Gateway: g.cfg.LAN.Address.Addr(), Forget: g.forget}, g: g}
	g.table.Cut(g.connections)
	g.connections.tell(g.connections.EndOf(func(a netip.Addr) bool {
		_, known := g.table.Get(a)
		return !known && g.cfg.LAN.Network().Contains(a)
	}))
}

// forget has the data path forget connections that connection tracking has forgotten.
func (g *gateway) forget(all []conntrack.Connection) error {
	dp, ok := g.dp.(forgetter)
	if !ok {
		return nil
	}
	var ways []datapath.Tracked
	for _, c := range all {
		for _, t := range []conntrack.Tuple{c.Orig, c.Reply} {
			ways = append(ways, datapath.Tracked{From: t.From, To: t.To, Protocol: t.Protocol})
		}
	}
	return dp.Forget(ways)
}
