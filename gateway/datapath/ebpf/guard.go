package ebpf

import (
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
)

// guardian returns the guard that replaces the programs' protection where they are gone.
func (d *Datapath) guardian() guard.Guard {
	return guard.Guard{LAN: d.cfg.LAN, WAN: d.cfg.WAN, Prefix: d.cfg.Prefix, Gateway: d.cfg.Gateway}
}

// keepGuard restores the guard after netfilter's rules were flushed, unless the data path
// was detached.
func (d *Datapath) keepGuard() {
	there, err := stack.HasTable(unix.NFPROTO_INET, guard.Table(d.cfg.LAN))
	if err == nil && !there {
		d.keeping.Lock()
		defer d.keeping.Unlock()
		if d.resigned() {
			return
		}
		d.cfg.Log.Warn("the guard was taken out of netfilter; putting it back", "lan", d.cfg.LAN)
		if err = d.guardian().Shut(); err == nil && !d.closed() {
			err = d.open()
		}
		d.count(func(r *Repairs) { r.Guarded++ })
	}
	if err != nil {
		d.cfg.Log.Error("keeping the guard in netfilter", "err", err)
	}
}

// open has the guard let packets between the LAN and the WAN pass, because the programs
// judge them.
func (d *Datapath) open() error { return d.guardian().Know(d.lan.Index, d.wan.Index) }
