// Helpers for tests of a Table: a desk is a table with a clock, and run carries out steps, each an event and the
// actions that must follow from it.

package bindings

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

var (
	prefix  = netip.MustParsePrefix("2001:db8::/64")
	started = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	alice, bob = anchorOf(1), anchorOf(2)
	subscriber = Anchor{MAC: MAC{2, 0, 0, 0, 0, 3}, Session: 7}
)

func anchorOf(i int) Anchor {
	return Anchor{MAC: MAC{2, byte(i >> 24), 0, byte(i >> 16), byte(i >> 8), byte(i)}}
}

// within is the rule of a network with one prefix.
func within(_ Anchor, addr netip.Addr) bool { return prefix.Contains(addr) }

// addrOf is the i-th address of the prefix.
func addrOf(i int) netip.Addr {
	b := prefix.Addr().As16()
	b[12], b[13], b[14], b[15] = byte(i>>24), byte(i>>16), byte(i>>8), byte(i)
	return netip.AddrFrom16(b)
}

// desk is a table with its present time, which the test moves on.
type desk struct {
	*testing.T
	*Table
	now time.Time
}

func newDesk(t *testing.T, rules Rules) *desk {
	if rules.MayUse == nil {
		rules.MayUse = within
	}
	return &desk{t, NewTable(rules, started), started}
}

// event is what happens to a table.
type event func(d *desk) []Action

// probed, used, advertised, assigned and unassigned are the events that concern an anchor and an address: each calls
// the Table's method of that name (Assign and Unassign for the last two).
func probed(a Anchor, addr string) event {
	return func(d *desk) []Action { return d.Probed(a, netip.MustParseAddr(addr), d.now) }
}

func used(a Anchor, addr string) event {
	return func(d *desk) []Action { return d.Used(a, netip.MustParseAddr(addr), d.now) }
}

func advertised(a Anchor, addr string) event {
	return func(d *desk) []Action { return d.Advertised(a, netip.MustParseAddr(addr), d.now) }
}

func assigned(a Anchor, addr string) event {
	return func(d *desk) []Action {
		actions, err := d.Assign(a, netip.MustParseAddr(addr), d.now)
		if err != nil {
			d.Error(err)
		}
		return actions
	}
}

func unassigned(a Anchor, addr string) event {
	return func(d *desk) []Action { return d.Unassign(a, netip.MustParseAddr(addr), d.now) }
}

func ended(a Anchor) event { return func(d *desk) []Action { return d.End(a, d.now) } }

// passed lets a time pass, at the end of which the table does what is due.
func passed(pause time.Duration) event {
	return func(d *desk) []Action {
		d.now = d.now.Add(pause)
		return d.Advance(d.now)
	}
}

// waited lets time pass until something is done.
func waited(d *desk) []Action {
	for {
		next, ok := d.Next()
		if !ok {
			d.Fatal("nothing is due")
		}
		d.now = next
		if done := d.Advance(d.now); len(done) > 0 {
			return done
		}
	}
}

// step is an event and the actions that it has.
type step struct {
	event event
	want  string // "bound alice 2001:db8::1, ask …"
}

func words(actions []Action) string {
	names := map[ActionKind]string{
		Bound: "bound", Gone: "gone", Ask: "ask", Defend: "defend", Keep: "keep", Forget: "forget"}
	var all []string
	for _, a := range actions {
		who := map[Anchor]string{alice: "alice", bob: "bob", subscriber: "subscriber"}[a.Anchor]
		all = append(all, fmt.Sprintf("%s %s %s", names[a.Kind], who, a.Addr))
	}
	return strings.Join(all, ", ")
}

func (d *desk) run(steps []step) {
	d.Helper()
	for i, s := range steps {
		if got := words(s.event(d)); got != s.want {
			d.Errorf("step %d: %q, want %q", i+1, got, s.want)
		}
		d.check()
	}
}

// valid are the steps after which alice has an address.
func valid(addr string) []step {
	return []step{
		{probed(alice, addr), "bound alice " + addr},
		{waited, "ask alice " + addr},
		{advertised(alice, addr), "keep alice " + addr},
	}
}
