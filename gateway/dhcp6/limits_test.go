package dhcp6

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// TestSameDUID: two devices with the same DUID and IAID are two clients. Neither gets, renews or ends the other's
// lease.
func TestSameDUID(t *testing.T) {
	w := newWire(t, newLAN(t))
	var log logtest.Log
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.Log = log.Logger() })
	first, second := stationOf(1), station{mac: macOf(2), duid: duidOf(1)}
	a, b := w.lease(first, 1), w.lease(second, 1)
	if a == b {
		t.Fatalf("both have %s", a)
	}
	for range 5 {
		w.ask(second, w.message(dhcpv6.MessageTypeRelease, second, iaNA(1, a)))
	}
	r, _ := w.ask(second, w.message(dhcpv6.MessageTypeRenew, second, iaNA(1, a)))
	if got := addrsOf(r); !slices.Equal(got, []netip.Addr{b}) {
		t.Errorf("the second renews %s, and has %v", a, got)
	}
	if again := w.lease(first, 1); again != a {
		t.Errorf("the first has %s instead of %s", again, a)
	}
	if st := run.Stats(); st.Foreign != 6 || st.Addresses != 2 {
		t.Errorf("stats %+v", st)
	}
	if n := strings.Count(log.String(), errNotYours.Error()); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// TestStarvationByOne: a device with 10,000 DUIDs gets as many leases as one MAC may have.
func TestStarvationByOne(t *testing.T) {
	w := newWire(t, newLAN(t))
	var log logtest.Log
	run := start(t, leasesFile(t), func(cfg *Config) {
		cfg.Log, cfg.PerMAC = log.Logger(), budget.Rate{AtOnce: 100_000, EachSecond: 100_000}
	})
	guest := stationOf(1)
	addr := w.lease(guest, 1)
	refused := 0
	for i := range 10_000 {
		st := station{mac: macOf(2), duid: duidOf(1000 + i)}
		r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1), iaPD(1)))
		if status := r.Options.OneIANA().Options.Status(); status != nil && status.StatusCode == iana.StatusNoAddrsAvail {
			refused++
		}
	}
	if st := run.Stats(); st.Addresses != 1+16 || st.Prefixes != 4 || refused != 10_000-16 || st.TooMany == 0 {
		t.Errorf("%d refused, stats %+v", refused, st)
	}
	if again := w.lease(guest, 1); again != addr {
		t.Errorf("the guest has %s instead of %s", again, addr)
	}
	if n := strings.Count(log.String(), errTooMany.Error()); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestStarvationByMany: devices with 10,000 MACs take all that there is. Who has a lease renews it, and who comes gets
// one once there is one.
func TestStarvationByMany(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.MaxAddresses, cfg.MaxPrefixes = 1000, 100 })
	guest := stationOf(1)
	addr := w.lease(guest, 1)
	for i := range 10_000 {
		st := stationOf(1000 + i)
		w.ask(st, w.message(dhcpv6.MessageTypeSolicit, st, generic(dhcpv6.OptionRapidCommit, nil), iaNA(1), iaPD(1)))
	}
	if st := run.Stats(); st.Addresses != 1000 || st.Prefixes != 100 || st.Exhausted < 9_000 {
		t.Errorf("stats %+v", st)
	}
	if again := w.lease(guest, 1); again != addr {
		t.Errorf("the guest has %s instead of %s", again, addr)
	}
	late := stationOf(2)
	r, _ := w.ask(late, w.message(dhcpv6.MessageTypeSolicit, late, iaNA(1)))
	if status := r.Options.OneIANA().Options.Status(); status == nil || status.StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("to one more: %s", r.LongString(0))
	}
	first := stationOf(1000)
	w.ask(first, w.message(dhcpv6.MessageTypeRelease, first, iaNA(1, addrOf(run, first))))
	w.lease(late, 1)
}

// addrOf is the address that a client has.
func addrOf(run *started, st station) netip.Addr {
	for _, lease := range run.Leases() {
		if lease.MAC == st.mac && lease.Kind == Address {
			return lease.Prefix.Addr()
		}
	}
	return netip.Addr{}
}

// TestFlood: a device that sends more than it may is not read, and others are.
func TestFlood(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.PerMAC = budget.Rate{AtOnce: 10, EachSecond: 1. / 3600} })
	for i := range 100 {
		st := station{mac: macOf(1), duid: duidOf(i)}
		w.send(st, w.message(dhcpv6.MessageTypeRequest, st, iaNA(1)))
	}
	w.lease(stationOf(2), 1)
	// With its first lease the device counts as a client, which has a budget of its own.
	if st := run.Stats(); st.Throttled < 80 || st.Addresses > 1+11 {
		t.Errorf("stats %+v", st)
	}
}

// TestManyIAs: of more associations than an answer has room for, the first are answered.
func TestManyIAs(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), func(cfg *Config) { cfg.AddressesPerMAC = 128 })
	present := usualPrefixes()
	for i := byte(1); len(present.Addresses) < maxPools; i++ {
		present.Addresses = append(present.Addresses, pool(netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, i}), 64)))
	}
	run.net.set(present)
	st := stationOf(1)
	var options []dhcpv6.Option
	for i := range 40 {
		options = append(options, iaNA(byte(i)))
	}
	r, got := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, options...))
	n := len(addrsOf(r))
	if n < 5*maxPools || n > 10*maxPools || len(got.payload) > maxPayload || run.Stats().Addresses != n {
		t.Errorf("%d addresses in %d bytes, %d leased", n, len(got.payload), run.Stats().Addresses)
	}
	if run.Stats().Unread != 1 {
		t.Errorf("stats %+v", run.Stats())
	}
}

// TestAddressesCannotBeGuessed: addresses of clients in a row have nothing in common but their pool.
func TestAddressesCannotBeGuessed(t *testing.T) {
	s := known(t, nil)
	seen := map[netip.Addr]bool{}
	differing := 0
	var last [16]byte
	for i := range 1000 {
		id := identity{kind: Address, mac: macOf(i), duid: string(duidOf(i))}
		addr := s.table.hashed(id, pooled, 0)
		if !pooled.Contains(addr) || seen[addr] {
			t.Fatalf("%s", addr)
		}
		seen[addr] = true
		for at, bits := range addr.As16() {
			for bit := range 8 {
				differing += int(bits^last[at]) >> bit & 1
			}
		}
		last = addr.As16()
	}
	if each := float64(differing) / 1000; each < 23 || each > 25 { // half of 48 bits
		t.Errorf("%.1f bits differ from one to the next", each)
	}
}
