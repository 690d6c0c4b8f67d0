package nfqueue

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
)

// fast is what the kernel passes by itself. It is guarded by the data path's lock.
type fast struct {
	passed map[netip.Addr]*passed
	// heard are the addresses that were passed once: their counters stay.
	heard map[netip.Addr]*heard
	stop  func() // shuts the gate

	captures []*capture // one for each queue; not guarded
}

// passed is a client whose packets the kernel passes: it has no limits but a time.
type passed struct {
	mac datapath.MAC
	end *time.Timer // nil: no end
}

// heard is what is known of an address's counters.
type heard struct {
	billed  tally     // of it, what the judges have been told: it counts for quotas
	packets uint64    // in all, when looked at last
	seen    time.Time // when they were found to be more
}

// tally is what the kernel has passed for an address.
type tally struct{ up, down nftables.Counted }

func (t *tally) add(o tally) {
	t.up = nftables.Counted{Packets: t.up.Packets + o.up.Packets, Bytes: t.up.Bytes + o.up.Bytes}
	t.down = nftables.Counted{Packets: t.down.Packets + o.down.Packets, Bytes: t.down.Bytes + o.down.Bytes}
}

func (t tally) minus(o tally) tally {
	return tally{
		nftables.Counted{Packets: t.up.Packets - o.up.Packets, Bytes: t.up.Bytes - o.up.Bytes},
		nftables.Counted{Packets: t.down.Packets - o.down.Packets, Bytes: t.down.Bytes - o.down.Bytes},
	}
}

func newFast() *fast {
	return &fast{passed: map[netip.Addr]*passed{}, heard: map[netip.Addr]*heard{}, stop: func() {}}
}

// Names of an address's counters.
func upCounter(a netip.Addr) string   { return "up_" + a.String() }
func downCounter(a netip.Addr) string { return "down_" + a.String() }

// early is how long before its end a client is judged again: the judges know the
// time to the packet.
const early = 50 * time.Millisecond

// pass has the kernel pass a client's packets. d.mu is held.
func (d *Datapath) pass(c datapath.Client) error {
	p, had := d.fast.passed[c.Addr]
	if had && p.end != nil {
		p.end.Stop()
	}
	next := &passed{mac: c.MAC}
	left := time.Until(c.Until) - early
	if !c.Until.IsZero() && left <= 0 {
		return d.ask(c.Addr)
	}
	if !had || p.mac != c.MAC {
		t := tablesOf(d.cfg.LAN).ip
		var b nftables.Batch
		if had {
			d.unpass(&b, c.Addr, p.mac)
		}
		if d.fast.heard[c.Addr] == nil {
			b.AddCounter(t, upCounter(c.Addr))
			b.AddCounter(t, downCounter(c.Addr))
		}
		b.AddElements(t, setUp, nftables.Element{Key: pair(c.Addr, c.MAC), Counter: upCounter(c.Addr)})
		b.AddElements(t, setDown, nftables.Element{Key: c.Addr.AsSlice(), Counter: downCounter(c.Addr)})
		if err := d.rules.Commit(&b); err != nil {
			return err
		}
		if d.fast.heard[c.Addr] == nil {
			d.fast.heard[c.Addr] = new(heard)
		}
	}
	if !c.Until.IsZero() {
		next.end = time.AfterFunc(left, func() { d.expire(c.Addr, next) })
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

// ask has a client's packets judged again, if the kernel passed them, and returns
// when those under way are counted. d.mu is held.
func (d *Datapath) ask(addr netip.Addr) error {
	if d.fast == nil {
		return nil
	}
	p, had := d.fast.passed[addr]
	if !had {
		return nil
	}
	var b nftables.Batch
	d.unpass(&b, addr, p.mac)
	if err := d.rules.Commit(&b); err != nil {
		return err
	}
	if p.end != nil {
		p.end.Stop()
	}
	delete(d.fast.passed, addr)
	// The kernel waits, some 10 ms, until each CPU has left what it was in (RCU). Where
	// it cannot, what is missing is at most a packet of each CPU.
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	return d.bill(addr)
}

// bill tells the judges what the kernel has passed for a client.
func (d *Datapath) bill(addr netip.Addr) error {
	n, err := d.unbilled(addr)
	if err != nil {
		return err
	}
	var c datapath.Counters
	addTally(&c, n)
	d.fast.heard[addr].billed.add(n)
	return d.table.Bill(addr, c)
}

// unbilled reads what the kernel has passed for an address that was passed once, and
// the judges do not know of.
func (d *Datapath) unbilled(addr netip.Addr) (n tally, err error) {
	t, h := tablesOf(d.cfg.LAN).ip, d.fast.heard[addr]
	if n.up, err = d.rules.Counter(t, upCounter(addr)); err != nil {
		return n, err
	}
	if n.down, err = d.rules.Counter(t, downCounter(addr)); err != nil {
		return n, err
	}
	h.look(n.up.Packets+n.down.Packets, time.Now())
	return n.minus(h.billed), nil
}

// unpass takes a client out of the maps. Its counters stay.
func (d *Datapath) unpass(b *nftables.Batch, addr netip.Addr, mac datapath.MAC) {
	t := tablesOf(d.cfg.LAN).ip
	b.DeleteElements(t, setUp, nftables.Element{Key: pair(addr, mac)})
	b.DeleteElements(t, setDown, nftables.Element{Key: addr.AsSlice()})
}

// addPassed adds to a client's counters what the kernel has passed. d.mu is held.
func (d *Datapath) addPassed(addr netip.Addr, c *datapath.Counters) error {
	h := d.fast.heard[addr]
	if h == nil {
		return nil
	}
	n, err := d.unbilled(addr)
	if err != nil {
		return err
	}
	addTally(c, n)
	if h.seen.After(c.Seen) {
		c.Seen = h.seen
	}
	return nil
}

func addTally(c *datapath.Counters, n tally) {
	c.UpBytes, c.UpPackets = c.UpBytes+n.up.Bytes, c.UpPackets+n.up.Packets
	c.DownBytes, c.DownPackets = c.DownBytes+n.down.Bytes, c.DownPackets+n.down.Packets
}

// look notes whether an address was heard of since it was looked at last.
func (h *heard) look(packets uint64, now time.Time) {
	if packets != h.packets {
		h.packets, h.seen = packets, now
	}
}

// allPassed sums what the kernel has passed, and of that what the judges have been
// told; and looks at each address.
func (d *Datapath) allPassed() (sum, billed tally, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]nftables.Counted, 2*len(d.fast.heard))
	if err := d.rules.Counters(tablesOf(d.cfg.LAN).ip, func(name string, n nftables.Counted) { all[name] = n }); err != nil {
		return sum, billed, err
	}
	now := time.Now()
	for addr, h := range d.fast.heard {
		n := tally{all[upCounter(addr)], all[downCounter(addr)]}
		h.look(n.up.Packets+n.down.Packets, now)
		sum.add(n)
		billed.add(h.billed)
	}
	return sum, billed, nil
}
