// What the Table does when time has passed: it asks owners whether they are there, and takes addresses from those that
// do not answer.

package bindings

import (
	"net/netip"
	"time"
)

// ask has the owner asked once more, and sets when the binding is due again.
func (t *Table) ask(b *binding, now moment) {
	b.next = now + pauses(b)[b.asked]
	b.asked++
	t.emit(Ask, b.owner.anchor, b.addr)
}

// pauses returns how long an owner has to answer each question of the binding's state.
func pauses(b *binding) []time.Duration {
	if b.state == Testing && !b.room {
		return slowPauses[:]
	}
	return quickPauses[:]
}

// Next returns when Advance has something to do; false: never, as things are.
func (t *Table) Next() (time.Time, bool) {
	b := t.queue.First()
	if b == nil {
		return time.Time{}, false
	}
	return t.start.Add(b.next), true
}

// Advance does what is due: it asks owners, and removes addresses whose owners have not answered. It handles a bounded
// number of bindings; where more are due, Next returns a time that has passed.
func (t *Table) Advance(clock time.Time) []Action {
	now := t.begin(clock)
	for range maxDue {
		b := t.queue.First()
		if b == nil || b.next > now {
			break
		}
		t.step(b, now)
	}
	return t.out
}

// step handles a binding that is due. Afterwards it is due later, or is gone.
func (t *Table) step(b *binding, now moment) {
	switch {
	case b.state == Valid:
		t.test(b, now)
	case b.asked > 0 && t.wasSeen(b):
		t.keep(b, now)
	case int(b.asked) < len(pauses(b)):
		t.ask(b, now)
		t.queue.Put(b)
	default:
		t.fail(b, now)
	}
}

// wasSeen reports whether the data path saw the owner since it is asked. Packets of strangers do not count: who makes
// up a MAC address can send them, and cannot answer.
func (t *Table) wasSeen(b *binding) bool {
	return t.lastHeard(b) > b.begun && (b.answered || t.known(b.owner.anchor))
}

// test asks the owner of an address that has been idle.
func (t *Table) test(b *binding, now moment) {
	if idle := t.lastHeard(b) + t.rules.Idle; idle > now {
		b.next = idle
	} else if t.counts.Tests >= MaxTests {
		b.next = now + putOff
	} else {
		t.counts.Tests++
		b.state, b.begun = Testing, now
		t.ask(b, now)
	}
	t.queue.Put(b)
}

// fail takes an address from an owner that does not answer.
func (t *Table) fail(b *binding, now moment) {
	t.counts.Silent++
	k, contested := t.contests[b]
	waits := newcomer{}
	if b.room {
		waits = b.owner.newcomers[scopeOf(b.addr)]
		t.counts.Replaced++
	}
	a := b.owner.anchor
	t.remove(b)
	switch {
	case contested && !t.acceptable(k.claimant, b.addr):
		t.counts.Outside++ // the prefix was withdrawn meanwhile
	case contested && t.bind(k.claimant, b.addr, use, now):
		t.counts.Moved++
	case waits.addr.IsValid() && t.bindings[waits.addr] == nil && t.acceptable(a, waits.addr):
		t.bind(a, waits.addr, use, now)
	}
}

// makeRoom looks for an address that a client with all its addresses no longer uses. It reports whether it has removed
// one; otherwise the newcomer may be bound later, when an owner does not answer. The newcomer's probe is left alone: it
// has the address for itself, and works as soon as there is room.
func (t *Table) makeRoom(c *client, addr netip.Addr, now moment) bool {
	if c.newcomers[scopeOf(addr)].addr.IsValid() {
		t.counts.TooMany++
		return false
	}
	if c.anchor.Session != 0 { // nobody can be asked
		if oldest := t.leastSeen(c, scopeOf(addr)); oldest != nil {
			t.counts.Replaced++
			t.remove(oldest)
			return true
		}
		t.counts.TooMany++
		return false
	}
	t.askForRoom(c, newcomer{addr: addr}, now)
	return false
}

// askForRoom asks a client for the address that was seen least recently.
func (t *Table) askForRoom(c *client, waits newcomer, now moment) {
	scope := scopeOf(waits.addr)
	b := t.leastSeen(c, scope)
	if b == nil || waits.tries >= maxRoomTries {
		t.counts.TooMany++
		return
	}
	waits.tries++
	answers := b.state != Tentative || b.asked > 0 || b.since+probing <= now
	t.leaveState(b)
	c.newcomers[scope] = waits
	b.state, b.room, b.begun = Testing, true, now
	if answers {
		t.ask(b, now)
	} else {
		b.next = b.since + probing // while it probes, it cannot answer
	}
	t.queue.Put(b)
}

// leastSeen is the address of a client that was seen least recently and may be taken from it; nil: there is none.
func (t *Table) leastSeen(c *client, scope int) (oldest *binding) {
	for _, b := range c.bindings {
		if b.assigned || b.state == Contested || scopeOf(b.addr) != scope {
			continue
		}
		if oldest == nil || t.lastHeard(b) < t.lastHeard(oldest) {
			oldest = b
		}
	}
	return oldest
}
