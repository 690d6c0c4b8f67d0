package ebpf

import (
	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/nftables"
)

// guardian returns the guard that replaces the programs' protection where they are gone.
func (d *Datapath) guardian() guard.Guard {
	return guard.Guard{LAN: d.cfg.LAN, WAN: d.cfg.WAN, Prefix: d.cfg.Prefix, Gateway: d.cfg.Gateway}
}

// keepGuard restores the guard after others flushed or changed its rules, unless the data path
// was detached. It is called when rules change and once a second, so that a failure is
// tried again.
func (d *Datapath) keepGuard() {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	generation, is, err := d.guardIs()
	if err == nil && is != d.guard {
		if d.resigned() {
			return
		}
		if d.closed() {
			err = d.guardian().Shut()
		} else {
			err = d.guardian().Renew(d.lan.Index, d.wan.Index)
		}
		if err == nil {
			d.cfg.Log.Warn("others took the guard out of netfilter, or changed it, and it is back", "lan", d.cfg.LAN)
			d.count(func(r *Repairs) { r.Guarded++ })
			err = d.noteGuard()
		}
	} else if err == nil {
		d.guardedAt = generation
	}
	d.report("the guard's rules", err)
}

// noteGuard notes the guard's rules as they are, after this process has changed them. keeping is held.
func (d *Datapath) noteGuard() (err error) {
	d.guardedAt = 0
	_, d.guard, err = d.guardIs()
	return err
}

// guardIs reads the guard's rules, if any rules have changed since they were last as noted. keeping is held.
func (d *Datapath) guardIs() (generation uint32, is [32]byte, err error) {
	if d.rules == nil {
		if d.rules, err = nftables.Dial(); err != nil {
			return 0, is, err
		}
	}
	if generation, err = d.rules.Generation(); err != nil {
		return 0, is, err
	}
	if generation == d.guardedAt {
		return generation, d.guard, nil
	}
	is, err = d.rules.Digest(nftables.Table{Family: nftables.Inet, Name: guard.Table(d.cfg.LAN)})
	return generation, is, err
}

// open has the guard let packets between the LAN and the WAN pass, because the programs
// judge them.
func (d *Datapath) open() error { return d.guardian().Know(d.lan.Index, d.wan.Index) }
