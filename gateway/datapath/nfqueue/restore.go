package nfqueue

import (
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
)

// keepRules puts the rules back, and the clients in them, where somebody has flushed
// nftables: until then the machine forwards for everybody.
func (d *Datapath) keepRules() {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := tablesOf(d.cfg.LAN)
	all := []nftables.Table{t.ip, t.arp, t.ip6}
	if d.redirects {
		all = append(all, t.dev)
	}
	for _, table := range all {
		there, err := stack.HasTable(uint8(table.Family), table.Name)
		if err != nil {
			d.cfg.Log.Error("looking for the rules", "err", err)
			continue
		}
		if there {
			continue
		}
		if err := d.install(); err != nil {
			d.cfg.Log.Error("putting the rules back that somebody took out of nftables: the machine may forward for everybody", "lan", d.cfg.LAN, "err", err)
			return
		}
		d.cfg.Log.Warn("the rules were taken out of nftables, and are back; in between the machine forwarded for everybody", "lan", d.cfg.LAN)
		return
	}
}

// restore has new rules know the clients there are. d.mu is held, or nobody else is
// there yet.
func (d *Datapath) restore(b *nftables.Batch, dev bool) {
	for addr, mac := range d.owners {
		d.addOwner(b, addr, mac)
	}
	if d.fast == nil {
		return
	}
	d.redirects = dev
	for _, h := range d.fast.heard {
		h.base, h.counted = h.last, false
	}
	for addr, p := range d.fast.passed {
		d.letPass(b, addr, p.mac, true)
		d.fast.heard[addr].counted = true
	}
	if dev {
		d.turning(b)
	}
	if d.fast.open {
		d.opening(b)
	}
}
