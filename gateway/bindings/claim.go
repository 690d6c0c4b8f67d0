// What the Table does when an anchor claims an address: binds it, hears its owner, or lets claimant and owner contest
// it.

package bindings

import (
	"net/netip"
	"time"
)

// claim is how an anchor shows that it wants an address or has it.
type claim uint8

const (
	probe     claim = iota // a solicitation from the unspecified address (duplicate address detection)
	use                    // a packet from the address
	advertise              // an advertisement for the address
)

// The scopes of addresses.
const (
	global = iota
	linkLocal
)

func scopeOf(addr netip.Addr) int {
	if addr.IsLinkLocalUnicast() {
		return linkLocal
	}
	return global
}

// limits are how many addresses a client has of each scope.
var limits = [...]int{global: MaxGlobal, linkLocal: MaxLinkLocal}

// Probed is told that an anchor probes whether an address is free (RFC 4862, section 5.4.2).
func (t *Table) Probed(a Anchor, addr netip.Addr, now time.Time) []Action {
	t.claim(a, addr, probe, t.begin(now))
	return t.out
}

// Used is told that an anchor sends from an address: a solicitation by Ethernet, or a packet that the data path took
// for no client's.
func (t *Table) Used(a Anchor, addr netip.Addr, now time.Time) []Action {
	t.claim(a, addr, use, t.begin(now))
	return t.out
}

// Advertised is told that an anchor says it has an address.
func (t *Table) Advertised(a Anchor, addr netip.Addr, now time.Time) []Action {
	t.claim(a, addr, advertise, t.begin(now))
	return t.out
}

func (t *Table) claim(a Anchor, addr netip.Addr, by claim, now moment) {
	b := t.bindings[addr]
	switch {
	case b == nil && !t.acceptable(a, addr):
		t.counts.Outside++
	case b == nil:
		t.bind(a, addr, by, now)
	case b.owner.anchor == a:
		t.hear(b, by, now)
	default:
		t.contest(b, a, by, now)
	}
}

// acceptable reports whether an anchor may claim an address. A PPPoE session is a link of its own, so its client's
// link-local addresses are not bound in the network's table.
func (t *Table) acceptable(a Anchor, addr netip.Addr) bool {
	if !isUnicast(addr) {
		return false
	}
	if addr.IsLinkLocalUnicast() {
		return a.Session == 0 && (t.rules.IsOwn == nil || !t.rules.IsOwn(addr))
	}
	return t.rules.MayUse != nil && t.rules.MayUse(a, addr)
}

// isUnicast reports whether a host can have an address.
func isUnicast(addr netip.Addr) bool {
	return addr.Is6() && !addr.Is4In6() && addr.Zone() == "" && (addr.IsGlobalUnicast() || addr.IsLinkLocalUnicast())
}

// bind gives an anchor an address that nobody has, if there is room. It reports whether there was.
func (t *Table) bind(a Anchor, addr netip.Addr, by claim, now moment) bool {
	known := a.Session != 0 || t.known(a)
	stranger := !known && !t.HasAnswered(a)
	if len(t.bindings) >= t.share(known, stranger) || stranger && t.counts.Tentative >= MaxTentative {
		t.counts.Full++
		return false
	}
	if c := t.clients[a]; c != nil && c.has(scopeOf(addr)) >= limits[scopeOf(addr)] && !t.makeRoom(c, addr, now) {
		return false
	}
	b := t.add(a, addr, now)
	if a.Session != 0 { // the session shows that its client is there
		t.setValid(b, now, 0)
		return true
	}
	b.state, b.next, b.stranger = Tentative, now, stranger
	if stranger {
		t.counts.Tentative++
	}
	if by == probe {
		b.next = now + probing
	} else {
		t.ask(b, now)
	}
	t.queue.Put(b)
	return true
}

// share is how many bindings there may be before an anchor gets no more: what strangers make up leaves an eighth of the
// table to those that have answered, and these leave an eighth to known ones.
func (t *Table) share(known, stranger bool) int {
	switch {
	case known:
		return t.rules.Most
	case stranger:
		return t.rules.Most - t.rules.Most/4
	}
	return t.rules.Most - t.rules.Most/8
}

// has is how many addresses of a scope a client has.
func (c *client) has(scope int) (n int) {
	for _, b := range c.bindings {
		if scopeOf(b.addr) == scope {
			n++
		}
	}
	return n
}

// hear notes that an owner claims its own address.
func (t *Table) hear(b *binding, by claim, now moment) {
	if by == probe && !b.answered {
		return // it goes on probing
	}
	b.heard = now
	if b.state != Valid && (b.answered || by == advertise && b.asked > 0) {
		t.keep(b, now)
	}
}

// keep ends the question to an owner that is there: its address stays, whoever claims it or waits for it.
func (t *Table) keep(b *binding, now moment) {
	claim, contested := t.contests[b]
	waits := newcomer{}
	if b.room {
		waits = b.owner.newcomers[scopeOf(b.addr)]
	}
	t.setValid(b, now, now+t.rules.Idle)
	if contested {
		t.refuse(claim, b.addr)
	}
	if waits.addr.IsValid() {
		t.askForRoom(b.owner, waits, now)
	}
}

// refuse tells a claimant that the address has an owner, where the claimant cannot hear that from the owner itself.
func (t *Table) refuse(k contest, addr netip.Addr) {
	t.counts.Taken++
	if k.probed && t.rules.Isolated {
		t.emit(Defend, k.claimant, addr)
	}
}

// contest looks into a claim of an address that another anchor has.
func (t *Table) contest(b *binding, a Anchor, by claim, now moment) {
	k := contest{a, by == probe}
	switch {
	case by == advertise && b.answered:
		t.counts.Spoofed++
	case b.assigned || b.owner.anchor.Session != 0 || b.answered && now-t.lastHeard(b) < fresh:
		t.refuse(k, b.addr)
	case !t.acceptable(a, b.addr):
		t.counts.Outside++
	case b.state == Contested:
		if old := t.contests[b]; old.claimant == a && k.probed {
			t.contests[b] = k
		} else if old.claimant != a {
			t.counts.Busy++
		}
	case len(t.contests) >= MaxContests || t.claims[a] >= MaxContestsOfOne:
		t.counts.Busy++
	default:
		t.leaveState(b)
		t.contests[b] = k
		t.claims[a]++
		b.state, b.begun = Contested, now
		if !b.answered && b.since+probing > now {
			b.next = b.since + probing // while it probes, it cannot answer
		} else {
			t.ask(b, now)
		}
		t.queue.Put(b)
	}
}
