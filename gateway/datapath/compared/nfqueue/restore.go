package nfqueue

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// keepRules restores the rules after nftables was flushed: until then the machine forwards for everybody. It closes the
// LAN first and adds the clients afterwards.
func (d *Datapath) keepRules() {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, err := d.installed()
	if err == nil && found {
		return
	}
	if err == nil {
		err = d.rules.Commit(d.ruleset())
	}
	if err == nil {
		d.cfg.Log.Warn("the rules were taken out of nftables, and are back; in between the machine forwarded for everybody",
			"lan", d.net.Interface)
		err = d.restore()
	}
	if err != nil {
		d.cfg.Log.Error("keeping the rules in nftables", "lan", d.net.Interface, "err", err)
	}
}

// installed reports whether all tables exist.
func (d *Datapath) installed() (bool, error) {
	t := tablesOf(d.net.Interface)
	all := []nftables.Table{t.ip, t.arp, t.ip6}
	if d.speaks.dev {
		all = append(all, t.dev)
	}
	for _, table := range all {
		if found, err := nftables.TableExists(table); err != nil || !found {
			return false, err
		}
	}
	return true, nil
}

// atOnce is how many clients restore adds in one step: the kernel confirms each change, and a socket holds some hundred
// answers.
const atOnce = 32

// restore adds the present clients to new rules. Counts of lost counters are kept as far as they were read. d.mu is
// held.
func (d *Datapath) restore() error {
	if err := inSteps(d.rules, d.owners, d.addOwner); err != nil || d.fast == nil {
		return err
	}
	for _, h := range d.fast.counted {
		h.base, h.counted = h.last, false
	}
	err := inSteps(d.rules, d.fast.passed, func(b *nftables.Batch, addr netip.Addr, p *passedClient) {
		d.letPass(b, addr, p.mac, true)
		d.fast.counted[addr].counted = true
	})
	if err != nil {
		return err
	}
	var b nftables.Batch
	if d.speaks.dev {
		d.courseRules(&b)
	}
	if d.fast.open {
		d.opening(&b)
	}
	return d.rules.Commit(&b)
}

// inSteps adds all to the rules, in steps of atOnce.
func inSteps[V any](c *nftables.Conn, all map[netip.Addr]V, add func(*nftables.Batch, netip.Addr, V)) error {
	b, n := new(nftables.Batch), 0
	for addr, v := range all {
		add(b, addr, v)
		if n++; n%atOnce == 0 {
			if err := c.Commit(b); err != nil {
				return err
			}
			b = new(nftables.Batch)
		}
	}
	return c.Commit(b)
}
