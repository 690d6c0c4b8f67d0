// The clients of the data path: in the table by which the daemon judges packets (package admission), and in the rules
// by which the kernel passes packets itself (passed.go).

package nfqueue

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Set sets a client in the kernel's rules and in the judges' table. If the kernel is to pass the client's packets, that
// begins with the last step. If not, that ends with the first step.
func (d *Datapath) Set(c datapath.Client) error {
	defer d.neighbours.Flush() // sends the changes that other calls have noted meanwhile, too
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.set(c); err != nil {
		return fmt.Errorf("setting the client %s: %w", c.Identity(), err)
	}
	return nil
}

func (d *Datapath) set(c datapath.Client) error {
	addr, err := c.Addr()
	if err != nil {
		return err
	}
	if c.Session != 0 {
		return fmt.Errorf("%w: the kernel forwards its packets, and knows no PPPoE", datapath.ErrNotSupported)
	}
	passes := d.fast != nil && c.Admitted && c.Limits == (datapath.Limits{})
	if !passes {
		if err := d.judgeAgain(addr); err != nil {
			return err
		}
	}
	if err := d.setOwner(addr, &c.MAC); err != nil {
		return err
	}
	if err := d.table.Set(c); err != nil {
		return err
	}
	if passes {
		return d.letKernelPass(addr, c)
	}
	d.awaitVerdicts()
	return nil
}

// awaitVerdicts waits until packets that are being judged have their verdicts and are counted.
func (d *Datapath) awaitVerdicts() {
	for _, q := range d.queues {
		q.AwaitVerdicts()
	}
}

// Remove removes a client's entry.
func (d *Datapath) Remove(id datapath.ID) error {
	addr := id.Addr()
	defer d.neighbours.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.judgeAgain(addr); err != nil {
		return fmt.Errorf("removing the client %s: %w", addr, err)
	}
	if err := d.table.Remove(id); err != nil {
		return err
	}
	d.awaitVerdicts()
	if err := d.setOwner(addr, nil); err != nil {
		return fmt.Errorf("removing the client %s: %w", addr, err)
	}
	return nil
}

// setOwner changes the owner of an address; nil: none. d.mu is held.
func (d *Datapath) setOwner(addr netip.Addr, mac *datapath.MAC) error {
	if d.net.Client(addr) != nil {
		return nil // the table returns the error
	}
	old, existed := d.owners[addr]
	if existed && mac != nil && old == *mac || !existed && mac == nil {
		return nil
	}
	var b nftables.Batch
	if existed {
		t := tablesOf(d.net.Interface)
		for _, t := range d.ownerTables() {
			b.DeleteElements(t, setKnown, nftables.Element{Key: pair(addr, old)})
		}
		b.DeleteElements(t.arp, setTaken, nftables.Element{Key: addr.AsSlice()})
	}
	if mac != nil {
		d.addOwner(&b, addr, *mac)
	}
	if err := d.rules.Commit(&b); err != nil {
		return err
	}
	if mac == nil {
		delete(d.owners, addr)
		d.neighbours.Remove(addr)
	} else {
		d.owners[addr] = *mac
		d.neighbours.Set(addr, *mac)
	}
	return nil
}

// ownerTables are the tables that contain the owners of addresses.
func (d *Datapath) ownerTables() []nftables.Table {
	t := tablesOf(d.net.Interface)
	if d.cfg.Fast {
		return []nftables.Table{t.arp}
	}
	return []nftables.Table{t.arp, t.ip}
}

// addOwner adds the owner of an address to the rules.
func (d *Datapath) addOwner(b *nftables.Batch, addr netip.Addr, mac datapath.MAC) {
	for _, t := range d.ownerTables() {
		b.AddElements(t, setKnown, nftables.Element{Key: pair(addr, mac)})
	}
	b.AddElements(tablesOf(d.net.Interface).arp, setTaken, nftables.Element{Key: addr.AsSlice()})
}

// Counters returns the traffic of a client since the epoch.
func (d *Datapath) Counters(id datapath.ID) (datapath.Counters, error) {
	c, err := d.table.Counters(id)
	if err != nil || d.fast == nil {
		return c, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.addPassed(id.Addr(), &c); err != nil {
		return datapath.Counters{}, fmt.Errorf("reading the counters of %s: %w", id, err)
	}
	return c, nil
}

// OpenPort opens a port of the walled garden, or shuts it, until a time (datapath.Running).
func (d *Datapath) OpenPort(port datapath.GardenPort, until time.Time) error {
	return d.table.OpenPort(port, until)
}

// Open opens the walled garden for a prefix, or closes it.
func (d *Datapath) Open(prefix netip.Prefix, until time.Time) error {
	return d.table.Open(prefix, until)
}

// Clients lists the clients that have an entry.
func (d *Datapath) Clients() ([]datapath.ID, error) { return d.table.Clients() }

// Total sums the counters of all addresses.
func (d *Datapath) Total() (datapath.Counters, error) {
	sum, err := d.table.Total()
	if err != nil || d.fast == nil {
		return sum, err
	}
	passed, added, err := d.allPassed()
	addTally(&sum, passed.minus(added))
	return sum, err
}

// Packets counts packets by outcome. "overflow" counts packets that found a queue full.
func (d *Datapath) Packets() (map[string]uint64, error) {
	out, err := d.table.Packets()
	errs := []error{err}
	for _, q := range d.queues {
		n, err := q.Drops()
		errs = append(errs, err)
		out["overflow"] += n.Full + n.Unread
	}
	if d.fast != nil {
		passed, _, err := d.allPassed()
		errs = append(errs, err)
		out["forwarded"] += passed.up.Packets + passed.down.Packets
	}
	t := tablesOf(d.net.Interface)
	count := func(reason string, table nftables.Table, counter string) {
		n, err := d.rules.Counter(table, counter)
		errs = append(errs, err)
		out[reason] += n.Packets
	}
	count("arp-spoof", t.arp, dropped)
	count("throttled", t.arp, throttled)
	count("ipv6", t.ip6, dropped)
	if d.speaks.dev {
		count("foreign-source", t.dev, dropped)
	}
	return out, errors.Join(errs...)
}
