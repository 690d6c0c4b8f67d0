package ebpf

import (
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
	"github.com/gateweigh/gateweigh/gateway/nftables"
)

// guardian returns the guard that replaces the programs' protection where they are gone.
func (d *Datapath) guardian() guard.Guard {
	return guard.Guard{LAN: d.cfg.LAN, WAN: d.cfg.WAN, Prefix: d.cfg.Prefix, Gateway: d.cfg.Gateway}
}

// keepGuard restores the guard after netfilter's rules were flushed, unless the data path
// was detached. It is called when rules change and once a second, so that a failure is
// tried again.
func (d *Datapath) keepGuard() {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	generation, known := d.rulesGeneration()
	if known && generation == d.guardedAt {
		return
	}
	there, err := stack.HasTable(unix.NFPROTO_INET, guard.Table(d.cfg.LAN))
	if err == nil && there && known {
		d.guardedAt = generation
	}
	if err == nil && !there {
		if d.resigned() {
			return
		}
		if d.closed() {
			err = d.guardian().Shut()
		} else {
			err = d.guardian().Renew(d.lan.Index, d.wan.Index)
		}
		if err == nil {
			d.cfg.Log.Warn("the guard was taken out of netfilter and is back", "lan", d.cfg.LAN)
			d.count(func(r *Repairs) { r.Guarded++ })
		}
	}
	d.report("the guard's rules", err)
}

// rulesGeneration returns the number of the present state of netfilter's rules, if the kernel tells it. keeping is held.
func (d *Datapath) rulesGeneration() (n uint32, known bool) {
	if d.rules == nil {
		c, err := nftables.Dial()
		if err != nil {
			return 0, false
		}
		d.rules = c
	}
	n, err := d.rules.Generation()
	return n, err == nil
}

// open has the guard let packets between the LAN and the WAN pass, because the programs
// judge them.
func (d *Datapath) open() error { return d.guardian().Know(d.lan.Index, d.wan.Index) }
