package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Delegate gives a client an IPv6 network, whose addresses are treated as the client's own: it is admitted, limited and
// counted with them, also before login, and lost with the client. Without a change it does nothing. It fails with
// ErrMoved where the client has gone, with ErrTaken while another has the network, and with the data path's error where
// that can have no such network.
func (t *Table) Delegate(key Key, network netip.Prefix) error {
	return t.alterAddrs(key, func(c *client) error {
		has := c.extraOrZero().delegated
		switch {
		case slices.Contains(has, network):
			return nil
		case !network.IsValid() || !network.Addr().Is6() || network != network.Masked():
			return fmt.Errorf("%v: %w", network, ErrNoHost)
		case t.isDelegated(network):
			return ErrTaken
		}
		next := c.entry
		next.change(func(r *extraFields) { r.delegated = append(slices.Clone(has), network) })
		return t.alterDelegated(c, next, true)
	})
}

// Undelegate takes a network back that Delegate gave, with the client's addresses in it. If the client does not have
// the network, that is no error. A client without IPv4 that is known by such an address is known by another one from
// then on, and ends if it has none.
func (t *Table) Undelegate(key Key, network netip.Prefix) error {
	return t.alterAddrs(key, func(c *client) error {
		has := c.extraOrZero().delegated
		if !slices.Contains(has, network) {
			return nil
		}
		next := c.entry
		left := slices.DeleteFunc(c.addrs(), network.Contains)
		switch {
		case !network.Contains(c.key.Addr):
		case len(left) == 0:
			_, err := t.finish(c, nil, LeaseEnded, t.clock.now())
			return unlessLater(err)
		default:
			next.key.Addr = firstOf(left)
		}
		next.change(func(r *extraFields) {
			r.delegated = slices.DeleteFunc(slices.Clone(has), func(p netip.Prefix) bool { return p == network })
			r.furtherAddrs = slices.DeleteFunc(left, func(a netip.Addr) bool { return a == next.key.Addr })
		})
		return t.alterDelegated(c, next, false)
	})
}

func (t *Table) isDelegated(network netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.delegated.owner[network] != nil
}

// alterDelegated gives a client the networks of next. With more, networks were added: they are written to disk before
// the data path admits them. Otherwise networks were removed: the data path blocks them before the removal is written.
// On error the client keeps its former networks. op must be held.
func (t *Table) alterDelegated(c *client, next entry, more bool) error {
	write := func() error { return t.journal.commit(change{id: c.identity, record: t.record(&next)}) }
	let := func() error { return t.setDatapath(c, &next) }
	first, second := let, write
	if more {
		first, second = write, let
	}
	if err := first(); err != nil {
		return errors.Join(err, t.restored(c))
	}
	if err := second(); err != nil {
		return errors.Join(err, t.restored(c),
			t.journal.commit(change{id: c.identity, record: t.record(&c.entry), mustHappen: true}))
	}
	t.cutter.Schedule(c.droppedPrefixes(&next)...)
	c.tellSoon(&next, t.clock.now())
	t.publish(c, next)
	return nil
}

// delegations finds clients by the networks that were delegated to them. The zero value has none. The table's mu guards
// it.
type delegations struct {
	owner   map[netip.Prefix]*client
	count   map[int]int // networks by length
	lengths []int       // of the networks, the longest first
}

// replace has a client found by the networks that it has now, and no longer by those that it had.
func (d *delegations) replace(c *client, had, has []netip.Prefix) {
	if len(had)+len(has) == 0 {
		return
	}
	if d.owner == nil {
		d.owner, d.count = map[netip.Prefix]*client{}, map[int]int{}
	}
	for _, n := range had {
		if d.owner[n] == c && !slices.Contains(has, n) {
			delete(d.owner, n)
			d.counted(n.Bits(), -1)
		}
	}
	for _, n := range has {
		if d.owner[n] == nil {
			d.counted(n.Bits(), 1)
		}
		d.owner[n] = c
	}
}

// counted notes a network more, or fewer, of a length.
func (d *delegations) counted(length, more int) {
	before := d.count[length]
	d.count[length] += more
	switch {
	case d.count[length] == 0:
		delete(d.count, length)
		d.lengths = slices.DeleteFunc(d.lengths, func(l int) bool { return l == length })
	case before == 0:
		d.lengths = append(d.lengths, length)
		slices.SortFunc(d.lengths, func(a, b int) int { return b - a })
	}
}

// holder returns the client of the longest network that contains an address; nil: there is none.
func (d *delegations) holder(addr netip.Addr) *client {
	if !addr.Is6() {
		return nil
	}
	for _, length := range d.lengths {
		n, _ := addr.Prefix(length) // no error: it is of IPv6
		if c := d.owner[n]; c != nil {
			return c
		}
	}
	return nil
}
