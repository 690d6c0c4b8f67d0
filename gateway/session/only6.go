package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// numbers gives numbers to clients without an IPv4 address; their identities are made of these. It gives the lowest
// free number, because some data paths have room for few only.
type numbers struct {
	next uint32   // no client has this number or a higher one
	free []uint32 // free numbers below next
}

// take returns a number that no client has.
func (n *numbers) take() (number uint32) {
	if last := len(n.free) - 1; last >= 0 {
		number, n.free = n.free[last], n.free[:last]
		return number
	}
	n.next++
	return n.next - 1
}

// taken notes a number that a client of a record has.
func (n *numbers) taken(number uint32) {
	if number < n.next {
		n.free = slices.DeleteFunc(n.free, func(f uint32) bool { return f == number })
		return
	}
	for ; n.next < number; n.next++ {
		n.free = append(n.free, n.next)
	}
	n.next = number + 1
}

// giveBack frees the number of a client that is removed.
func (n *numbers) giveBack(number uint32) {
	if number == n.next-1 {
		n.next--
	} else {
		n.free = append(n.free, number)
	}
}

// Enter adds a client that has no IPv4 address, by the IPv6 address that it uses first. Extend gives it the others. The
// client stays until Withdraw has taken all of them back, or Forget is called: then its session ends with LeaseEnded.
// When the device leases an IPv4 address, Lease moves the client there. Enter fails with ErrTaken while somebody has
// the address, with ErrAddresses while the MAC address has a client without PPPoE, which can be extended, and with
// ErrFull.
func (t *Table) Enter(key Key) error {
	err := t.holdOpen()
	if err == nil {
		defer t.openLock.RUnlock()
		err = t.enter(key)
	}
	if err != nil {
		return fmt.Errorf("enter %s: %w", key, err)
	}
	return nil
}

func (t *Table) enter(key Key) error {
	if !key.Addr.Is6() || key.Addr.Is4In6() || key.Addr.IsUnspecified() {
		return ErrFirst
	}
	c, err := t.addOnly6(key)
	if err != nil {
		return err
	}
	defer t.release(c)
	if _, err := t.dp.Counters(c.identity); errors.Is(err, datapath.ErrForeign) {
		return errors.Join(ErrFull, err) // before it is on the disk
	}
	now := t.clock.now()
	_, err = t.replace(c, &entry{key: key, state: Leased, leasedAt: now, leaseEnd: zeroTime}, NASRequest, now)
	return err
}

// addOnly6 adds an empty client without an IPv4 address, with op held. It fails if the address or the MAC address has a
// client.
func (t *Table) addOnly6(key Key) (*client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.byFurtherAddr[key.Addr] != nil:
		return nil, ErrTaken
	case t.macs.hasHost(key.MAC):
		return nil, ErrAddresses
	case len(t.clients) >= t.bounds.clients:
		return nil, ErrFull
	}
	c := &client{identity: datapath.Numbered(t.numbers.take())}
	c.key.Addr = key.Addr
	c.op.Lock()
	t.clients[c.identity], t.byFurtherAddr[key.Addr] = c, c
	t.order.add(c.identity)
	t.macs.put(c, key.MAC)
	return c, nil
}

// join is called when c has just leased an IPv4 address. If the same device has a client without IPv4, join moves that
// client to c. If c has a session by now, the other client's session ends. op of c must be held: it is locked before
// that of a client without IPv4.
func (t *Table) join(c *client) error {
	former := t.holdBy(func() *client { return t.macs.only6(c.key.MAC) })
	if former == nil {
		return nil
	}
	defer t.release(former)
	if former.state == "" || former.key.MAC != c.key.MAC {
		return nil
	}
	if c.state == Authenticated {
		_, err := t.finish(former, nil, NASRequest, t.clock.now())
		return unlessLater(err)
	}
	if err := t.move(former, c); err != nil {
		return fmt.Errorf("move %s: %w", former.key, err)
	}
	return nil
}

// move gives c all that former has: addresses, and the session with its counts. It then removes former. The file holds
// one of the two at any moment. When the data path or the disk fails, both stay as they were. op of both must be held.
func (t *Table) move(former, c *client) error {
	before := former.entry
	if err := t.closePath(former, &before, true); err != nil {
		return err
	}
	next := before
	next.key, next.hostname, next.leasedAt, next.leaseEnd = c.key, c.hostname, c.leasedAt, c.leaseEnd
	next.change(func(r *extraFields) {
		has := c.extraOrZero()
		r.furtherAddrs = append(slices.Clone(has.furtherAddrs), before.addrs()...)
		r.delegated = append(slices.Clone(has.delegated), r.delegated...)
	})
	now, err := t.dp.Counters(c.identity)
	if err != nil {
		return errors.Join(err, t.restored(former))
	}
	if next.state == Authenticated {
		next.read = readingOf(now)
	}
	err = t.journal.commit(change{id: c.identity, record: t.record(&next), former: former.identity})
	if err != nil {
		return errors.Join(err, t.restored(former))
	}
	t.arm(c, &next, t.clock.now())
	c.tellSoon(&next, t.clock.now())
	t.publish(c, next)
	t.remove(former)
	return t.setDatapath(c, &next)
}

// firstOf returns the address that becomes a client's first one: a globally reachable one if there is any.
func firstOf(addrs []netip.Addr) netip.Addr {
	if i := slices.IndexFunc(addrs, netip.Addr.IsGlobalUnicast); i >= 0 {
		return addrs[i]
	}
	return addrs[0]
}
