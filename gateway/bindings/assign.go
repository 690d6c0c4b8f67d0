// Addresses that DHCPv6 or RADIUS assigned, and bindings of a former daemon.

package bindings

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// ErrFull is returned when an address cannot be assigned because the table or the client has all it may have.
var ErrFull = errors.New("there is no room for another address")

// Assign binds an address to the anchor that DHCPv6 or RADIUS gave it to, whoever had it before. It is not aged: it
// ends with Unassign or End. If the client has MaxGlobal addresses, the one that was seen least recently goes. The
// error is ErrFull, or that the address is no unicast address.
func (t *Table) Assign(a Anchor, addr netip.Addr, clock time.Time) ([]Action, error) {
	now := t.begin(clock)
	if !isUnicast(addr) {
		return nil, fmt.Errorf("assigning %s: it is no IPv6 unicast address", addr)
	}
	b := t.bindings[addr]
	if b == nil || b.owner.anchor != a {
		if err := t.clear(a, addr, b); err != nil {
			return nil, err
		}
		b = t.add(a, addr, now)
	}
	if k, contested := t.contests[b]; contested {
		t.refuse(k, addr)
	}
	b.assigned = true
	if b.kept {
		b.kept = false
		t.emit(Forget, a, addr)
	}
	t.setValid(b, now, 0)
	return t.out, nil
}

// clear makes room for an address that is assigned to an anchor; b is another anchor's binding of the address, or nil.
func (t *Table) clear(a Anchor, addr netip.Addr, b *binding) error {
	if b == nil && len(t.bindings) >= t.rules.Most {
		return fmt.Errorf("assigning %s to %s: %w", addr, a, ErrFull)
	}
	var oldest *binding
	if c := t.clients[a]; c != nil && c.has(scopeOf(addr)) >= limits[scopeOf(addr)] {
		if oldest = t.leastSeen(c, scopeOf(addr)); oldest == nil {
			return fmt.Errorf("assigning %s to %s: %w", addr, a, ErrFull)
		}
	}
	if oldest != nil {
		t.counts.Replaced++
		t.remove(oldest)
	}
	if b != nil {
		t.counts.Moved++
		t.remove(b)
	}
	return nil
}

// Unassign ends an assigned address of an anchor. Any other binding stays.
func (t *Table) Unassign(a Anchor, addr netip.Addr, clock time.Time) []Action {
	t.begin(clock)
	if b := t.bindings[addr]; b != nil && b.assigned && b.owner.anchor == a {
		t.remove(b)
	}
	return t.out
}

// End removes all addresses of an anchor, because its session has ended.
func (t *Table) End(a Anchor, clock time.Time) []Action {
	t.begin(clock)
	if c := t.clients[a]; c != nil {
		for len(c.bindings) > 0 {
			t.remove(c.bindings[len(c.bindings)-1])
		}
	}
	return t.out
}

// Recheck removes the addresses that their owners may no longer use, because the network's prefixes have changed. It
// looks at all bindings. Assigned ones stay.
func (t *Table) Recheck(clock time.Time) []Action {
	t.begin(clock)
	for addr, b := range t.bindings {
		if !b.assigned && !t.acceptable(b.owner.anchor, addr) {
			t.remove(b)
		}
	}
	return t.out
}

// Restore takes over bindings of a daemon that ran before. They are trusted, also before the network's prefixes are
// known; Recheck removes those that do not fit. Their owners are asked after one by one, 50 a second. Of what does not
// fit into the bounds the rest is left out, and forgotten.
func (t *Table) Restore(all []Saved, clock time.Time) []Action {
	now := t.begin(clock)
	for i, s := range all {
		c := t.clients[s.Anchor]
		scope := scopeOf(s.Addr)
		if !isUnicast(s.Addr) || t.bindings[s.Addr] != nil || len(t.bindings) >= t.rules.Most ||
			c != nil && c.has(scope) >= limits[scope] {
			if old := t.bindings[s.Addr]; old == nil {
				t.emit(Forget, s.Anchor, s.Addr)
			}
			continue
		}
		b := t.add(s.Anchor, s.Addr, now)
		b.kept = true
		b.heard = now - t.rules.Idle
		t.setValid(b, now, now+restoreAfter+moment(i)*restoreEach)
	}
	return t.out
}
