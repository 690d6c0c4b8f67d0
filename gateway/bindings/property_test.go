// A random test of a Table: hosts do anything in any order, and the rules that always hold are checked after each step.

package bindings

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hosts are anchors that share a table, and what the actions have told of it.
type hosts struct {
	*rapid.T
	table   *Table
	now     time.Time
	has     map[netip.Addr]map[Anchor]time.Time // who answers for an address, and from when on
	answers map[netip.Addr]bool                 // the owner has answered, and has not left
	bound   map[netip.Addr]Anchor               // by Bound and Gone
	kept    map[netip.Addr]Anchor               // by Keep and Forget
	ended   bool                                // the event takes addresses from owners that answer
}

const (
	manyAnchors = 4
	manyAddrs   = 40
	most        = 60
)

// TestOwnersKeepTheirAddresses: whatever anchors do, an address has one owner, no bound is broken, and an owner that
// answers keeps its address, unless its session ends or the address is assigned to another one.
func TestOwnersKeepTheirAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &hosts{T: t, now: started, has: map[netip.Addr]map[Anchor]time.Time{}, bound: map[netip.Addr]Anchor{},
			kept: map[netip.Addr]Anchor{}, answers: map[netip.Addr]bool{}}
		h.table = NewTable(Rules{MayUse: within, Most: most, Isolated: rapid.Bool().Draw(t, "isolated")}, h.now)
		for range rapid.IntRange(0, 120).Draw(t, "uses") { // fills clients, and the table
			h.use(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"probe":     h.probe,
			"use":       h.use,
			"advertise": h.advertise,
			"leave":     h.leave,
			"wait":      h.wait,
			"assign":    h.assign,
			"unassign":  h.unassign,
			"end":       h.end,
			"":          h.check,
		})
	})
}

// draw draws an anchor, of which the last is a session's, and an address, of which some are link-local.
func (h *hosts) draw(t *rapid.T) (Anchor, netip.Addr) {
	i := rapid.IntRange(1, manyAnchors).Draw(t, "anchor")
	a := anchorOf(i)
	if i == manyAnchors {
		a = subscriber
	}
	addr := addrOf(rapid.IntRange(1, manyAddrs).Draw(t, "address"))
	if b := addr.As16(); b[15]%5 == 0 {
		addr = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: b[15]})
	}
	return a, addr
}

// take has an anchor answer for an address from a time on.
func (h *hosts) take(a Anchor, addr netip.Addr, from time.Time) {
	if h.has[addr] == nil {
		h.has[addr] = map[Anchor]time.Time{}
	}
	if _, has := h.has[addr][a]; !has {
		h.has[addr][a] = from
	}
}

func (h *hosts) probe(t *rapid.T) {
	a, addr := h.draw(t)
	if rapid.Bool().Draw(t, "stays") {
		h.take(a, addr, h.now.Add(time.Second)) // a probe lasts 1 s
	}
	h.obey(h.table.Probed(a, addr, h.now))
}

func (h *hosts) use(t *rapid.T) {
	a, addr := h.draw(t)
	if rapid.Bool().Draw(t, "answers") {
		h.take(a, addr, h.now)
	}
	h.obey(h.table.Used(a, addr, h.now))
}

func (h *hosts) advertise(t *rapid.T) {
	a, addr := h.draw(t)
	h.obey(h.table.Advertised(a, addr, h.now))
}

func (h *hosts) leave(t *rapid.T) {
	a, addr := h.draw(t)
	delete(h.has[addr], a)
	if owner, _ := h.table.Owner(addr); owner == a {
		delete(h.answers, addr)
	}
}

func (h *hosts) wait(t *rapid.T) {
	pause := rapid.SampledFrom([]time.Duration{ms, 300 * ms, time.Second, 5 * time.Second, time.Minute, time.Hour})
	h.now = h.now.Add(pause.Draw(t, "pause"))
	for next, ok := h.table.Next(); ok && !next.After(h.now); next, ok = h.table.Next() {
		h.obey(h.table.Advance(next))
	}
}

func (h *hosts) assign(t *rapid.T) {
	a, addr := h.draw(t)
	before := h.table.Counts().Bindings
	h.ended = true // also one of its own may go to make room
	actions, err := h.table.Assign(a, addr, h.now)
	h.obey(actions)
	h.ended = false
	if err != nil && before < most && len(h.table.Of(a)) < MaxLinkLocal {
		t.Errorf("%v with %d bindings, %d of its own", err, before, len(h.table.Of(a)))
	}
	if owner, _ := h.table.Owner(addr); err == nil && owner != a {
		t.Errorf("%s has what is assigned to %s", owner, a)
	}
}

func (h *hosts) unassign(t *rapid.T) {
	a, addr := h.draw(t)
	h.ended = true
	h.obey(h.table.Unassign(a, addr, h.now))
	h.ended = false
}

func (h *hosts) end(t *rapid.T) {
	a, _ := h.draw(t)
	h.ended = true
	h.obey(h.table.End(a, h.now))
	h.ended = false
	if len(h.table.Of(a)) > 0 {
		t.Errorf("%s has addresses after its end", a)
	}
}

// obey carries out actions. Hosts answer at once for addresses that they have.
func (h *hosts) obey(actions []Action) {
	var asked []Action
	for _, a := range actions {
		owner, has := h.bound[a.Addr]
		switch a.Kind {
		case Bound:
			if has {
				h.Fatalf("%s is bound to %s while %s has it", a.Addr, a.Anchor, owner)
			}
			h.bound[a.Addr] = a.Anchor
		case Gone:
			if !has || owner != a.Anchor {
				h.Fatalf("%s is gone from %s, and was of %s", a.Addr, a.Anchor, owner)
			}
			delete(h.bound, a.Addr)
			if h.answers[a.Addr] && !h.ended && owner.Session == 0 {
				h.Fatalf("%s lost %s, for which it answers", owner, a.Addr)
			}
			delete(h.answers, a.Addr)
		case Keep:
			h.kept[a.Addr] = a.Anchor
		case Forget:
			delete(h.kept, a.Addr)
		case Ask:
			asked = append(asked, a)
		case Defend:
			if !has || owner == a.Anchor {
				h.Fatalf("%s is told that %s, which nobody else has, is taken", a.Anchor, a.Addr)
			}
		}
	}
	for _, a := range asked {
		if from, has := h.has[a.Addr][a.Anchor]; has && !from.After(h.now) {
			h.answers[a.Addr] = true
			h.obey(h.table.Advertised(a.Anchor, a.Addr, h.now))
		}
	}
}

func (h *hosts) check(t *rapid.T) {
	owners, kept := map[netip.Addr]Anchor{}, map[netip.Addr]Anchor{}
	for _, b := range h.table.List() {
		owners[b.Addr] = b.Anchor
	}
	for addr, b := range h.table.bindings {
		if b.kept {
			kept[addr] = b.owner.anchor
		}
	}
	if !maps.Equal(owners, h.bound) || !maps.Equal(kept, h.kept) {
		t.Fatalf("the table has %v, told were %v; kept are %v, told were %v", owners, h.bound, kept, h.kept)
	}
	if problem := h.table.problem(); problem != "" {
		t.Fatal(problem)
	}
}
