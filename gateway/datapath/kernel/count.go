package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// counted is traffic of one direction.
type counted struct{ packets, bytes uint64 }

func (c counted) plus(o counted) counted { return counted{c.packets + o.packets, c.bytes + o.bytes} }

// less is what remains of c without o, and nothing where o is larger.
func (c counted) less(o counted) counted {
	return counted{c.packets - min(c.packets, o.packets), c.bytes - min(c.bytes, o.bytes)}
}

// atLeast is the larger of two readings of one counter.
func (c counted) atLeast(o counted) counted {
	return counted{max(c.packets, o.packets), max(c.bytes, o.bytes)}
}

// tally is a client's traffic.
type tally struct{ up, down counted }

func (t tally) plus(o tally) tally { return tally{t.up.plus(o.up), t.down.plus(o.down)} }

// read reads what a client's unit has carried. What the gateway itself sends is counted before the
// interface counts it, so the interface is read first: the difference is never too large, and only
// while such a packet is on its way too small.
func (d *Datapath) read(c *client) (n tally, err error) {
	all, err := sent(c.line.index)
	if err != nil {
		return n, err
	}
	from, err := d.rules.Counter(d.table, fromCounter(c.Addr))
	if err != nil {
		return n, err
	}
	own, err := d.rules.Counter(d.table, ownCounter(c.Addr))
	if err != nil {
		return n, err
	}
	return tally{counted{from.Packets, from.Bytes}, all.less(counted{own.Packets, own.Bytes})}, nil
}

// look reads a client's traffic since the epoch. c.mu is held.
func (d *Datapath) look(c *client) error {
	if c.line == nil || c.line.unit < 0 {
		return nil
	}
	n, err := d.read(c)
	if err != nil {
		return fmt.Errorf("reading the counters of %s: %w", c.Addr, err)
	}
	c.note(n, time.Now())
	return nil
}

// note takes a reading of the present unit.
func (c *client) note(n tally, now time.Time) {
	n = tally{n.up.atLeast(c.unit.up), n.down.atLeast(c.unit.down)}
	if n != c.unit {
		c.unit, c.seen = n, now
	}
}

// settle waits until packets that passed the rules are counted: each CPU has passed a quiescent
// state (RCU), which takes some 10 ms.
func settle() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}

// Counters returns what was forwarded from and to an address since the epoch.
func (d *Datapath) Counters(addr netip.Addr) (datapath.Counters, error) {
	if err := d.ours(addr); err != nil {
		return datapath.Counters{}, err
	}
	c := d.find(addr)
	if c == nil {
		return datapath.Counters{Epoch: d.epoch}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.look(c); err != nil {
		return datapath.Counters{}, err
	}
	return d.countersOf(c), nil
}

// countersOf returns a client's counters as last read. c.mu is held.
func (d *Datapath) countersOf(c *client) datapath.Counters {
	n := c.base.plus(c.unit)
	return datapath.Counters{
		Epoch: d.epoch, UpBytes: n.up.bytes, UpPackets: n.up.packets, DownBytes: n.down.bytes, DownPackets: n.down.packets, Seen: c.seen,
	}
}

// Total sums the counters of all addresses.
func (d *Datapath) Total() (datapath.Counters, error) {
	sum := datapath.Counters{Epoch: d.epoch}
	err := d.each(func(c *client) {
		n := d.countersOf(c)
		sum.UpBytes, sum.UpPackets = sum.UpBytes+n.UpBytes, sum.UpPackets+n.UpPackets
		sum.DownBytes, sum.DownPackets = sum.DownBytes+n.DownBytes, sum.DownPackets+n.DownPackets
	})
	return sum, err
}

// Moved calls f for each address that has counted packets since the last call.
func (d *Datapath) Moved(f func(netip.Addr)) error {
	var moved []netip.Addr
	err := d.each(func(c *client) {
		if n := c.base.plus(c.unit); n != c.mark {
			c.mark = n
			moved = append(moved, c.Addr)
		}
	})
	if err == nil {
		for _, a := range moved {
			f(a)
		}
	}
	return err
}

var _ datapath.Mover = (*Datapath)(nil)

// each calls f for all clients there have been, with counters that are new.
func (d *Datapath) each(f func(*client)) error {
	var errs []error
	for _, c := range d.all() {
		c.mu.Lock()
		if err := d.look(c); err != nil {
			errs = append(errs, err)
		}
		f(c)
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Packets counts packets by outcome.
func (d *Datapath) Packets() (map[string]uint64, error) {
	sum, err := d.Total()
	errs := []error{err}
	out := map[string]uint64{"forwarded": sum.UpPackets + sum.DownPackets}
	for counter, reason := range map[string]string{spoofed: "wrong-mac", foreign: "foreign-source"} {
		n, err := d.rules.Counter(d.table, counter)
		errs = append(errs, err)
		out[reason] = n.Packets
	}
	return out, errors.Join(errs...)
}
