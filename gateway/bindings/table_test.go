// Tests of a Table: for each transition of its states, a list of steps. A step is an event and the actions that must
// follow (desk_test.go).

package bindings

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestTransitions has each transition of the states. Long: one case a transition.
func TestTransitions(t *testing.T) {
	const one, two = "2001:db8::1", "fe80::1"
	isolated := Rules{Isolated: true}
	for _, c := range []struct {
		name  string
		rules Rules
		steps []step
		state State // of the address one at the end; 0: nobody has it
		owner Anchor
	}{
		{"a probe makes it tentative", Rules{}, []step{{probed(alice, one), "bound alice " + one}}, Tentative, alice},
		{"use makes it tentative", Rules{}, []step{{used(alice, one), "bound alice " + one + ", ask alice " + one}},
			Tentative, alice},
		{"an answer makes it valid", Rules{}, valid(one), Valid, alice},
		{"its advertisement before it was asked does not", Rules{}, []step{
			{probed(alice, one), "bound alice " + one},
			{advertised(alice, one), ""},
		}, Tentative, alice},
		{"more probes do not", Rules{}, []step{
			{probed(alice, one), "bound alice " + one},
			{waited, "ask alice " + one},
			{probed(alice, one), ""},
		}, Tentative, alice},
		{"a tentative one without an answer ends", Rules{}, []step{
			{probed(alice, one), "bound alice " + one},
			{passed(probing - ms), ""},
			{passed(ms), "ask alice " + one},
			{passed(300 * ms), "ask alice " + one},
			{passed(700 * ms), "ask alice " + one},
			{passed(999 * ms), ""},
			{passed(ms), "gone alice " + one},
		}, 0, Anchor{}},
		{"an idle one is asked and answers", Rules{}, append(valid(one),
			step{passed(DefaultIdle - ms), ""},
			step{passed(ms), "ask alice " + one},
			step{advertised(alice, one), ""},
		), Valid, alice},
		{"an idle one is asked and sends", Rules{}, append(valid(one),
			step{waited, "ask alice " + one},
			step{used(alice, one), ""},
		), Valid, alice},
		{"an idle one is asked", Rules{}, append(valid(one), step{waited, "ask alice " + one}), Testing, alice},
		{"an idle one without an answer ends", Rules{}, append(valid(one),
			step{waited, "ask alice " + one},
			step{passed(time.Second), "ask alice " + one},
			step{passed(10 * time.Second), "ask alice " + one},
			step{passed(time.Minute - ms), ""},
			step{passed(ms), "gone alice " + one + ", forget alice " + one},
		), 0, Anchor{}},
		{"a probe contests", Rules{}, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
		), Contested, alice},
		{"use contests", Rules{}, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{used(bob, one), "ask alice " + one},
		), Contested, alice},
		{"an advertisement does not", Rules{}, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{advertised(bob, one), ""},
		), Valid, alice},
		{"an owner that was just heard need not be asked", isolated, append(valid(one),
			step{passed(fresh - ms), ""},
			step{probed(bob, one), "defend bob " + one},
		), Valid, alice},
		{"the owner answers", Rules{}, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
			step{advertised(alice, one), ""},
		), Valid, alice},
		{"the owner answers where clients do not hear each other", isolated, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
			step{advertised(alice, one), "defend bob " + one},
		), Valid, alice},
		{"a claimant that uses the address is not told", isolated, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{used(bob, one), "ask alice " + one},
			step{advertised(alice, one), ""},
		), Valid, alice},
		{"a claimant that uses the address and then probes it is told", isolated, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{used(bob, one), "ask alice " + one},
			step{probed(bob, one), ""},
			step{advertised(alice, one), "defend bob " + one},
		), Valid, alice},
		{"the owner has gone", Rules{}, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
			step{passed(300 * ms), "ask alice " + one},
			step{passed(700 * ms), "ask alice " + one},
			step{passed(time.Second), "gone alice " + one + ", forget alice " + one + ", bound bob " + one + ", ask bob " + one},
			step{advertised(bob, one), "keep bob " + one},
		), Valid, bob},
		{"an idle one that is asked is claimed", Rules{}, append(valid(one),
			step{waited, "ask alice " + one},
			step{used(bob, one), "ask alice " + one},
			step{passed(300 * ms), "ask alice " + one},
		), Contested, alice},
		{"a tentative one is claimed, and its owner answers", Rules{}, []step{
			{probed(alice, one), "bound alice " + one},
			{advertised(bob, one), ""},
			{passed(probing - ms), ""},
			{passed(ms), "ask alice " + one},
			{advertised(alice, one), "keep alice " + one},
		}, Valid, alice},
		{"a tentative one is claimed, and its owner gave it up", Rules{}, []step{
			{probed(alice, one), "bound alice " + one},
			{advertised(bob, one), ""},
			{waited, "ask alice " + one},
			{waited, "ask alice " + one},
			{waited, "ask alice " + one},
			{waited, "gone alice " + one + ", bound bob " + one + ", ask bob " + one},
		}, Tentative, bob},
		{"an assigned one", isolated, []step{
			{assigned(alice, one), "bound alice " + one},
			{passed(24 * time.Hour), ""},
			{probed(bob, one), "defend bob " + one},
			{used(bob, one), ""},
			{advertised(bob, one), ""},
		}, Valid, alice},
		{"assigned to another", Rules{}, append(valid(one),
			step{assigned(bob, one), "gone alice " + one + ", forget alice " + one + ", bound bob " + one},
		), Valid, bob},
		{"assigned to another while it is contested", isolated, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
			step{assigned(bob, one), "gone alice " + one + ", forget alice " + one + ", bound bob " + one},
		), Valid, bob},
		{"assigned to its owner while it is contested", isolated, append(valid(one),
			step{passed(2 * time.Second), ""},
			step{probed(bob, one), "ask alice " + one},
			step{assigned(alice, one), "defend bob " + one + ", forget alice " + one},
			step{passed(24 * time.Hour), ""},
		), Valid, alice},
		{"assigned no longer", Rules{}, []step{
			{assigned(alice, one), "bound alice " + one},
			{unassigned(bob, one), ""},
			{unassigned(alice, one), "gone alice " + one},
		}, 0, Anchor{}},
		{"what is not assigned stays", Rules{}, append(valid(one), step{unassigned(alice, one), ""}), Valid, alice},
		{"a session's", isolated, []step{
			{used(subscriber, one), "bound subscriber " + one + ", keep subscriber " + one},
			{passed(24 * time.Hour), ""},
			{probed(bob, one), "defend bob " + one},
			{used(subscriber, two), ""},
			{ended(subscriber), "gone subscriber " + one + ", forget subscriber " + one},
		}, 0, Anchor{}},
		{"a client's end", Rules{}, append(valid(one),
			step{used(alice, two), "bound alice " + two + ", ask alice " + two},
			step{ended(alice), "gone alice " + two + ", gone alice " + one + ", forget alice " + one},
			step{ended(alice), ""},
		), 0, Anchor{}},
		{"known ones need no answer if they send", Rules{
			Known:    func(a Anchor) bool { return a == alice },
			LastSeen: func(netip.Addr) time.Time { return started.Add(probing + ms) },
		}, []step{
			{probed(alice, one), "bound alice " + one},
			{waited, "ask alice " + one},
			{waited, "keep alice " + one},
		}, Valid, alice},
		{"unknown ones do", Rules{LastSeen: func(netip.Addr) time.Time { return started.Add(probing + ms) }}, []step{
			{probed(alice, one), "bound alice " + one},
			{waited, "ask alice " + one},
			{waited, "ask alice " + one},
			{waited, "ask alice " + one},
			{waited, "gone alice " + one},
		}, 0, Anchor{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, c.rules)
			d.run(c.steps)
			b := Binding{}
			for _, l := range d.List() {
				if l.Addr == netip.MustParseAddr(one) {
					b = l
				}
			}
			if b.State != c.state || b.Anchor != c.owner {
				t.Errorf("%s of %s, want %s of %s", b.State, b.Anchor, c.state, c.owner)
			}
		})
	}
}

