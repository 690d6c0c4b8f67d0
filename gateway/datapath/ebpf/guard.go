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

// guard installs the guard, or keeps a former daemon's, and reports whether there is one.
// The programs work without it.
func (d *Datapath) guard() bool {
	if err := d.guardian().Shut(); err != nil {
		d.cfg.Log.Warn("nothing keeps the machine from forwarding for everybody should the LAN's interface be removed and made again, or should its own rules mark packets", "err", err)
		return false
	}
	return true
}

// keepGuard restores the guard after netfilter's rules were flushed, unless the data path
// was detached.
func (d *Datapath) keepGuard() {
	if !d.guarded || !holdsLAN(d.cfg.PinDir, d.lan) {
		return
	}
	there, err := stack.HasTable(unix.NFPROTO_INET, guard.Table(d.cfg.LAN))
	if err == nil && !there {
		d.cfg.Log.Warn("the guard was taken out of netfilter; putting it back", "lan", d.cfg.LAN)
		if err = d.guardian().Shut(); err == nil {
			err = d.guardian().Know(d.lan.Index, d.wan.Index)
		}
	}
	if err != nil {
		d.cfg.Log.Error("keeping the guard in netfilter", "err", err)
	}
}
