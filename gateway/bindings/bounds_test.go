// Tests of the bounds of a Table. A desk is a table with a clock (desk_test.go): run carries out steps, which are
// events such as probed or advertised and the actions that must follow.

package bindings

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// check fails when the table's parts disagree or a bound is broken.
func (d *desk) check() {
	d.Helper()
	if problem := d.problem(); problem != "" {
		d.Error(problem)
	}
}

// problem says where a table's parts disagree or a bound is broken.
func (t *Table) problem() string {
	tentative, tests, addrs, claims := 0, 0, 0, 0
	for _, c := range t.clients {
		answered := 0
		for _, b := range c.bindings {
			if t.bindings[b.addr] != b || b.owner != c {
				return fmt.Sprintf("%s of %s is bound elsewhere", b.addr, c.anchor)
			}
			answered += number(b.answered)
			tentative += number(b.stranger)
			tests += number(b.state == Testing && !b.room)
			ages := !b.assigned && c.anchor.Session == 0
			if _, contested := t.contests[b]; contested != (b.state == Contested) || b.Queued() != ages ||
				b.room && (b.state != Testing || !c.newcomers[scopeOf(b.addr)].addr.IsValid()) {
				return fmt.Sprintf("%s: %+v", b.addr, b)
			}
		}
		if len(c.bindings) == 0 || answered != c.answered || c.has(global) > MaxGlobal || c.has(linkLocal) > MaxLinkLocal {
			return fmt.Sprintf("%s: %+v", c.anchor, c)
		}
		addrs += len(c.bindings)
	}
	for a, n := range t.claims {
		if n < 1 || n > MaxContestsOfOne {
			return fmt.Sprintf("%s claims %d", a, n)
		}
		claims += n
	}
	if addrs != len(t.bindings) || addrs > t.rules.Most || tentative != t.counts.Tentative || tests != t.counts.Tests ||
		claims != len(t.contests) || claims > MaxContests || tests > MaxTests || tentative > MaxTentative {
		return fmt.Sprintf("%d addresses of clients, %d tentative, %d tested, %d claimed: %+v",
			addrs, tentative, tests, claims, t.Counts())
	}
	return ""
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// fill gives an anchor all its global addresses, a second each.
func (d *desk) fill(a Anchor) {
	for i := range MaxGlobal {
		d.Used(a, addrOf(i), d.now)
		d.Advertised(a, addrOf(i), d.now)
		d.now = d.now.Add(time.Second)
	}
	d.check()
	if n := d.clients[a].has(global); n != MaxGlobal {
		d.Fatalf("%d addresses", n)
	}
}

// TestTooMany: a client's seventeenth address takes the place of the one that was seen least recently and does not
// answer.
func TestTooMany(t *testing.T) {
	d := newDesk(t, Rules{Isolated: true})
	d.run(valid("fe80::2")) // it is the oldest, and makes no room for global ones
	d.fill(alice)
	d.run([]step{
		{probed(alice, "2001:db8::100"), "ask alice 2001:db8::"},
		{probed(alice, "2001:db8::200"), ""}, // one at a time
		{advertised(alice, "2001:db8::"), "ask alice 2001:db8::1"},
		{waited, "ask alice 2001:db8::1"},
		{waited, "ask alice 2001:db8::1"},
		{waited, "gone alice 2001:db8::1, forget alice 2001:db8::1, bound alice 2001:db8::100, ask alice 2001:db8::100"},
		{advertised(alice, "2001:db8::100"), "keep alice 2001:db8::100"},
		{used(alice, "2001:db8::200"), "ask alice 2001:db8::2"},
		{advertised(alice, "2001:db8::2"), "ask alice 2001:db8::3"},
		{used(alice, "2001:db8::3"), "ask alice 2001:db8::4"},
		{advertised(alice, "2001:db8::4"), ""}, // all are in use
		{assigned(alice, "2001:db8::300"), "gone alice 2001:db8::5, forget alice 2001:db8::5, bound alice 2001:db8::300"},
		{probed(alice, "fe80::1"), "bound alice fe80::1"},
	})
	if got := d.Counts(); got.TooMany != 2 || got.Replaced != 2 {
		t.Errorf("%+v", got)
	}
}

// TestTooManyWhileContested: an address that another one claims is asked about that first.
func TestTooManyWhileContested(t *testing.T) {
	d := newDesk(t, Rules{})
	d.fill(alice)
	d.run([]step{
		{used(bob, "2001:db8::"), "ask alice 2001:db8::"},
		{used(alice, "2001:db8::100"), "ask alice 2001:db8::1"},
		{passed(300 * ms), "ask alice 2001:db8::, ask alice 2001:db8::1"},
	})
}

// TestTooManyWhileItProbes: one that is still being probed is not asked before it can answer.
func TestTooManyWhileItProbes(t *testing.T) {
	d := newDesk(t, Rules{})
	for _, addr := range []string{"fe80::1", "fe80::2", "fe80::3", "fe80::4"} {
		d.run([]step{{probed(alice, addr), "bound alice " + addr}})
	}
	d.run([]step{
		{probed(alice, "fe80::5"), ""},
		{passed(probing - ms), ""},
	})
	d.now = d.now.Add(ms)
	if n := len(d.Advance(d.now)); n != 4 {
		t.Errorf("%d questions, want 4", n)
	}
	d.check()
}

// TestTooManyOfASession: a session's newer address takes the place of an older one at once.
func TestTooManyOfASession(t *testing.T) {
	d := newDesk(t, Rules{})
	d.fill(subscriber)
	d.run([]step{{used(subscriber, "2001:db8::100"), "gone subscriber 2001:db8::, forget subscriber 2001:db8::, " +
		"bound subscriber 2001:db8::100, keep subscriber 2001:db8::100"}})
}

// TestAssignedAreFull: an assigned address finds no room where all are assigned.
func TestAssignedAreFull(t *testing.T) {
	d := newDesk(t, Rules{Most: MaxGlobal + 1})
	for i := range MaxGlobal {
		if _, err := d.Assign(alice, addrOf(i), d.now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Assign(alice, addrOf(100), d.now); !errors.Is(err, ErrFull) {
		t.Errorf("a client's: %v", err)
	}
	if got := words(d.Probed(alice, addrOf(100), d.now)); got != "" {
		t.Errorf("%q for one that has all by assignment", got)
	}
	if _, err := d.Assign(bob, addrOf(100), d.now); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Assign(bob, addrOf(101), d.now); !errors.Is(err, ErrFull) {
		t.Errorf("the table's: %v", err)
	}
	if _, err := d.Assign(bob, addrOf(0), d.now); err != nil { // another's needs no room
		t.Error(err)
	}
	d.check()
}

// TestFlood: 100,000 probes, by one device and by as many, grow nothing and take nothing from others, which also go on
// getting new addresses.
func TestFlood(t *testing.T) {
	for name, from := range map[string]func(i int) Anchor{
		"one":  func(int) Anchor { return bob },
		"many": func(i int) Anchor { return anchorOf(1000 + i) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, Rules{Most: 4000})
			d.run(valid("2001:db8::1"))
			asked := 0
			for i := range 100_000 {
				if i%20 == 0 {
					d.now = d.now.Add(ms)
				}
				for _, a := range [][]Action{d.Probed(from(i), addrOf(1000+i), d.now), d.Advance(d.now)} {
					for _, one := range a {
						if one.Kind == Ask {
							asked++
						}
						if one.Anchor == alice {
							t.Fatalf("%s is told %v", alice, one)
						}
					}
				}
				if len(d.bindings) > 3000 {
					t.Fatalf("%d bindings", len(d.bindings))
				}
			}
			d.check()
			if owner, _ := d.Owner(netip.MustParseAddr("2001:db8::1")); owner != alice {
				t.Errorf("%s has alice's address", owner)
			}
			d.run([]step{{probed(alice, "2001:db8::2"), "bound alice 2001:db8::2"}})
			if name == "one" && asked > 100 {
				t.Errorf("%d questions to a single flooding device", asked)
			}
			for d.Counts().Bindings > 1 {
				waited(d)
			}
			t.Logf("%d questions; %+v", asked, d.Counts())
		})
	}
}

// TestShares: strangers leave room to anchors that have answered, and these to known ones.
func TestShares(t *testing.T) {
	d := newDesk(t, Rules{Most: 80, Known: func(a Anchor) bool { return a == alice }})
	answer := func(a Anchor, i int) {
		d.Used(a, addrOf(i), d.now)
		d.Advertised(a, addrOf(i), d.now)
	}
	for i := range 100 { // each stranger answers
		answer(anchorOf(1000+i), i)
	}
	if n := d.Counts().Bindings; n != 60 {
		t.Errorf("strangers have %d of 80", n)
	}
	for i := range 100 { // and then has another address
		answer(anchorOf(1000+i), 1000+i)
	}
	if n := d.Counts().Bindings; n != 70 {
		t.Errorf("those that have answered have %d of 80", n)
	}
	for i := range 12 {
		answer(alice, 2000+i)
	}
	if n := len(d.Of(alice)); n != 10 {
		t.Errorf("the known one has %d", n)
	}
	d.check()
}

// TestTentativeAreBounded: strangers that only probe have MaxTentative addresses at most, and known ones more.
func TestTentativeAreBounded(t *testing.T) {
	d := newDesk(t, Rules{Known: func(a Anchor) bool { return a == alice }})
	for i := range MaxTentative + 10 {
		d.Probed(anchorOf(1000+i), addrOf(i), d.now)
	}
	if got := d.Counts(); got.Tentative != MaxTentative || got.Full != 10 {
		t.Errorf("%+v", got)
	}
	if got := words(d.Probed(alice, addrOf(1_000_000), d.now)); got == "" {
		t.Error("a known one gets no address")
	}
	d.check()
}

// TestContestsAreBounded: one device claims few addresses at a time, and all of them MaxContests.
func TestContestsAreBounded(t *testing.T) {
	d := newDesk(t, Rules{})
	for i := range 2 * MaxContests {
		a := anchorOf(1000 + i)
		d.Used(a, addrOf(i), d.now)
		d.Advertised(a, addrOf(i), d.now)
	}
	d.now = d.now.Add(2 * fresh)
	asked := 0
	for i := range 2 * MaxContests {
		asked += len(d.Used(bob, addrOf(i), d.now))
	}
	if asked != MaxContestsOfOne {
		t.Errorf("one device had %d owners asked", asked)
	}
	for i := range 2 * MaxContests {
		asked += len(d.Used(anchorOf(100_000+i), addrOf(i), d.now))
	}
	if asked != MaxContests {
		t.Errorf("%d owners are asked", asked)
	}
	d.check()
	for i := range 2 * MaxContests { // all answer
		d.Advertised(anchorOf(1000+i), addrOf(i), d.now)
	}
	if got := d.Counts(); got.Contests != 0 || got.Moved != 0 || got.Taken != MaxContests {
		t.Errorf("%+v", got)
	}
	d.check()
}

// TestTestsAreBounded: idle addresses are asked after MaxTests at a time.
func TestTestsAreBounded(t *testing.T) {
	d := newDesk(t, Rules{})
	var saved []Saved
	for i := range MaxTests + 500 {
		saved = append(saved, Saved{addrOf(i), anchorOf(1000 + i)})
	}
	d.Restore(saved, d.now)
	d.now = d.now.Add(time.Hour)
	asked := 0
	for next, _ := d.Next(); !next.After(d.now); next, _ = d.Next() {
		n := len(d.Advance(d.now))
		if n > maxDue {
			t.Fatalf("%d questions at once", n)
		}
		asked += n
	}
	if asked != MaxTests || d.Counts().Tests != MaxTests {
		t.Errorf("%d were asked: %+v", asked, d.Counts())
	}
	d.check()
	for d.Counts().Bindings > 0 { // the others have their turn, and nobody answers
		waited(d)
	}
	if got := d.Counts(); got.Silent != uint64(len(saved)) || got.Tests != 0 {
		t.Errorf("%+v", got)
	}
}
