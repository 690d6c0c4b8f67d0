// Tests of networks that are delegated to clients (RFC 8415). memory_test.go has the helpers: newMemory is a data path
// in memory; key(mac, host) is MAC 02:00:00:00:00:mac at 10.1.0.host; openTable opens a table in a file; lease gives a
// client a lease, get reads its session. must fails the test on an error.

package session_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestDelegatedNetworks: a client has networks that were delegated to it, before login and after, from one daemon to
// the next and when it leases an IPv4 address, and loses them when they are taken back and with itself. It is found by
// their addresses. Long: the steps of one run, each of which needs the state that the one before left.
func TestDelegatedNetworks(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada, bob := session.Key{MAC: key(1, 1).MAC, Addr: stable6}, key(2, 2)
	wide, narrow := netip.MustParsePrefix("2001:db8:100::/56"), netip.MustParsePrefix("2001:db8:200:1::/64")
	behindWide, behindNarrow := netip.MustParseAddr("2001:db8:100:9::1"), netip.MustParseAddr("2001:db8:200:1::1")
	must(t, table.Enter(ada))
	lease(t, table, bob)
	for _, network := range []netip.Prefix{wide, narrow, wide} {
		must(t, table.Delegate(ada, network))
		if err := table.Delegate(bob, network); !errors.Is(err, session.ErrTaken) {
			t.Errorf("%s of ada's: bob gets %v", network, err)
		}
	}
	if err := table.Delegate(bob, netip.MustParsePrefix("10.9.0.0/24")); !errors.Is(err, session.ErrNoHost) {
		t.Errorf("a network of IPv4: %v", err)
	}
	has := func(phase string, admitted bool, want ...netip.Prefix) {
		t.Helper()
		s, found := table.Get(ada.Addr)
		entry, _ := dp.of(ada.Addr)
		if !found || !slices.Equal(s.Delegated, want) || !slices.Equal(entry.Routes, want) || entry.Admitted != admitted {
			t.Errorf("%s: %+v, in the data path %+v, want %v", phase, s, entry, want)
		}
		for _, addr := range []netip.Addr{behindWide, behindNarrow} {
			s, found := table.Get(addr)
			if is := slices.ContainsFunc(want, func(p netip.Prefix) bool { return p.Contains(addr) }); found != is ||
				is && s.MAC != ada.MAC {
				t.Errorf("%s: by %s is found %v, %s", phase, addr, found, s.Key)
			}
		}
	}
	has("before login", false, wide, narrow)
	_, err := table.Admit(behindNarrow, session.Login{User: "ada"})
	must(t, err)
	has("logged in", true, wide, narrow)
	must(t, table.Close())
	table = openTable(t, path, dp)
	has("read again", true, wide, narrow)
	_, err = table.End(behindWide, session.UserRequest)
	must(t, err)
	has("logged out", false, wide, narrow)
	must(t, table.Undelegate(ada, wide))
	has("one taken back", false, narrow)
	must(t, table.Undelegate(ada, wide))
	leased := key(1, 7)
	lease(t, table, leased)
	has("with an IPv4 address", false, narrow)
	dp.refuseWith(datapath.ErrNotSupported)
	if err := table.Delegate(leased, wide); !errors.Is(err, datapath.ErrNotSupported) {
		t.Errorf("refused by the data path: %v", err)
	}
	dp.refuseWith(nil)
	has("after that", false, narrow)
	must(t, table.Forget(leased))
	if _, found := table.Get(behindNarrow); found {
		t.Error("a client that was forgotten is found by its network")
	}
	if err := table.Delegate(leased, narrow); !errors.Is(err, session.ErrMoved) {
		t.Errorf("a client that is gone: %v", err)
	}
	must(t, table.Delegate(bob, narrow))
	must(t, table.Delegate(bob, wide))
	router := session.Key{MAC: key(3, 3).MAC, Addr: netip.MustParseAddr("2001:db8:300::7")}
	must(t, table.Enter(router))
	must(t, table.Extend(router, stable6))
	theirs := netip.MustParsePrefix("2001:db8:300::/60")
	must(t, table.Delegate(router, theirs))
	must(t, table.Undelegate(router, theirs))
	router.Addr = stable6
	if s := get(t, table, router); len(s.FurtherAddrs) > 0 {
		t.Errorf("known by another address: %+v", s)
	}
	own := netip.PrefixFrom(stable6, 64).Masked()
	must(t, table.Delegate(router, own))
	must(t, table.Undelegate(router, own))
	if s, found := table.Get(stable6); found {
		t.Errorf("without any address: %+v", s)
	}
}

// TestNetworksOfLogin: a client has the networks of its login while its session lasts, beside those that are delegated
// to it: also from one daemon to the next, and where a login follows another.
func TestNetworksOfLogin(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada := key(1, 1)
	delegated, first, second := netip.MustParsePrefix("2001:db8:200:1::/64"), netip.MustParsePrefix("2001:db8:300::/48"),
		netip.MustParsePrefix("2001:db8:400::/48")
	lease(t, table, ada)
	must(t, table.Delegate(ada, delegated))
	login := func(networks ...netip.Prefix) {
		t.Helper()
		given := &session.Grant6{Routes: networks}
		_, err := table.Admit(ada.Addr, session.Login{User: "ada", Networks: networks, IPv6: given})
		must(t, err)
	}
	has := func(phase string, want ...netip.Prefix) {
		t.Helper()
		s, _ := table.Get(ada.Addr)
		if entry, _ := dp.of(ada.Addr); !slices.Equal(s.Delegated, want) || !slices.Equal(entry.Routes, want) {
			t.Errorf("%s: %+v, in the data path %+v, want %v", phase, s, entry, want)
		}
		for _, network := range []netip.Prefix{first, second} {
			_, found := table.Get(network.Addr().Next())
			if found != slices.Contains(want, network) {
				t.Errorf("%s: by an address of %s is found %v", phase, network, found)
			}
		}
	}
	login(first, second)
	has("logged in", delegated, first, second)
	must(t, table.Close())
	table = openTable(t, path, dp)
	has("read again", delegated, first, second)
	login(second)
	has("logged in anew", delegated, second)
	_, err := table.End(ada.Addr, session.UserRequest)
	must(t, err)
	has("logged out", delegated)
	login(first)
	must(t, table.Undelegate(ada, delegated))
	has("without the delegated one", first)
	must(t, table.Forget(ada))
	if _, found := table.Get(first.Addr().Next()); found {
		t.Error("a client that has gone is found by its network")
	}
}
