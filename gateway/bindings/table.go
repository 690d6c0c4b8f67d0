package bindings

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/due"
)

// Rules are what a Table asks others. The Table's methods call the functions, which must not call back. A Server calls
// them with its lock held: they take no lock that somebody holds while calling the Server.
type Rules struct {
	// MayUse reports whether an anchor may have a global address: it is within the network's present prefixes,
	// deprecated ones included, or in the prefix that this client has alone, and it is neither the gateway's own nor the
	// prefix's anycast address (RFC 4291, section 2.6.1). nil: no global address is bound unless it is assigned.
	MayUse func(Anchor, netip.Addr) bool
	// IsOwn reports whether a link-local address is the gateway's own, which is never bound. nil: none is.
	IsOwn func(netip.Addr) bool
	// Known reports whether an anchor is a client for another reason than that it sends, such as a lease or a session.
	// An eighth of the table is for known ones. nil: none is.
	Known func(Anchor) bool
	// LastSeen returns when the data path last took a packet from an address's owner; zero: never. nil: it is not known.
	LastSeen func(netip.Addr) time.Time
	// Isolated says that clients do not hear each other: the gateway answers probes for addresses of others.
	Isolated bool
	Idle     time.Duration // 0: DefaultIdle
	Most     int           // bindings; 0: DefaultMost
}

// ActionKind is what a Table's owner is to do.
type ActionKind uint8

// The kinds of actions.
const (
	Bound  ActionKind = iota + 1 // the anchor may use the address from now on
	Gone                         // the anchor may use the address no longer
	Ask                          // send the anchor's MAC address a solicitation for the address
	Defend                       // tell the anchor, which probes the address, that another host has it
	Keep                         // save the binding: it survives a restart
	Forget                       // save it no longer
)

// Action is what the Table's owner is to do, in the order in which they are returned: Gone comes before Bound for the
// same address.
type Action struct {
	Kind   ActionKind
	Anchor Anchor
	Addr   netip.Addr
}

// Counts are what a Table has refused and removed since NewTable, and what it has at the moment.
type Counts struct {
	Outside  uint64 // claims refused: the address is not of the network's prefixes, or is no unicast address
	Full     uint64 // claims refused: the table, or its part for strangers, is full
	TooMany  uint64 // claims refused: the client has all the addresses it may have, and answers for them
	Taken    uint64 // claims refused: the owner is there, or the address is assigned
	Busy     uint64 // claims of others' addresses that were not looked into: too many are
	Spoofed  uint64 // advertisements for others' addresses
	Moved    uint64 // addresses that went to another anchor because the owner did not answer
	Silent   uint64 // addresses removed because the owner did not answer
	Replaced uint64 // of these, to make room for a newer one of the client

	Bindings, Clients, Tentative, Contests, Tests int // at the moment
}

// Table has the bindings of a network. It is for one goroutine at a time. Times are those of one clock, which does not
// go backwards. The slice that its methods return is valid until the next call.
type Table struct {
	rules    Rules
	start    time.Time // moment 0
	bindings map[netip.Addr]*binding
	clients  map[Anchor]*client
	queue    due.Queue[*binding]
	contests map[*binding]contest
	claims   map[Anchor]int // contests by their claimant
	counts   Counts         // of what is kept here only: tentative ones of strangers, and tests
	out      []Action
}

// keptActions bounds the list of actions that is used again.
const keptActions = 1024

// moment is a time after a Table's start.
type moment = time.Duration

// client is an anchor that has an address.
type client struct {
	anchor   Anchor
	bindings []*binding
	answered int // of them, by an owner that has answered, or assigned
	// newcomers wait until one of the bindings has been asked whether it is still in use; invalid: none does. The first
	// is global, the second link-local.
	newcomers [2]newcomer
}

// newcomer is an address that waits for room.
type newcomer struct {
	addr  netip.Addr
	tries int // bindings that were asked for it
}

// binding is an address that an anchor has.
type binding struct {
	due.Place
	owner *client
	addr  netip.Addr
	since moment // the anchor has it
	begun moment // the state was entered
	heard moment // the owner was heard by neighbour discovery
	next  moment // when it is due, if it waits in the queue
	asked uint8  // questions in this state
	state State
	// answered: the owner has answered for it, or need not. assigned: it is of a lease or of RADIUS. room: it is asked for
	// a newcomer's sake. kept: it is saved. stranger: it counts as tentative.
	answered, assigned, room, kept, stranger bool
}

// Before implements due.Item.
func (b *binding) Before(other *binding) bool { return b.next < other.next }

// contest is a claim of an address that has an owner.
type contest struct {
	claimant Anchor
	probed   bool // the claimant probes the address and waits for an answer
}

// NewTable returns an empty table.
func NewTable(rules Rules, now time.Time) *Table {
	rules.Idle, rules.Most = cmp.Or(rules.Idle, DefaultIdle), cmp.Or(rules.Most, DefaultMost)
	return &Table{rules: rules, start: now, bindings: map[netip.Addr]*binding{}, clients: map[Anchor]*client{},
		contests: map[*binding]contest{}, claims: map[Anchor]int{}}
}

