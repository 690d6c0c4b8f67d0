package prefixpool

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func clientOf(i int) Client {
	return Client{MAC: [6]byte{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}}
}

func newPool(t testing.TB, prefix string, most int) *Pool {
	t.Helper()
	p, err := New(netip.MustParsePrefix(prefix), []byte("a secret"), most)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEveryClientHasItsOwn: a pool of 256 gives 256 clients a /64 each, the same ones in another order of arrival where
// hashes do not meet, and none to one more while all are used.
func TestEveryClientHasItsOwn(t *testing.T) {
	p := newPool(t, "2001:db8:0:ff00::/56", 1000)
	owners := map[netip.Prefix]Client{}
	for i := range 256 {
		prefix, ok := p.Of(clientOf(i))
		if !ok || prefix.Bits() != 64 || !p.Prefix().Contains(prefix.Addr()) {
			t.Fatalf("client %d has %v, %v", i, prefix, ok)
		}
		if other, taken := owners[prefix]; taken {
			t.Fatalf("%s is of %x and of client %d", prefix, other, i)
		}
		owners[prefix] = clientOf(i)
		p.Used(clientOf(i), prefix.Addr().Next())
	}
	if prefix, ok := p.Of(clientOf(1000)); ok {
		t.Errorf("one more has %s", prefix)
	}
	for prefix, mac := range owners {
		if again, _ := p.Of(mac); again != prefix {
			t.Errorf("%x has %s, and had %s", mac, again, prefix)
		}
		if owner, ok := p.Owner(prefix.Addr().Next()); !ok || owner != mac {
			t.Errorf("%s is of %x, %v, not of %x", prefix, owner, ok, mac)
		}
	}
}

// TestAnotherDaemon: a client's addresses tell which /64 a former daemon gave it, although its hash points elsewhere,
// and a stranger's address tells nothing.
func TestAnotherDaemon(t *testing.T) {
	p := newPool(t, "2001:db8::/48", 1000)
	hashed, _ := newPool(t, "2001:db8::/48", 1000).Of(clientOf(1))
	kept := netip.MustParsePrefix("2001:db8:0:7::/64")
	if hashed == kept {
		t.Fatal("the hash points there")
	}
	p.Keep(clientOf(1), netip.MustParseAddr("2001:db8:0:7::1"))
	p.Keep(clientOf(2), netip.MustParseAddr("2001:db8:0:7::2"))
	p.Keep(clientOf(1), netip.MustParseAddr("2001:db8:0:8::1"))
	if got, _ := p.Of(clientOf(1)); got != kept {
		t.Errorf("it has %s, and had %s", got, kept)
	}
	if got, _ := p.Of(clientOf(2)); got == kept {
		t.Errorf("another client has %s too", got)
	}
	if owner, ok := p.Owner(netip.MustParseAddr("2001:db9::1")); ok {
		t.Errorf("an address outside is of %x", owner)
	}
}

// TestIdleMakeRoom: strangers that only ask take no client's /64 that uses addresses, and take those of the idle in the
// order in which they were idle.
func TestIdleMakeRoom(t *testing.T) {
	p := newPool(t, "2001:db8::/48", 4)
	first, _ := p.Of(clientOf(0))
	p.Used(clientOf(0), first.Addr().Next())
	second, _ := p.Of(clientOf(1))
	for i := range 100_000 {
		if _, ok := p.Of(clientOf(1000 + i)); !ok {
			t.Fatalf("stranger %d has none", i)
		}
	}
	if len(p.of) != 4 || len(p.owner) != 4 {
		t.Errorf("%d clients and %d parts, and there may be 4", len(p.of), len(p.owner))
	}
	if owner, ok := p.Owner(first.Addr()); !ok || owner != clientOf(0) {
		t.Error("a client that uses an address has lost its /64")
	}
	if _, ok := p.Owner(second.Addr()); ok {
		t.Error("an idle client kept its /64")
	}
	p.Unused(clientOf(0), first.Addr().Next())
	for i := range 4 {
		p.Of(clientOf(i + 1))
	}
	if _, ok := p.Owner(first.Addr()); ok {
		t.Error("a client without addresses kept its /64")
	}
}

// TestAnyOrder holds any order of calls against what must be true: no /64 has two clients, the books agree, and a
// client keeps its /64 as long as it uses an address of it.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPool(t, "2001:db8:0:fff0::/60", 12)
		using := map[Client]netip.Prefix{}
		for range 400 {
			mac := clientOf(r.IntN(20))
			switch held, used := using[mac]; {
			case used && r.IntN(2) == 0:
				p.Unused(mac, held.Addr())
				delete(using, mac)
			case !used:
				if prefix, ok := p.Of(mac); ok && r.IntN(2) == 0 {
					p.Used(mac, prefix.Addr())
					using[mac] = prefix
				}
			}
			if len(p.of) != len(p.owner) || len(p.of) > 12 || p.idle.Len() != len(p.of)-len(using) {
				t.Fatalf("seed %d: %d clients, %d parts, %d idle, %d using", seed, len(p.of), len(p.owner), p.idle.Len(),
					len(using))
			}
			for mac, prefix := range using {
				if owner, ok := p.Owner(prefix.Addr()); !ok || owner != mac {
					t.Fatalf("seed %d: %s is of %x, not of %x", seed, prefix, owner, mac)
				}
			}
		}
	}
}

// TestBadPools: what makes no pool is refused with the reason.
func TestBadPools(t *testing.T) {
	for _, s := range []string{"2001:db8::/64", "2001:db8::/72", "2001::/16", "10.0.0.0/8", "2001:db8::1/48"} {
		if _, err := New(netip.MustParsePrefix(s), nil, 1); err == nil {
			t.Errorf("%s makes a pool", s)
		}
	}
}