// TestOutside: addresses that nobody may bind.
func TestOutside(t *testing.T) {
	own := netip.MustParseAddr("fe80::ffff")
	d := newDesk(t, Rules{IsOwn: func(addr netip.Addr) bool { return addr == own }})
	bad := []string{"::", "::1", "ff02::1", "2001:db8:1::1", "::ffff:10.1.0.1", "10.1.0.1", "fe80::ffff", "fe80::1%lan0"}
	for _, addr := range bad {
		d.run([]step{{probed(alice, addr), ""}, {used(alice, addr), ""}, {advertised(alice, addr), ""}})
	}
	if got := d.Counts(); got.Outside != uint64(3*len(bad)) || got.Bindings != 0 {
		t.Errorf("%+v", got)
	}
	for _, addr := range []string{"::", "ff02::1", "10.1.0.1"} {
		if _, err := d.Assign(alice, netip.MustParseAddr(addr), d.now); err == nil || errors.Is(err, ErrFull) {
			t.Errorf("assigning %s: %v", addr, err)
		}
	}
}

// TestDataPathHears: what the data path takes from an owner counts.
func TestDataPathHears(t *testing.T) {
	seen := started
	d := newDesk(t, Rules{LastSeen: func(netip.Addr) time.Time { return seen }})
	d.run(valid("2001:db8::1"))
	seen = d.now.Add(4 * time.Minute)
	d.run([]step{
		{passed(5 * time.Minute), ""},
		{passed(4*time.Minute - ms), ""},
		{passed(ms), "ask alice 2001:db8::1"},
	})
	seen = d.now.Add(ms)
	d.run([]step{{passed(time.Second), ""}, {passed(5*time.Minute - time.Second), ""}})
	if got := d.List()[0].State; got != Valid {
		t.Errorf("%s after a packet of its owner", got)
	}
	d.now = d.now.Add(time.Minute)
	seen = d.now.Add(-fresh + ms)
	d.run([]step{{used(bob, "2001:db8::1"), ""}})
	seen = d.now.Add(-fresh)
	d.run([]step{{used(bob, "2001:db8::1"), "ask alice 2001:db8::1"}})
	seen = d.now.Add(ms)
	d.run([]step{{passed(300 * ms), ""}})
	if owner, _ := d.Owner(netip.MustParseAddr("2001:db8::1")); owner != alice {
		t.Errorf("%s has it after a packet of alice's", owner)
	}
}