// begin makes a method's time a moment, and begins its list of actions.
func (t *Table) begin(now time.Time) moment {
	clear(t.out)
	if t.out = t.out[:0]; cap(t.out) > keptActions { // Restore's list has all clients
		t.out = nil
	}
	return now.Sub(t.start)
}

func (t *Table) emit(kind ActionKind, a Anchor, addr netip.Addr) {
	t.out = append(t.out, Action{kind, a, addr})
}

// Owner returns who has an address.
func (t *Table) Owner(addr netip.Addr) (Anchor, bool) {
	b := t.bindings[addr]
	if b == nil {
		return Anchor{}, false
	}
	return b.owner.anchor, true
}

// IsAsked reports whether an anchor is being asked for an address that it has.
func (t *Table) IsAsked(a Anchor, addr netip.Addr) bool {
	b := t.bindings[addr]
	return b != nil && b.owner.anchor == a && b.asked > 0
}

// HasAnswered reports whether an anchor has an address for which it has answered, or that is assigned to it.
func (t *Table) HasAnswered(a Anchor) bool {
	c := t.clients[a]
	return c != nil && c.answered > 0
}

// Of returns the addresses of an anchor, in the order in which it got them.
func (t *Table) Of(a Anchor) (addrs []netip.Addr) {
	if c := t.clients[a]; c != nil {
		for _, b := range c.bindings {
			addrs = append(addrs, b.addr)
		}
	}
	return addrs
}

// List returns all bindings, in no order.
func (t *Table) List() []Binding {
	all := make([]Binding, 0, len(t.bindings))
	for addr, b := range t.bindings {
		one := Binding{Addr: addr, Anchor: b.owner.anchor, State: b.state, Assigned: b.assigned,
			Since: t.start.Add(b.since), Heard: t.start.Add(b.heard)}
		if b.Queued() {
			one.Until = t.start.Add(b.next)
		}
		all = append(all, one)
	}
	return all
}

// Counts returns the present figures.
func (t *Table) Counts() Counts {
	counts := t.counts
	counts.Bindings, counts.Clients, counts.Contests = len(t.bindings), len(t.clients), len(t.contests)
	return counts
}

// add binds an address, which nobody has, to an anchor.
func (t *Table) add(a Anchor, addr netip.Addr, now moment) *binding {
	c := t.clients[a]
	if c == nil {
		c = &client{anchor: a}
		t.clients[a] = c
	}
	b := &binding{owner: c, addr: addr, since: now, begun: now, heard: now}
	c.bindings = append(c.bindings, b)
	t.bindings[addr] = b
	t.emit(Bound, a, addr)
	return b
}

// remove ends a binding. A newcomer that waits for its answer waits no longer.
func (t *Table) remove(b *binding) {
	t.leaveState(b)
	t.setAnswered(b, false)
	t.queue.Remove(b)
	c := b.owner
	for i, other := range c.bindings {
		if other == b {
			c.bindings = append(c.bindings[:i], c.bindings[i+1:]...)
			break
		}
	}
	if len(c.bindings) == 0 {
		delete(t.clients, c.anchor)
	}
	delete(t.bindings, b.addr)
	t.emit(Gone, c.anchor, b.addr)
	if b.kept {
		t.emit(Forget, c.anchor, b.addr)
	}
}

// setAnswered notes whether the owner has answered for a binding.
func (t *Table) setAnswered(b *binding, answered bool) {
	if b.answered == answered {
		return
	}
	b.answered = answered
	if answered {
		b.owner.answered++
	} else {
		b.owner.answered--
	}
}

// leaveState ends what belongs to a binding's state.
func (t *Table) leaveState(b *binding) {
	switch {
	case b.stranger:
		t.counts.Tentative--
	case b.state == Testing && !b.room:
		t.counts.Tests--
	}
	if b.room {
		b.owner.newcomers[scopeOf(b.addr)] = newcomer{}
	}
	if k, is := t.contests[b]; is {
		delete(t.contests, b)
		if t.claims[k.claimant]--; t.claims[k.claimant] == 0 {
			delete(t.claims, k.claimant)
		}
	}
	b.stranger, b.room, b.asked = false, false, 0
}

// setValid has an owner keep its address. Only what ages waits for a time.
func (t *Table) setValid(b *binding, now, next moment) {
	t.leaveState(b)
	t.setAnswered(b, true)
	b.state, b.begun, b.next = Valid, now, next
	if !b.assigned && b.owner.anchor.Session == 0 {
		t.queue.Put(b)
	} else {
		t.queue.Remove(b)
	}
	if !b.kept && !b.assigned {
		b.kept = true
		t.emit(Keep, b.owner.anchor, b.addr)
	}
}

// lastHeard is when the owner was last heard, by neighbour discovery or by the data path.
func (t *Table) lastHeard(b *binding) moment {
	if t.rules.LastSeen == nil {
		return b.heard
	}
	return max(b.heard, t.rules.LastSeen(b.addr).Sub(t.start))
}

func (t *Table) known(a Anchor) bool { return t.rules.Known != nil && t.rules.Known(a) }
