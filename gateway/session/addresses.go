package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Extend gives a client another address, of either family: it is admitted, limited and counted with the
// first one, and lost with it. Without a change it does nothing. It fails with ErrMoved where the client has gone, with
// ErrTaken while another has the address, and with the data path's error where that can have no such address.
func (t *Table) Extend(key Key, addr netip.Addr) error {
	return t.alterAddrs(key, func(c *client) error {
		addr = addr.Unmap()
		switch {
		case !addr.IsValid() || addr.IsUnspecified():
			return fmt.Errorf("%v: %w", addr, ErrNoHost)
		case addr.Is4() && c.only6():
			return fmt.Errorf("%v: %w: it is leased", addr, ErrFirst)
		case slices.Contains(c.addrs(), addr):
			return nil
		case !t.reserveFurther(c, addr):
			return ErrTaken
		}
		err := t.extend(c, addr)
		if err != nil {
			t.mu.Lock()
			delete(t.byFurtherAddr, addr)
			t.mu.Unlock()
		}
		return err
	})
}

// extend writes a further address to disk, and has the data path let it in. When that fails it is neither on the disk
// nor let in. op must be held.
func (t *Table) extend(c *client, addr netip.Addr) error {
	before, next := c.entry, c.entry
	next.change(func(r *extraFields) { r.furtherAddrs = append(slices.Clone(r.furtherAddrs), addr) })
	if err := t.journal.commit(change{id: c.identity, record: t.record(&next)}); err != nil {
		return err
	}
	err := t.setDatapath(c, &next)
	if err == nil {
		t.publish(c, next)
		return nil
	}
	// It may have failed halfway. The disk may refuse the record of before, which is then written later.
	undone := t.setDatapath(c, &before)
	c.inDatapath = c.inDatapath && undone == nil // otherwise the next lease sets it again
	return errors.Join(err, undone, t.journal.commit(change{id: c.identity, record: t.record(&before), mustHappen: true}))
}

// Withdraw takes an address back that Extend or Enter gave. One that the client does not have is no error. A client
// without IPv4 is known by another one of its addresses from then on, and ends with the last one.
func (t *Table) Withdraw(key Key, addr netip.Addr) error {
	return t.alterAddrs(key, func(c *client) error { return t.withdraw(c, addr.Unmap()) })
}

// withdraw closes the data path to a further address, writes to disk that the client does not have it, and has its
// connections end. When the data path or the disk fails, the client has it still. op must be held.
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
	t.publish(c, next)
	return nil
}

// alterAddrs calls f for a client with op held.
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

// reserveFurther keeps an address that nobody has for a client, by which it is found once that is published; false:
// somebody has it.
func (t *Table) reserveFurther(c *client, addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFurtherAddr[addr] != nil || addr.Is4() && t.clients[datapath.IDOf(addr)] != nil {
		return false
	}
	t.byFurtherAddr[addr] = c
	return true
}

// holdFirst is holdOrAdd for a client that will be known by this address. Another client that has it as a further
// address loses it.
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
			continue // it has gone meanwhile, and its addresses with it
		}
		err = t.withdraw(other, addr)
		t.release(other)
		if err != nil {
			return nil, err
		}
	}
}
