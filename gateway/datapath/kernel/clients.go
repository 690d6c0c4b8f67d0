package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// client is an address of the table of clients. It stays when the client is removed, because its counters do.
type client struct {
	addr netip.Addr

	mu sync.Mutex // guards what follows
	datapath.Client
	known  bool
	pppoe  *pppoeSession // nil: its packets have no way
	expiry *time.Timer   // of the admission; nil: none

	epoch             uint64  // of its counters: a former daemon's, if it had the unit
	base, unit        tally   // of former units; of the present one, as last read
	read, lostCounts  reading // of the present unit; of counters that went with the rules
	overRate, dropped uint64  // packets beyond rates, of former units and of the present one
	mark              tally   // Moved's
	seen              time.Time
}

var errClosed = errors.New("the data path is closed")

func (d *Datapath) find(id datapath.ID) *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients[id.Addr()]
}

// all returns all clients that there have been.
func (d *Datapath) all() (all []*client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		all = append(all, c)
	}
	return all
}

// Set makes a unit for a client that is admitted and ends that of one that is not.
func (d *Datapath) Set(to datapath.Client) error {
	if err := d.set(to); err != nil {
		return fmt.Errorf("setting the client %s: %w", to.Identity(), err)
	}
	return nil
}

func (d *Datapath) set(to datapath.Client) error {
	addr, err := to.Addr()
	if err != nil {
		return err
	}
	if err := d.net.Client(addr); err != nil {
		return err
	}
	if to.Admitted && to.Session == 0 {
		return fmt.Errorf("%w: this data path is for clients with PPPoE", datapath.ErrNotSupported)
	}
	if len(to.Routes) > 0 {
		return fmt.Errorf(
			"%w: this data path takes no networks behind a client (Framed-Route): use datapath.kind ebpf or tun",
			datapath.ErrNotSupported)
	}
	d.mu.Lock()
	c := d.clients[addr]
	if c == nil && !d.closed {
		c = &client{addr: addr, epoch: d.epoch}
		d.clients[addr] = c
	}
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return errClosed
	}
	d.replacing.RLock()
	defer d.replacing.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.change(c, to); err != nil {
		return err
	}
	c.Client, c.known = to, true
	d.endAtExpiry(c)
	d.bound(c)
	d.keepUnit(c)
	return nil
}

// change makes, limits or ends a client's unit. c.mu is held.
func (d *Datapath) change(c *client, to datapath.Client) error {
	if err := d.readTraffic(c); err != nil {
		return err
	}
	passes := to.Admitted && (to.Until.IsZero() || time.Now().Before(to.Until)) && !c.usedUp(to.Limits)
	same := c.pppoe != nil && c.MAC == to.MAC && c.Session == to.Session && c.MTU == to.MTU
	if same && passes {
		return c.pppoe.police(c.Limits, to.Limits)
	}
	if err := d.bar(c); err != nil || !passes {
		return err
	}
	return d.admit(c, to)
}

// admit makes a client's unit. c.mu is held.
func (d *Datapath) admit(c *client, to datapath.Client) error {
	d.mu.Lock()
	l, err := d.openSession(sessionKey{to.MAC, to.Session})
	if err == nil && l.used {
		err = errors.New("another client has its PPPoE session")
	}
	if err != nil {
		d.mu.Unlock()
		if errors.Is(err, unix.ENETDOWN) { // the concentrator is told too, and ends the session
			d.cfg.Log.Warn("the LAN's interface is down: a client has no way", "client", c.addr, "err", err)
			return nil
		}
		return err
	}
	l.used = true
	d.mu.Unlock()

	name := fmt.Sprintf("gw%dp%d", d.lan.Index, to.Session)
	if err = l.connect(name, mtuOf(to), int(d.group)); err == nil {
		d.mu.Lock()
		err = d.carrier.watch(l.unit, l)
		d.mu.Unlock()
	}
	if err == nil {
		err = l.police(datapath.Limits{}, to.Limits)
	}
	if err == nil {
		var b nftables.Batch
		addClientRules(&b, d.table, l.index, c.addr)
		err = d.rules.Commit(&b)
	}
	c.pppoe = l
	if err != nil {
		d.drop(c)
		return err
	}
	if err = raise(l.index); err == nil {
		err = addRoute(c.addr, l.index, d.net.Gateway())
	}
	if err != nil {
		err = fmt.Errorf("setting up the interface %s: %w", name, err)
		return errors.Join(err, d.bar(c))
	}
	return nil
}

// bar ends a client's unit and reads its last counts. c.mu is held.
func (d *Datapath) bar(c *client) error {
	if c.pppoe == nil {
		return nil
	}
	var b nftables.Batch
	bar(&b, d.table, c.pppoe.index, c.addr)
	if err := d.rules.Commit(&b); err != nil && !errors.Is(err, unix.ENOENT) { // which is: the rules are gone
		return err
	}
	_ = lower(c.pppoe.index) // an error: it is gone
	stack.AwaitCPUs()
	_ = d.readTraffic(c) // an error: it is gone, and what was read last stands
	var rest nftables.Batch
	removeBarred(&rest, d.table, c.pppoe.index, c.addr)
	d.drop(c)
	if err := d.rules.Commit(&rest); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// drop ends a client's unit at once. c.mu is held.
func (d *Datapath) drop(c *client) {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	l := c.pppoe
	if l == nil {
		return
	}
	d.mu.Lock()
	d.carrier.ignore(l.unit)
	d.mu.Unlock()
	d.dropKept(c)
	l.disconnect() // takes its time
	d.mu.Lock()
	l.used = false
	d.closeUnused(l)
	d.mu.Unlock()
	c.pppoe = nil
	c.base, c.unit = c.base.plus(c.unit), tally{}
	c.read, c.lostCounts = reading{}, reading{}
	c.overRate, c.dropped = c.overRate+c.dropped, 0
}

// endAtExpiry ends a client's unit at the end of its admission. c.mu is held.
func (d *Datapath) endAtExpiry(c *client) {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if c.pppoe == nil || c.Until.IsZero() {
		return
	}
	l := c.pppoe
	c.expiry = time.AfterFunc(time.Until(c.Until), func() {
		d.replacing.RLock()
		defer d.replacing.RUnlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pppoe != l {
			return
		}
		if time.Now().Before(c.Until) { // the clock was set back, or Until is another one by now
			d.endAtExpiry(c)
			return
		}
		if err := d.bar(c); err != nil {
			d.cfg.Log.Error("ending a client's time", "client", c.addr, "err", err)
		}
	})
}

// Remove removes a client's entry.
func (d *Datapath) Remove(id datapath.ID) error {
	if err := d.net.Client(id.Addr()); err != nil {
		return err
	}
	c := d.find(id)
	if c == nil {
		return nil
	}
	d.replacing.RLock()
	defer d.replacing.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.bar(c); err != nil {
		return fmt.Errorf("removing the client %s: %w", id, err)
	}
	c.known, c.Admitted = false, false
	d.bound(c)
	return nil
}

// Open has nothing to open: nobody reaches the walled garden without PPPoE.
func (d *Datapath) Open(netip.Prefix, time.Time) error { return nil }

// Clients lists the clients that have an entry.
func (d *Datapath) Clients() (all []datapath.ID, err error) {
	for _, c := range d.all() {
		c.mu.Lock()
		if c.known {
			all = append(all, datapath.IDOf(c.addr))
		}
		c.mu.Unlock()
	}
	return all, nil
}
