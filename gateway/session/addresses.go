// Further addresses of a client, beside its first one.

package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Extend gives a client further addresses, of either family. They are admitted, limited and counted with the first one,
// and lost with it. If the client has them already, nothing changes. Extend fails with ErrMoved if the client has gone,
// with ErrTaken if another client has an address, and with the data path's error if that cannot have an address. The
// client gets the others all the same.
func (t *Table) Extend(key Key, addrs ...netip.Addr) error {
	return t.alterAddrs(key, func(c *client) error {
		var reserved []netip.Addr
		var errs []error
		for _, addr := range addrs {
			switch addr = addr.Unmap(); {
			case !addr.IsValid() || addr.IsUnspecified():
				errs = append(errs, fmt.Errorf("%v: %w", addr, ErrNoHost))
			case addr.Is4() && c.only6():
				errs = append(errs, fmt.Errorf("%v: %w: it is leased", addr, ErrFirst))
			case slices.Contains(c.addrs(), addr) || slices.Contains(reserved, addr):
			case !t.reserveFurther(c, addr):
				errs = append(errs, fmt.Errorf("%v: %w", addr, ErrTaken))
			default:
				reserved = append(reserved, addr)
			}
		}
		return errors.Join(append(errs, t.extendAll(c, reserved))...)
	})
}

// extendAll gives a client addresses that reserveFurther keeps for it: together, or one by one when that fails. op must
// be held.
func (t *Table) extendAll(c *client, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	err := t.extend(c, addrs)
	switch {
	case err == nil:
	case len(addrs) > 1:
		err = nil
		for _, addr := range addrs {
			err = errors.Join(err, t.extendAll(c, []netip.Addr{addr}))
		}
	default:
		t.mu.Lock()
		delete(t.byFurtherAddr, addrs[0])
		t.mu.Unlock()
	}
	return err
}

// extend writes further addresses to disk and then admits them in the data path. When that fails, the addresses are in
// neither of them. op must be held.
func (t *Table) extend(c *client, addrs []netip.Addr) error {
	before, next := c.entry, c.entry
	next.change(func(r *extraFields) { r.furtherAddrs = append(slices.Clone(r.furtherAddrs), addrs...) })
	if err := t.journal.commit(change{id: c.identity, record: t.record(&next)}); err != nil {
		return err
	}
	err := t.setDatapath(c, &next)
	if err == nil {
		c.tellSoon(&next, t.clock.now())
		t.publish(c, next)
		return nil
	}
	// setDatapath may have failed halfway. If the disk refuses the former record too, it is written later.
	undone := t.setDatapath(c, &before)
	c.inDatapath = c.inDatapath && undone == nil // otherwise the next lease sets it again
	return errors.Join(err, undone, t.journal.commit(change{id: c.identity, record: t.record(&before), mustHappen: true}))
}

// Withdraw takes away an address that Extend or Enter gave. If the client does not have it, nothing changes. When a
// client without IPv4 loses its first address, another one becomes the first; when it loses its last one, it ends.
func (t *Table) Withdraw(key Key, addr netip.Addr) error {
	return t.alterAddrs(key, func(c *client) error { return t.withdraw(c, addr.Unmap()) })
}

// withdraw blocks a further address in the data path, removes it on the disk, and schedules the end of its connections.
// When the data path or the disk fails, the client keeps the address. op must be held.
func (t *Table) withdraw(c *client, addr netip.Addr) error {
	left := c.addrs()
	index := slices.Index(left, addr)
	switch {
	case index < 0 || index == 0 && !c.only6():
		return nil
	case len(left) == 1:
		_, err := t.finish(c, nil, LeaseEnded, t.clock.now())
		return unlessLater(err)
	}
	left = slices.Delete(left, index, index+1)
	next := c.entry
	if index == 0 {
		next.key.Addr = firstOf(left)
	}
	next.change(func(r *extraFields) {
		r.furtherAddrs = slices.DeleteFunc(left, func(a netip.Addr) bool { return a == next.key.Addr })
	})
	err := t.setDatapath(c, &next)
	if err == nil {
		err = t.journal.commit(change{id: c.identity, record: t.record(&next)})
	}
	if err != nil {
		return errors.Join(err, t.restored(c))
	}
	t.cutter.Schedule(c.droppedPrefixes(&next)...)
	c.tellSoon(&next, t.clock.now())
	t.publish(c, next)
	return nil
}

// alterAddrs calls f with the client of a key, whose op is held meanwhile. It fails with ErrMoved if the client has
// gone.
func (t *Table) alterAddrs(key Key, f func(*client) error) error {
	key.Addr = key.Addr.Unmap()
	err := t.holdOpen()
	if err == nil {
		defer t.openLock.RUnlock()
		err = ErrMoved
		if c := t.lockClient(key.Addr); c != nil {
			defer t.release(c)
			if c.state != "" && c.key == key {
				err = f(c)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("change the addresses of %s: %w", key, err)
	}
	return nil
}

// reserveFurther reserves an address for a client. It returns false if a client has the address. From then on no other
// client can get it.
func (t *Table) reserveFurther(c *client, addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFurtherAddr[addr] != nil || addr.Is4() && t.clients[datapath.IDOf(addr)] != nil {
		return false
	}
	t.byFurtherAddr[addr] = c
	return true
}

// holdFirst is holdOrAdd for the first address of a client. If another client has the address as a further one, it
// loses it.
func (t *Table) holdFirst(addr netip.Addr) (*client, error) {
	for {
		c, err := t.holdOrAdd(addr)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		other := t.byFurtherAddr[addr]
		t.mu.Unlock()
		if other == nil {
			return c, nil
		}
		t.release(c)
		if other = t.holdID(other.identity); other == nil {
			continue // the other client has gone meanwhile, so the address is free
		}
		err = t.withdraw(other, addr)
		t.release(other)
		if err != nil {
			return nil, err
		}
	}
}
