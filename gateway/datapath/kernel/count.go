package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// reading is the traffic that a unit's interface and its rules have counted. A unit is a PPP interface.
type reading struct {
	sent        nftables.Counted // by the interface
	fromClient  nftables.Counted // forwarded from the client
	fromGateway nftables.Counted // sent by the gateway itself
}

// tally is a client's traffic, up and down.
type tally struct{ up, down nftables.Counted }

func (t tally) plus(o tally) tally { return tally{t.up.Plus(o.up), t.down.Plus(o.down)} }

// atLeast takes the larger one of each counter's two readings.
func (t tally) atLeast(o tally) tally { return tally{larger(t.up, o.up), larger(t.down, o.down)} }

func larger(a, b nftables.Counted) nftables.Counted {
	return nftables.Counted{Packets: max(a.Packets, b.Packets), Bytes: max(a.Bytes, b.Bytes)}
}

// tally is what was forwarded. The gateway's own packets are counted before the interface counts them, and the
// interface is read first: the difference is never too large, and too small only while such a packet is on its way.
func (r reading) tally() tally {
	fromGateway := nftables.Counted{
		Packets: min(r.fromGateway.Packets, r.sent.Packets), Bytes: min(r.fromGateway.Bytes, r.sent.Bytes)}
	return tally{r.fromClient,
		nftables.Counted{Packets: r.sent.Packets - fromGateway.Packets, Bytes: r.sent.Bytes - fromGateway.Bytes}}
}

// readTraffic reads a client's traffic since the epoch. c.mu is held.
func (d *Datapath) readTraffic(c *client) error {
	if c.pppoe == nil {
		return nil
	}
	r, err := d.read(c)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		// others have removed interface or rules: the last reading counts
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the counters of %s: %w", c.addr, err)
	}
	c.addReading(r, time.Now())
	return nil
}

func (d *Datapath) read(c *client) (r reading, err error) {
	err = sent(c.pppoe.index, func(_ int, n nftables.Counted) { r.sent = n })
	for _, t := range d.ownTables() {
		var from, own nftables.Counted
		if err == nil {
			from, err = d.rules.Counter(t, fromCounter(c.addr))
		}
		if err == nil {
			own, err = d.rules.Counter(t, ownCounter(c.addr))
		}
		r.fromClient, r.fromGateway = r.fromClient.Plus(from), r.fromGateway.Plus(own)
	}
	if err == nil && c.pppoe.policed {
		c.dropped, err = readDropped(c.pppoe.index)
	}
	return r, err
}

// lookAtAll reads all clients' traffic in a request for the interfaces, and one for each table. It does not read
// dropped packets, which takes more. Rules are not replaced meanwhile: readings of the former rules would be taken for
// those of new ones.
func (d *Datapath) lookAtAll() error {
	d.replacing.RLock()
	defer d.replacing.RUnlock()
	interfaces := map[int]nftables.Counted{}
	if err := sent(0, func(index int, n nftables.Counted) { interfaces[index] = n }); err != nil {
		return err
	}
	var tables []map[string]nftables.Counted
	for _, t := range d.ownTables() {
		counters := map[string]nftables.Counted{}
		if err := d.rules.Counters(t, func(name string, n nftables.Counted) { counters[name] = n }); err != nil {
			return err
		}
		tables = append(tables, counters)
	}
	now := time.Now()
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			r := reading{}
			var whole bool
			r.sent, whole = interfaces[c.pppoe.index]
			for _, counters := range tables {
				from, counted := counters[fromCounter(c.addr)]
				whole = whole && counted
				r.fromClient, r.fromGateway = r.fromClient.Plus(from), r.fromGateway.Plus(counters[ownCounter(c.addr)])
			}
			if whole { // otherwise the unit is newer than the readings
				c.addReading(r, now)
			}
		}
		c.mu.Unlock()
	}
	return nil
}

// addReading takes a reading of the present unit.
func (c *client) addReading(r reading, now time.Time) {
	c.read = r
	r.fromClient, r.fromGateway = r.fromClient.Plus(c.lostCounts.fromClient), r.fromGateway.Plus(c.lostCounts.fromGateway)
	if n := r.tally().atLeast(c.unit); n != c.unit {
		c.unit, c.seen = n, now
	}
}

// Counters returns the traffic of a client since the epoch.
func (d *Datapath) Counters(id datapath.ID) (datapath.Counters, error) {
	if err := d.net.Client(id.Addr()); err != nil {
		return datapath.Counters{}, err
	}
	c := d.find(id)
	if c == nil {
		return datapath.Counters{Epoch: d.epoch}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.readTraffic(c); err != nil {
		return datapath.Counters{}, err
	}
	n := c.traffic()
	return datapath.Counters{
		Epoch: c.epoch, UpBytes: n.up.Bytes, UpPackets: n.up.Packets, DownBytes: n.down.Bytes, DownPackets: n.down.Packets,
		DroppedPackets: c.overRate + c.dropped, Seen: c.seen,
	}, nil
}

// traffic returns a client's traffic since the epoch, as last read. c.mu is held.
func (c *client) traffic() tally { return c.base.plus(c.unit) }

// Total sums the counters of all addresses.
func (d *Datapath) Total() (datapath.Counters, error) {
	sum := datapath.Counters{Epoch: d.epoch}
	errs := []error{d.lookAtAll()}
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil && c.pppoe.policed {
			var err error
			c.dropped, err = readDropped(c.pppoe.index)
			errs = append(errs, err)
		}
		n := c.traffic()
		sum.UpBytes, sum.UpPackets = sum.UpBytes+n.up.Bytes, sum.UpPackets+n.up.Packets
		sum.DownBytes, sum.DownPackets = sum.DownBytes+n.down.Bytes, sum.DownPackets+n.down.Packets
		sum.DroppedPackets += c.overRate + c.dropped
		c.mu.Unlock()
	}
	return sum, errors.Join(errs...)
}

// Moved calls f for each client that has counted packets since the last call.
func (d *Datapath) Moved(f func(datapath.ID)) error {
	if err := d.lookAtAll(); err != nil {
		return err
	}
	for _, c := range d.all() {
		c.mu.Lock()
		n := c.traffic()
		moved := n != c.mark
		c.mark = n
		c.mu.Unlock()
		if moved {
			f(datapath.IDOf(c.addr))
		}
	}
	return nil
}

// Packets counts packets by outcome.
func (d *Datapath) Packets() (map[string]uint64, error) {
	sum, err := d.Total()
	errs := []error{err}
	out := map[string]uint64{"forwarded": sum.UpPackets + sum.DownPackets, "rate": sum.DroppedPackets}
	for _, t := range d.ownTables() {
		for counter, outcome := range droppedIn(t) {
			n, err := d.rules.Counter(t, counter)
			errs = append(errs, err)
			out[outcome] += n.Packets
		}
	}
	return out, errors.Join(errs...)
}
