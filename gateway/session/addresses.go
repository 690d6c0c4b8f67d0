package session

import (
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
		if addr = addr.Unmap(); slices.Contains(c.addrs(), addr) {
			return nil
		}
		if !t.reserveFurther(c, addr) {
			return ErrTaken
		}
		before, next := c.entry, c.entry
		next.change(func(r *extraFields) { r.furtherAddrs = append(slices.Clone(r.furtherAddrs), addr) })
		err := t.journal.commit(change{id: c.identity, record: t.record(&next)}) // before the data path lets it in
		if err == nil {
			if err = t.setDatapath(c, &next); err == nil {
				t.publish(c, next)
				return nil
			}
			t.journal.writeLater(change{id: c.identity, record: t.record(&before)})
		}
		t.mu.Lock()
		delete(t.byFurtherAddr, addr)
		t.mu.Unlock()
		return err
	})
}

// Withdraw takes an address back that Extend gave. One that the client does not have is no error.
func (t *Table) Withdraw(key Key, addr netip.Addr) error {
	return t.alterAddrs(key, func(c *client) error {
		index := slices.Index(c.extraOrZero().furtherAddrs, addr.Unmap())
		if index < 0 {
			return nil
		}
		next := c.entry
		next.change(func(r *extraFields) { r.furtherAddrs = slices.Delete(slices.Clone(r.furtherAddrs), index, index+1) })
		if err := t.setDatapath(c, &next); err != nil {
			return err
		}
		t.cutter.Schedule(c.droppedPrefixes(&next)...)
		t.publish(c, next)
		return t.journal.commit(change{id: c.identity, record: t.record(&next)})
	})
}

// alterAddrs calls f for a client with op held.
func (t *Table) alterAddrs(key Key, f func(*client) error) error {
	err := t.holdOpen()
	if err == nil {
		defer t.openLock.RUnlock()
		err = ErrMoved
		if c := t.lockClient(key.Addr.Unmap()); c != nil {
			defer t.release(c)
			if c.key.MAC == key.MAC {
				err = f(c)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("change the addresses of %s: %w", key, err)
	}
	return nil
}

// reserveFurther has a client found by an address that nobody has; false: somebody has it.
func (t *Table) reserveFurther(c *client, addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFurtherAddr[addr] != nil || addr.Is4() && t.clients[datapath.IDOf(addr)] != nil {
		return false
	}
	t.byFurtherAddr[addr] = c
	return true
}

// holdFirst is holdOrAdd for a client that is to be known by an address: another one that has it beside its first loses
// it.
func (t *Table) holdFirst(addr netip.Addr) (*client, error) {
	for {
		c, err := t.holdOrAdd(addr)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		other := t.byFurtherAddr[addr]
		var key Key
		if other != nil {
			key = other.key
		}
		t.mu.Unlock()
		if other == nil {
			return c, nil
		}
		t.release(c)
		if err := t.Withdraw(key, addr); err != nil {
			return nil, err
		}
	}
}
