// The guard (package guard): nftables rules that let nothing pass while programs are missing.

package ebpf

import (
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/gateway/shared"
)

// guardian returns the guard that replaces the programs' protection where they are gone.
func (d *Datapath) guardian() guard.Guard {
	return guard.Guard{LAN: d.net.Interface, WAN: d.cfg.WAN, Prefix: d.net.Prefix(), Gateway: d.net.Gateway()}
}

// keepGuard restores the guard after others flushed or changed its rules, unless the data path was detached. It is
// called when rules change and every two seconds, so that a failure is tried again.
func (d *Datapath) keepGuard() {
	d.repairing.Lock()
	defer d.repairing.Unlock()
	generation, state, err := d.guardState()
	if err == nil && state == d.guard && state != noGuard {
		d.guardedAt = generation
	} else if err == nil {
		if d.isDetached() {
			return
		}
		if d.closed() {
			err = d.setGuard(guard.Guard.Shut)
		} else {
			err = d.setGuard(d.letThrough)
		}
		if err == nil {
			d.cfg.Log.Warn("the guard in netfilter was gone, or not as this daemon made it, and is back", "lan", d.net.Interface)
			d.count(func(r *Repairs) { r.Guarded++ })
		}
	}
	d.report("the guard's rules", err)
}

// isOther reports whether a table is the guard of another LAN, or another one without effect on this LAN's packets.
func (d *Datapath) isOther(family uint8, table string) bool {
	return shared.IsOwnTable(family, table) || guard.CountsConnections(family, table) ||
		family == uint8(nftables.Inet) && guard.IsOwnTable(table) && table != guard.Table(d.net.Interface)
}

// noGuard is the digest of a table that is not there, or has no rules.
var noGuard [32]byte

// setGuard changes the guard, and notes its rules. keeping is held.
func (d *Datapath) setGuard(change func(guard.Guard) error) error {
	if err := change(d.guardian()); err != nil {
		return err
	}
	d.guardedAt = 0
	_, state, err := d.guardState()
	if err != nil {
		state = noGuard // the next look restores the guard
	}
	d.guard = state
	return nil
}

// letThrough has a guard, whether it is there or not, let packets between the LAN and the WAN pass, because the
// programs judge them.
func (d *Datapath) letThrough(g guard.Guard) error { return g.Renew(d.lan.Index, d.wan.Index) }

// letsNothing has a guard let nothing pass between the LAN and anywhere.
func letsNothing(g guard.Guard) error { return g.Renew() }

// guardState reads the guard's rules, if any rules have changed since they were last as noted. keeping is held.
func (d *Datapath) guardState() (generation uint32, state [32]byte, err error) {
	if d.rules == nil {
		if d.rules, err = nftables.Dial(); err != nil {
			return 0, state, err
		}
	}
	if generation, err = d.rules.Generation(); err != nil {
		return 0, state, err
	}
	if generation == d.guardedAt {
		return generation, d.guard, nil
	}
	state, err = d.rules.Digest(nftables.Table{Family: nftables.Inet, Name: guard.Table(d.net.Interface)})
	return generation, state, err
}
