// Tests of leases that a client is to have in place of others (Config.Wanted). The clients are played (wire).

package dhcp6

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// startWishing runs a server for whose clients there are wishes, and returns how to change them.
func startWishing(t *testing.T, edit func(*Prefixes)) (wish func(Kind, Wish)) {
	t.Helper()
	var wishes [Registered]atomic.Pointer[Wish]
	start(t, leasesFile(t), func(cfg *Config) {
		all := usualPrefixes()
		edit(&all)
		cfg.Prefixes = func() Prefixes { return all }
		cfg.Wanted = func(_ Client, kind Kind) (w Wish) {
			if wanted := wishes[kind].Load(); wanted != nil {
				w = *wanted
			}
			return w
		}
	})
	return func(kind Kind, w Wish) { wishes[kind].Store(&w) }
}

// TestWantedPrefixes: a client is delegated what it is to have, and what it had besides is taken from it; nobody gets
// what another has. What it is to have no more is taken from it too, although it asks for it, and another may have it.
func TestWantedPrefixes(t *testing.T) {
	w := newWire(t, newLAN(t))
	own := netip.PrefixFrom(parcels.Addr(), 64)
	had := netip.MustParsePrefix("2001:db8:1:90::/64") // asked for: which one it gets else hangs on a random secret
	wish := startWishing(t, func(*Prefixes) {})
	first, second := stationOf(1), stationOf(2)
	r, _ := w.ask(first, w.message(dhcpv6.MessageTypeRequest, first, iaPD(1, had)))
	if got := prefixesOf(r); !slices.Equal(got, []netip.Prefix{had}) {
		t.Fatalf("it has %v at first, want %s", got, had)
	}
	wish(Delegated, Wish{Prefixes: []netip.Prefix{own}})
	r, _ = w.ask(first, w.message(dhcpv6.MessageTypeSolicit, first, iaPD(1)))
	if got := prefixesOf(r); !slices.Equal(got, []netip.Prefix{own}) {
		t.Errorf("it is offered %v, want %s", got, own)
	}
	r, _ = w.ask(first, w.message(dhcpv6.MessageTypeRenew, first, iaPD(1, had)))
	if got := prefixesOf(r); !slices.Equal(got, []netip.Prefix{own}) || len(r.Options.OneIAPD().Options.Prefixes()) != 2 {
		t.Errorf("it has %v, want %s, and %s taken from it: %s", got, own, had, r.LongString(0))
	}
	r, _ = w.ask(second, w.message(dhcpv6.MessageTypeRequest, second, iaPD(1)))
	if ia := r.Options.OneIAPD(); ia.Options.Status().StatusCode != iana.StatusNoPrefixAvail || len(prefixesOf(r)) > 0 {
		t.Errorf("another client has %s", r.LongString(0))
	}
	wish(Delegated, Wish{})
	r, _ = w.ask(first, w.message(dhcpv6.MessageTypeRenew, first, iaPD(1, own, had)))
	if got := prefixesOf(r); !slices.Equal(got, []netip.Prefix{had}) {
		t.Errorf("it is to have %s no more, and has %v, want %s", own, got, had)
	}
	wish(Delegated, Wish{Prefixes: []netip.Prefix{own}})
	r, _ = w.ask(second, w.message(dhcpv6.MessageTypeRequest, second, iaPD(1)))
	if got := prefixesOf(r); !slices.Equal(got, []netip.Prefix{own}) {
		t.Errorf("another client has %v, want %s", got, own)
	}
}

// TestWantedAddress: the same for addresses.
func TestWantedAddress(t *testing.T) {
	w := newWire(t, newLAN(t))
	own := pooled.Addr().Next()
	wish := startWishing(t, func(*Prefixes) {})
	first, second := stationOf(1), stationOf(2)
	had := w.lease(first, 1)
	wish(Address, Wish{Prefixes: []netip.Prefix{netip.PrefixFrom(own, 128)}})
	r, _ := w.ask(first, w.message(dhcpv6.MessageTypeSolicit, first, iaNA(1)))
	if got := addrsOf(r); had == own || !slices.Equal(got, []netip.Addr{own}) {
		t.Errorf("it had %s, and is offered %v, want %s", had, got, own)
	}
	r, _ = w.ask(first, w.message(dhcpv6.MessageTypeRenew, first, iaNA(1, had)))
	if got := addrsOf(r); !slices.Equal(got, []netip.Addr{own}) || len(r.Options.OneIANA().Options.Addresses()) != 2 {
		t.Errorf("it has %v, want %s, and %s taken from it: %s", got, own, had, r.LongString(0))
	}
	r, _ = w.ask(second, w.message(dhcpv6.MessageTypeRequest, second, iaNA(1)))
	if ia := r.Options.OneIANA(); ia.Options.Status().StatusCode != iana.StatusNoAddrsAvail || len(addrsOf(r)) > 0 {
		t.Errorf("another client has %s", r.LongString(0))
	}
	wish(Address, Wish{})
	r, _ = w.ask(first, w.message(dhcpv6.MessageTypeRenew, first, iaNA(1, own)))
	if got := addrsOf(r); len(got) != 1 || got[0] == own {
		t.Errorf("it is to have %s no more, and has %v", own, got)
	}
	wish(Address, Wish{Prefixes: []netip.Prefix{netip.PrefixFrom(own, 128)}})
	r, _ = w.ask(second, w.message(dhcpv6.MessageTypeRequest, second, iaNA(1)))
	if got := addrsOf(r); !slices.Equal(got, []netip.Addr{own}) {
		t.Errorf("another client has %v, want %s", got, own)
	}
}

// TestNamedPools: of a pool with a name get clients something whose wish it is, and they get nothing of others.
func TestNamedPools(t *testing.T) {
	w := newWire(t, newLAN(t))
	named, part := netip.MustParsePrefix("2001:db8:7::/48"), netip.PrefixFrom(pooled.Addr(), 112)
	wish := startWishing(t, func(all *Prefixes) {
		all.Addresses[0].Named = true
		gold := pool(named)
		gold.Named = true
		all.Delegated = append(all.Delegated, gold)
	})
	st := stationOf(1)
	ask := func(kind dhcpv6.MessageType) (addrs []netip.Addr, prefixes []netip.Prefix) {
		r, _ := w.ask(st, w.message(kind, st, iaNA(1), iaPD(2)))
		return addrsOf(r), prefixesOf(r)
	}
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest} {
		if addrs, prefixes := ask(kind); len(addrs) > 0 || len(prefixes) != 1 || !parcels.Contains(prefixes[0].Addr()) {
			t.Errorf("%s: without a wish it gets %v and %v", kind, addrs, prefixes)
		}
	}
	wish(Address, Wish{Within: part})
	wish(Delegated, Wish{Within: named})
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest,
		dhcpv6.MessageTypeRenew} {
		addrs, prefixes := ask(kind)
		if len(addrs) != 1 || !part.Contains(addrs[0]) || len(prefixes) != 1 || !named.Contains(prefixes[0].Addr()) {
			t.Errorf("%s: with a wish it gets %v and %v", kind, addrs, prefixes)
		}
	}
	wish(Address, Wish{})
	wish(Delegated, Wish{})
	if addrs, prefixes := ask(dhcpv6.MessageTypeRenew); len(addrs) > 0 || len(prefixes) != 1 ||
		!parcels.Contains(prefixes[0].Addr()) {
		t.Errorf("without a wish again it has %v and %v", addrs, prefixes)
	}
}
