// Tests of prefixes that a RADIUS server names. newPool makes a pool, and clientOf(i) is client i (prefixpool_test.go).

package prefixpool

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestGiven: a client has what a server gives it beside its own /64, and after it was taken back as long as it has
// addresses of it. Nobody is given what another client uses. Long: the steps of one run, each of which needs the state
// that the one before left.
func TestGiven(t *testing.T) {
	p := newPool(t, "2001:db8:0:ff00::/56", 100)
	own, _ := p.Of(clientOf(1))
	given := netip.MustParsePrefix("2001:db8:0:ffaa::/64")
	if own == given {
		t.Fatal("the hash points there")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Give(clientOf(1), given))
	must(p.Give(clientOf(1), given)) // to its next session
	p.Used(clientOf(1), given.Addr().Next())
	want := []Held{{own, true, false, false}, {given, false, true, true}}
	if got := p.Held(clientOf(1)); !slices.Equal(got, want) {
		t.Errorf("it has %v", got)
	}
	refused := func(prefix netip.Prefix, why string) {
		t.Helper()
		if err := p.Give(clientOf(2), prefix); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s is given to another client: %v", prefix, err)
		}
	}
	refused(given, "another client has "+given.String())
	p.TakeBack(clientOf(1), given)
	refused(given, "another client has")
	p.TakeBack(clientOf(1), given)
	refused(given, "another client has") // it has an address of it
	p.Unused(clientOf(1), given.Addr().Next())
	must(p.Give(clientOf(2), given))
	must(p.Give(clientOf(2), own)) // of which its client has no address
	if again, ok := p.Of(clientOf(1)); !ok || again == own {
		t.Errorf("the first has %s, %v", again, ok)
	}
	p.Used(clientOf(2), given.Addr().Next())
	p.Leave(clientOf(2), given) // given still
	if owner, ok := p.Owner(given.Addr()); !ok || owner != clientOf(2) {
		t.Errorf("what is given has left its client for %x, %v", owner, ok)
	}
	p.TakeBack(clientOf(2), given)
	p.Leave(clientOf(2), given)
	must(p.Give(clientOf(4), given))
	second, _ := p.Of(clientOf(1))
	p.Used(clientOf(1), second.Addr().Next())
	refused(second, "another client has")
	p.Leave(clientOf(1), second)
	must(p.Give(clientOf(2), second))
	refused(netip.MustParsePrefix("2001:db8:0:fe00::/64"), "is no /64 of")
	refused(netip.MustParsePrefix("2001:db8:0:ffbb::/72"), "is no /64 of")
	first, ok := p.GiveAny(clientOf(3))
	again, ok2 := p.GiveAny(clientOf(3))
	if !ok || !ok2 || first != again {
		t.Errorf("of the pool it is given %s and %s", first, again)
	}
}

// TestGivenInAnyOrder holds any order of calls against what must be true: no /64 has two clients, a client keeps what
// it is given or uses, and nothing is left once all is taken back and unused. Long: the kinds of calls, and what is
// true.
func TestGivenInAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newPool(t, "2001:db8:0:fff0::/60", 12)
		type use struct {
			client Client
			prefix netip.Prefix
		}
		given, used := map[use]int{}, map[use]int{}
		for range 600 {
			one := use{clientOf(r.IntN(12)), p.at(uint64(r.IntN(16)))}
			switch r.IntN(6) {
			case 0:
				if p.Give(one.client, one.prefix) == nil {
					given[one]++
				}
			case 1:
				if prefix, ok := p.GiveAny(one.client); ok {
					given[use{one.client, prefix}]++
				}
			case 2:
				p.Of(one.client)
			case 3:
				if owner, ok := p.Owner(one.prefix.Addr()); ok && owner == one.client {
					p.Used(one.client, one.prefix.Addr())
					used[one]++
				}
			case 4:
				for one := range given {
					p.TakeBack(one.client, one.prefix)
					if given[one]--; given[one] == 0 {
						delete(given, one)
					}
					break
				}
			case 5:
				for one := range used {
					p.Unused(one.client, one.prefix.Addr())
					if used[one]--; used[one] == 0 {
						delete(used, one)
					}
					break
				}
			}
			for _, set := range []map[use]int{given, used} {
				for one := range set {
					if owner, ok := p.Owner(one.prefix.Addr()); !ok || owner != one.client {
						t.Fatalf("seed %d: %s is of %x, not of %x", seed, one.prefix, owner, one.client)
					}
				}
			}
			if len(p.owner) > 16 || len(p.of) > 12 {
				t.Fatalf("seed %d: %d parts, %d by a hash", seed, len(p.owner), len(p.of))
			}
		}
		for one, n := range given {
			for range n {
				p.TakeBack(one.client, one.prefix)
			}
		}
		for one, n := range used {
			for range n {
				p.Unused(one.client, one.prefix.Addr())
			}
		}
		if len(p.given) != 0 || len(p.owner) != len(p.of) || p.idle.Len() != len(p.of) {
			t.Fatalf("seed %d: %d clients have given ones, %d parts, %d by a hash, %d idle", seed, len(p.given), len(p.owner),
				len(p.of), p.idle.Len())
		}
	}
}
