package nfqueue

import (
	"errors"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
)

// fast is what the kernel passes by itself. It is guarded by the data path's lock.
type fast struct {
	passed map[netip.Addr]*passed
	past   map[netip.Addr]*account // of addresses that were passed once
	stop   func()                  // shuts the gates
}

// passed is a client whose packets the kernel passes: it has no limits but a time.
type passed struct {
	mac datapath.MAC
	end *time.Timer // nil: no end
}

// account is what elements have counted for an address.
type account struct {
	tally             // of elements that were taken out
	packets uint64    // in all, when last looked at
	seen    time.Time // when they were found to be more
}

type tally struct{ up, down nftables.Counted }

func (t *tally) add(o tally) {
	t.up.Packets, t.up.Bytes = t.up.Packets+o.up.Packets, t.up.Bytes+o.up.Bytes
	t.down.Packets, t.down.Bytes = t.down.Packets+o.down.Packets, t.down.Bytes+o.down.Bytes
}

func newFast() *fast {
	return &fast{passed: map[netip.Addr]*passed{}, past: map[netip.Addr]*account{}, stop: func() {}}
}

// pass has the kernel pass a client's packets. d.mu is held.
func (d *Datapath) pass(c datapath.Client) error {
	p, had := d.fast.passed[c.Addr]
	if !had || p.mac != c.MAC {
		var b nftables.Batch
		t := tablesOf(d.cfg.LAN).ip
		if had {
			d.take(&b, c.Addr, p.mac)
		}
		b.AddElements(t, setUp, nftables.Element{Key: pair(c.Addr, c.MAC)})
		b.AddElements(t, setDown, nftables.Element{Key: c.Addr.AsSlice()})
		if err := d.rules.Commit(&b); err != nil {
			return err
		}
		if d.fast.past[c.Addr] == nil {
			d.fast.past[c.Addr] = new(account)
		}
	}
	if had && p.end != nil {
		p.end.Stop()
	}
	next := &passed{mac: c.MAC}
	if !c.Until.IsZero() {
		// The judges know the end, too: from then on they are asked.
		next.end = time.AfterFunc(time.Until(c.Until), func() { d.expire(c.Addr, next) })
	}
	d.fast.passed[c.Addr] = next
	return nil
}

// expire ends what a timer was for, unless it has been changed meanwhile.
func (d *Datapath) expire(addr netip.Addr, p *passed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fast.passed[addr] != p {
		return
	}
	if err := d.ask(addr); err != nil {
		d.cfg.Log.Error("ending a client's time; its packets go on until that succeeds", "client", addr, "err", err)
		p.end = time.AfterFunc(gateEvery, func() { d.expire(addr, p) })
	}
}

// ask has a client's packets judged again, if the kernel passed them. d.mu is held.
func (d *Datapath) ask(addr netip.Addr) error {
	if d.fast == nil {
		return nil
	}
	p, had := d.fast.passed[addr]
	if !had {
		return nil
	}
	var b nftables.Batch
	d.take(&b, addr, p.mac)
	if err := d.rules.Commit(&b); err != nil {
		return err
	}
	if p.end != nil {
		p.end.Stop()
	}
	delete(d.fast.passed, addr)
	return nil
}

// take takes a client out of the sets and keeps what they have counted.
func (d *Datapath) take(b *nftables.Batch, addr netip.Addr, mac datapath.MAC) {
	t, a := tablesOf(d.cfg.LAN).ip, d.fast.past[addr]
	b.TakeElements(t, setUp, func(_ []byte, n nftables.Counted) { a.add(tally{up: n}) }, nftables.Element{Key: pair(addr, mac)})
	b.TakeElements(t, setDown, func(_ []byte, n nftables.Counted) { a.add(tally{down: n}) }, nftables.Element{Key: addr.AsSlice()})
}

// addPassed adds to a client's counters what the kernel has passed. d.mu is held.
func (d *Datapath) addPassed(addr netip.Addr, c *datapath.Counters) error {
	a := d.fast.past[addr]
	if a == nil {
		return nil
	}
	n := a.tally
	if p := d.fast.passed[addr]; p != nil {
		t := tablesOf(d.cfg.LAN).ip
		up, err := d.rules.Counted(t, setUp, pair(addr, p.mac))
		down, e := d.rules.Counted(t, setDown, addr.AsSlice())
		if err = errors.Join(err, e); err != nil {
			return err
		}
		n.add(tally{up, down})
	}
	a.look(n, time.Now())
	c.UpBytes, c.UpPackets = c.UpBytes+n.up.Bytes, c.UpPackets+n.up.Packets
	c.DownBytes, c.DownPackets = c.DownBytes+n.down.Bytes, c.DownPackets+n.down.Packets
	if a.seen.After(c.Seen) {
		c.Seen = a.seen
	}
	return nil
}

// look notes whether a client was heard of since it was looked at last.
func (a *account) look(n tally, now time.Time) {
	if packets := n.up.Packets + n.down.Packets; packets != a.packets {
		a.packets, a.seen = packets, now
	}
}

// allPassed sums what the kernel has passed, and looks at each client.
func (d *Datapath) allPassed() (sum tally, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := tablesOf(d.cfg.LAN).ip
	live := make(map[netip.Addr]tally, len(d.fast.passed))
	err = d.rules.All(t, setUp, func(key []byte, n nftables.Counted) {
		if len(key) >= 4 {
			live[netip.AddrFrom4([4]byte(key))] = tally{up: n}
		}
	})
	err = errors.Join(err, d.rules.All(t, setDown, func(key []byte, n nftables.Counted) {
		if len(key) >= 4 {
			addr := netip.AddrFrom4([4]byte(key))
			live[addr] = tally{live[addr].up, n}
		}
	}))
	if err != nil {
		return tally{}, err
	}
	now := time.Now()
	for addr, a := range d.fast.past {
		n := a.tally
		n.add(live[addr])
		a.look(n, now)
		sum.add(n)
	}
	return sum, nil
}