// TestRecheck: when prefixes change, what is outside ends, unless it is assigned.
func TestRecheck(t *testing.T) {
	mine := prefix
	d := newDesk(t, Rules{MayUse: func(_ Anchor, addr netip.Addr) bool { return mine.Contains(addr) }})
	d.run(append(valid("2001:db8::1"), step{assigned(bob, "2001:db8::2"), "bound bob 2001:db8::2"},
		step{probed(bob, "fe80::2"), "bound bob fe80::2"}))
	mine = netip.MustParsePrefix("2001:db8:1::/64")
	d.run([]step{{func(d *desk) []Action { return d.Recheck(d.now) }, "gone alice 2001:db8::1, forget alice 2001:db8::1"}})
	if d.Counts().Bindings != 2 {
		t.Errorf("%+v", d.List())
	}
}

// TestRestore: restored bindings are trusted, and asked after one after the other.
func TestRestore(t *testing.T) {
	d := newDesk(t, Rules{MayUse: func(Anchor, netip.Addr) bool { return false }, Most: 21})
	saved := []Saved{{netip.MustParseAddr("ff02::1"), alice}}
	for i := range 30 {
		saved = append(saved, Saved{addrOf(i), anchorOf(1 + i/18)})
	}
	bound := 0
	var forgotten []netip.Addr
	for _, a := range d.Restore(append(saved, saved[3]), d.now) {
		switch a.Kind {
		case Bound:
			bound++
		case Forget:
			forgotten = append(forgotten, a.Addr)
		default:
			t.Errorf("%v", a)
		}
	}
	d.check()
	// The group, two of alice's eighteen, and those of bob that find no room: 12 of 30 are his, 5 fit.
	if bound != 21 || len(forgotten) != 10 || slices.Contains(forgotten, addrOf(2)) {
		t.Errorf("%d are bound, forgotten %v", bound, forgotten)
	}
	d.run([]step{{passed(restoreAfter - ms), ""}})
	asked := 0
	for range 50 {
		d.now = d.now.Add(restoreEach)
		n := len(d.Advance(d.now))
		if n > 1 {
			t.Errorf("%d questions at once", n)
		}
		asked += n
	}
	if asked != 21 {
		t.Errorf("%d were asked, want 21", asked)
	}
}
