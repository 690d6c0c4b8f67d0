package gateway

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// openFlows begins the log of clients' connections if it is enabled. It asks the table, which must be open.
func (g *gateway) openFlows(context.Context) (o opened, err error) {
	f := g.cfg.FlowLog
	if !f.Enabled {
		if err := flowlog.Undo(flowlog.NoteIn(f.Folder), g.cfg.LAN.Interface); err != nil {
			// a daemon that was killed had it enabled
			g.log.Warn("of a former flow log something is left in the kernel", "err", err)
		}
		return o, nil
	}
	g.flows, err = flowlog.Open(flowlog.Config{
		Folder: f.Folder, KeepFor: f.KeepFor, MaxBytes: f.MaxBytes, IPFIX: f.IPFIX,
		Interface: g.cfg.LAN.Interface, LAN: g.cfg.LAN.Network(), IsBehindClient: g.isBehind,
		Gateway: g.cfg.LAN.Address.Addr(), Gateway6: g.cfg.LAN.Address6.Addr(), IsClient6: g.isClient6,
		HolderOf:   g.ownersOf,
		Bypassed:   g.dp.Bypassed,
		IsDetached: g.detached, Log: g.log,
	})
	if err != nil {
		return o, err
	}
	return opened{run: g.flows.Run, close: g.flows.Close}, nil
}

// FlowLogs are the flow logs of a configuration's networks.
func FlowLogs(cfg *config.Config) (logs []flowlog.Search) {
	for _, n := range cfg.All() {
		logs = append(logs, flowlog.Search{Network: n.Name, Folder: n.FlowLog.Folder})
	}
	return logs
}

// isBehind reports whether an address is in a network behind a client.
func (g *gateway) isBehind(addr netip.Addr) bool {
	_, behind := g.behind.client(addr)
	return behind
}

// ownersOf returns the user that has had an address at least since a time. A session that began later belongs to
// another user, or to the same client before it logged in.
func (g *gateway) ownersOf(addr netip.Addr, since time.Time) (w flowlog.Holder) {
	s, known := g.table.Get(g.client(addr))
	if !known {
		return w
	}
	if !s.LeasedAt.After(since) {
		w.MAC = net.HardwareAddr(s.MAC[:]).String()
	}
	if s.State == session.Authenticated && !s.Began.After(since) {
		w.MAC, w.User, w.Session = net.HardwareAddr(s.MAC[:]).String(), s.User, s.ID
	}
	return w
}

func flowCounts(f flowlog.Stats) map[string]uint64 {
	return map[string]uint64{
		"begun": f.Started, "ended": f.Ended, "lost": f.Lost, "overflow": f.Missed, "unsent": f.Unsent,
		"rule-again": f.Restored,
	}
}
