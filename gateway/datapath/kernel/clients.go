package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// client is an entry of the table of clients, for an address. It stays when the client is removed, because the counters
// must stay. Several units (PPP interfaces) may serve it one after the other.
type client struct {
	addr netip.Addr

	mu sync.Mutex // guards what follows
	datapath.Client
	networks []netip.Prefix // of IPv6, from whose addresses it sends; see ownAddresses
	known    bool
	pppoe    *pppoeSession // nil: there is no unit, and its packets have no way
	expiry   *time.Timer   // fires at the end of the admission; nil: there is none

	epoch             uint64  // of its counters; that of a former daemon from which the unit was adopted
	base, unit        tally   // traffic of former units; of the present one, as last read
	read              reading // the present unit's last one
	lostCounts        reading // of the present unit: what counters had that were removed together with the rules
	overRate, dropped uint64  // packets dropped because of rates: of former units; of the present one
	mark              tally   // traffic at the last call of Moved
	seen              time.Time
}

var errClosed = errors.New("the data path is closed")

func (d *Datapath) find(id datapath.ID) *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients[id.Addr()]
}

// all returns the entries of all clients, also of removed ones.
func (d *Datapath) all() (all []*client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		all = append(all, c)
	}
	return all
}

// Set makes a unit for a client that is admitted, and ends the unit of a client that is not.
func (d *Datapath) Set(to datapath.Client) error {
	if err := d.set(to); err != nil {
		return fmt.Errorf("setting the client %s: %w", to.Identity(), err)
	}
	return nil
}

func (d *Datapath) set(to datapath.Client) error {
	addr, networks, err := d.ownAddresses(to)
	if err != nil {
		return err
	}
	if err := d.net.Client(addr); err != nil {
		return err
	}
	if to.Admitted && to.Session == 0 {
		return fmt.Errorf("%w: this data path is for clients with PPPoE", datapath.ErrNotSupported)
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
	if err := d.change(c, to, networks); err != nil {
		return err
	}
	c.Client, c.networks, c.known = to, networks, true
	d.endAtExpiry(c)
	d.bound(c)
	d.keepUnit(c)
	return nil
}

// change makes, limits or ends a client's unit. c.mu is held.
func (d *Datapath) change(c *client, to datapath.Client, networks []netip.Prefix) error {
	if err := d.readTraffic(c); err != nil {
		return err
	}
	passes := to.Admitted && (to.Until.IsZero() || time.Now().Before(to.Until)) && !c.usedUp(to.Limits)
	same := c.pppoe != nil && c.MAC == to.MAC && c.Session == to.Session && c.MTU == to.MTU
	if same && passes {
		return errors.Join(c.pppoe.police(c.Limits, to.Limits), d.moveTo(c, networks))
	}
	if err := d.bar(c); err != nil || !passes {
		return err
	}
	return d.admit(c, to, networks)
}

// admit makes a client's unit. c.mu is held.
func (d *Datapath) admit(c *client, to datapath.Client, networks []netip.Prefix) error {
	d.mu.Lock()
	l, err := d.openSession(sessionKey{to.MAC, to.Session})
	if err == nil && l.used {
		err = errors.New("another client has its PPPoE session")
	}
	if err != nil {
		d.mu.Unlock()
		if errors.Is(err, unix.ENETDOWN) { // the concentrator notices that as well, and ends the session
			d.cfg.Log.Warn("the LAN's interface is down: a client has no way", "client", c.addr, "err", err)
			return nil
		}
		return err
	}
	l.used = true
	d.mu.Unlock()

	name := fmt.Sprintf("gw%dp%d", d.lan.Index, to.Session)
	if err = l.connect(name, mtuOf(to), int(d.group), d.passes6(to)); err == nil {
		d.mu.Lock()
		err = d.carrier.watch(l.unit, l)
		d.mu.Unlock()
	}
	if err == nil {
		err = l.police(datapath.Limits{}, to.Limits)
	}
	c.pppoe, c.MTU, c.networks = l, to.MTU, networks
	if err == nil {
		var b nftables.Batch
		d.addClientRules(&b, c.holdings())
		err = d.rules.Commit(&b)
	}
	if err != nil {
		d.drop(c)
		return err
	}
	if err = d.raise(c, nil); err != nil {
		err = fmt.Errorf("setting up the interface %s: %w", name, err)
		return errors.Join(err, d.bar(c))
	}
	return nil
}

// raise sets a client's interface up, with routes to it but those to networks in there, which leads to interfaces. c.mu
// is held.
func (d *Datapath) raise(c *client, there map[netip.Prefix]int) error {
	if err := raise(c.pppoe.index); err != nil {
		return err
	}
	if err := addRoute(c.addr, c.pppoe.index, d.net.Gateway()); err != nil {
		return err
	}
	return d.addRoutes6(c, slices.DeleteFunc(slices.Clone(c.networks), func(p netip.Prefix) bool {
		return there[p] == c.pppoe.index
	}))
}

// holdings are what the rules have of a client with a unit. c.mu is held.
func (c *client) holdings() holdings { return holdings{c.pppoe.index, c.addr, c.networks} }

// bar ends a client's unit and reads its last counts. c.mu is held.
func (d *Datapath) bar(c *client) error {
	if c.pppoe == nil {
		return nil
	}
	var b nftables.Batch
	d.barRules(&b, c.holdings())
	if err := d.rules.Commit(&b); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: the rules are gone
		return err
	}
	_ = lower(c.pppoe.index) // it fails only if the interface is gone
	stack.AwaitCPUs()
	_ = d.readTraffic(c) // it fails only if the interface is gone; then the last reading counts
	var rest nftables.Batch
	d.removeBarred(&rest, c.holdings())
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
	l.disconnect() // without d.mu, because it takes long
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
		if time.Now().Before(c.Until) { // the clock was set back, or Until was changed
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

// Open does nothing: there is no walled garden, because nobody reaches anything without a PPPoE session.
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
