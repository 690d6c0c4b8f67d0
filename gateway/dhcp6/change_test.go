package dhcp6

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

var (
	newOnLink  = netip.MustParsePrefix("2001:db8:2:1::/64")
	newParcels = netip.MustParsePrefix("2001:db8:2:80::/57")
)

// TestPrefixChange: one RENEW takes the former prefix from its client and gives it the new one. Long: the steps of one
// change.
func TestPrefixChange(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	first, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1), iaPD(2)))
	addr, prefix := addrsOf(first)[0], prefixesOf(first)[0]
	confirm := func() iana.StatusCode {
		r, _ := w.ask(st, w.message(dhcpv6.MessageTypeConfirm, st, iaNA(1, addr)))
		return r.Options.Status().StatusCode
	}
	renew := func() *dhcpv6.Message {
		r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRenew, st, iaNA(1, addr), iaPD(2, prefix)))
		return r
	}
	// Deprecated: the former prefix is still valid, and not preferred.
	old, oldParcels := Pool{Prefix: pooled, Valid: 10 * time.Minute}, Pool{Prefix: parcels, Valid: 10 * time.Minute}
	both := Prefixes{
		OnLink:    []netip.Prefix{onLink, newOnLink},
		Addresses: []Pool{old, pool(newOnLink)}, Delegated: []Pool{oldParcels, pool(newParcels)},
	}
	run.net.set(both)
	if code := confirm(); code != iana.StatusSuccess {
		t.Errorf("a deprecated address is confirmed with %s", code)
	}
	r := renew()
	ia, pd := r.Options.OneIANA(), r.Options.OneIAPD()
	if len(addrsOf(r)) != 2 || addrsOf(r)[0] != addr || !newOnLink.Contains(addrsOf(r)[1]) ||
		ia.Options.Addresses()[0].PreferredLifetime != 0 || ia.Options.Addresses()[0].ValidLifetime != 10*time.Minute ||
		ia.Options.Addresses()[1].PreferredLifetime != time.Hour || ia.T1 < 25*time.Minute {
		t.Errorf("addresses: %s", r.LongString(0))
	}
	if len(prefixesOf(r)) != 2 || prefixesOf(r)[0] != prefix || !newParcels.Overlaps(prefixesOf(r)[1]) ||
		pd.Options.Prefixes()[0].PreferredLifetime != 0 {
		t.Errorf("prefixes: %s", r.LongString(0))
	}
	newAddr, newPrefix := addrsOf(r)[1], prefixesOf(r)[1]
	// Withdrawn.
	run.net.set(Prefixes{
		OnLink: []netip.Prefix{newOnLink}, Addresses: []Pool{pool(newOnLink)}, Delegated: []Pool{pool(newParcels)}})
	if code := confirm(); code != iana.StatusNotOnLink {
		t.Errorf("a withdrawn address is confirmed with %s", code)
	}
	r = renew()
	if !slices.Equal(addrsOf(r), []netip.Addr{newAddr}) || !slices.Equal(prefixesOf(r), []netip.Prefix{newPrefix}) {
		t.Errorf("after the change: %s", r.LongString(0))
	}
	gone := r.Options.OneIANA().Options.Addresses()
	if len(gone) != 2 || !gone[0].IPv6Addr.Equal(addr.AsSlice()) || gone[0].ValidLifetime != 0 {
		t.Errorf("the former address is not taken: %s", r.LongString(0))
	}
	for _, line := range []string{
		"released " + hardware(st.mac) + " " + addr.String() + "/128", "released " + hardware(st.mac) + " " + prefix.String(),
		"leased " + hardware(st.mac) + " " + newAddr.String() + "/128",
	} {
		if !run.has(line) {
			t.Errorf("not reported: %s", line)
		}
	}
	if list := run.Leases(); len(list) != 2 || list[0].Prefix.Addr() != newAddr || list[1].Prefix != newPrefix {
		t.Errorf("leases %v", list)
	}
	// The former prefix comes back: each client has the same address in it as before.
	run.net.set(both)
	both.Addresses[0] = pool(pooled)
	if r = renew(); !slices.Contains(addrsOf(r), addr) {
		t.Errorf("not %s again: %s", addr, r.LongString(0))
	}
}

// TestNoPrefix: without any prefix what clients had is taken, and INFORMATION-REQUESTs are answered.
func TestNoPrefix(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	addr := w.lease(st, 1)
	run.net.set(Prefixes{})
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRebind, st, iaNA(1, addr)))
	if ia := r.Options.OneIANA(); len(addrsOf(r)) > 0 || len(ia.Options.Addresses()) != 1 ||
		ia.Options.Status().StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("to a REBIND: %s", r.LongString(0))
	}
	if r, _ := w.ask(st, w.message(dhcpv6.MessageTypeInformationRequest, st)); len(r.Options.DNS()) != 1 {
		t.Errorf("to an INFORMATION-REQUEST: %s", r.LongString(0))
	}
}

// TestDelegatedLengths: a hint of a length is honoured within bounds, and a large block that is not there is replaced
// by a small one.
func TestDelegatedLengths(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.Lengths = Lengths{Usual: 62, Shortest: 60, Longest: 64} })
	ask := func(i, bits int) int {
		hint := netip.PrefixFrom(netip.IPv6Unspecified(), bits)
		st := stationOf(i)
		r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaPD(1, hint)))
		if got := prefixesOf(r); len(got) == 1 {
			return got[0].Bits()
		}
		return 0
	}
	// The rest is odd, so that some get a /64.
	for i, tt := range [][2]int{{60, 60}, {56, 60}, {63, 63}, {64, 64}, {80, 64}, {64, 64}} {
		if got := ask(i, tt[0]); got != tt[1] {
			t.Errorf("a /%d is asked for: a /%d", tt[0], got)
		}
	}
	seen := map[int]int{}
	for i := 100; i < 250; i++ {
		seen[ask(i, 60)]++
	}
	if seen[60] == 0 || seen[64] == 0 || seen[0] == 0 {
		t.Errorf("prefixes by length: %v", seen)
	}
	// Not even the smallest is left, and nothing overlaps.
	list := run.Leases()
	size := 0
	for i, lease := range list {
		size += 1 << (64 - lease.Prefix.Bits())
		if i > 0 && list[i-1].Prefix.Overlaps(lease.Prefix) {
			t.Errorf("%s and %s overlap", list[i-1].Prefix, lease.Prefix)
		}
	}
	if size != 128 {
		t.Errorf("%d of 128 /64 are delegated", size)
	}
}

// TestOnLinkIsNotDelegated: a pool may hold the networks' own prefixes.
func TestOnLinkIsNotDelegated(t *testing.T) {
	s := known(t, func(cfg *Config) {
		own := netip.MustParsePrefix("2001:db8::/62")
		cfg.Prefixes = func() Prefixes {
			return Prefixes{OnLink: []netip.Prefix{netip.MustParsePrefix("2001:db8:0:1::/64")}, Delegated: []Pool{pool(own)}}
		}
	})
	got := map[netip.Prefix]bool{}
	for i := range 5 {
		id := identity{kind: Delegated, mac: macOf(i), duid: string(duidOf(i))}
		for _, it := range s.table.grant(id, s.present(), nil, time.Now()).items {
			got[it.prefix] = true
		}
	}
	if len(got) != 3 || got[netip.MustParsePrefix("2001:db8:0:1::/64")] {
		t.Errorf("delegated %v", got)
	}
}
