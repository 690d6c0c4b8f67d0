package gateway

import (
	"context"
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/connlimit"
)

// openCounting puts the rules in place that bound clients' connections, or removes those of a former configuration,
// unless another gateway has the interfaces.
func (g *gateway) openCounting(context.Context) (o opened, err error) {
	locks, err := datapath.Lock(claimed(g.cfg)...)
	if err != nil {
		return o, err
	}
	defer locks.Close()
	if !g.cfg.CountsConnections() {
		return o, connlimit.Remove(g.cfg.LAN.Interface)
	}
	if g.counting, err = connlimit.Open(g.cfg.LAN.Interface, g.log); err != nil {
		return o, err
	}
	run := func(ctx context.Context) error { return g.counting.Run(ctx, g.detached) }
	return opened{run: run, close: g.counting.Close}, nil
}

// startCounting has the rules enforce the limits of sessions that a former daemon began.
func (g *gateway) startCounting() error {
	if g.counting == nil {
		return nil
	}
	return g.counting.Start()
}

// showCounting adds refused connections to a status.
func (g *gateway) showCounting(st *control.Status) {
	if g.counting == nil {
		return
	}
	if st.Packets == nil {
		st.Packets = map[string]uint64{}
	}
	st.Packets["connections"] = g.counting.Refused()
	st.Repairs["connections-again"] = g.counting.Restored()
}

// countedPath is a data path whose clients' connections are counted.
type countedPath struct {
	datapath.Forwarder
	counting *connlimit.Limiter
}

var _ datapath.Forwarder = countedPath{}

// Set bounds a client's connections before it admits the client. The connections of one that is not admitted any more
// count on, because they go on if it logs in again.
func (c countedPath) Set(client datapath.Client) error {
	if client.Admitted {
		all := append([]netip.Prefix(nil), client.Routes...)
		for _, a := range client.Addrs {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
		if err := c.counting.Set(client.Identity(), all, client.Limits.Connections); err != nil {
			return err
		}
	}
	return c.Forwarder.Set(client)
}

// Remove forgets a client, and its limit.
func (c countedPath) Remove(id datapath.ID) error {
	if err := c.Forwarder.Remove(id); err != nil {
		return err
	}
	return c.counting.Remove(id)
}
