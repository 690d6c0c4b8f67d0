package session_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestSeveralAddresses: a client's further addresses, of either family, are admitted and counted with the first one, in
// one session, also by the table that comes next, and nobody else gets them meanwhile.
func TestSeveralAddresses(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada, bob := key(1, 1), key(2, 2)
	six, four := netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("10.1.0.9")
	lease(t, table, ada)
	lease(t, table, bob)
	began := admit(t, table, ada, session.Limits{TotalBytes: 1000})
	for _, addr := range []netip.Addr{six, four, six} {
		if err := table.Extend(ada, addr); err != nil {
			t.Fatal(err)
		}
		if err := table.Extend(bob, addr); !errors.Is(err, session.ErrTaken) {
			t.Errorf("%s of ada's: bob gets %v", addr, err)
		}
	}
	if err := table.Claim(session.Key{MAC: bob.MAC, Addr: four}, time.Time{}, 4); !errors.Is(err, session.ErrTaken) {
		t.Errorf("bob claims %s: %v", four, err)
	}
	same := func(phase string) {
		t.Helper()
		for _, addr := range []netip.Addr{ada.Addr, six, four} {
			s, found := table.Get(addr)
			if !found || s.Key != ada || s.ID != began.ID || !slices.Equal(s.FurtherAddrs, []netip.Addr{six, four}) ||
				!dp.allows(addr) {
				t.Errorf("%s, by %s: %+v, let in: %v", phase, addr, s, dp.allows(addr))
			}
		}
	}
	same("extended")
	dp.send(ada, 1, 100)
	if s := get(t, table, ada); s.UpBytes != 100 {
		t.Errorf("%d bytes are counted", s.UpBytes)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table = openTable(t, path, dp)
	same("read again")
}

// TestFurtherAddressRemoved: a client loses a further address when it is taken back, when it is leased to another, and
// with its first one.
func TestFurtherAddressRemoved(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	ada, bob := key(1, 1), key(2, 2)
	six, four := netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("10.1.0.9")
	lease(t, table, ada)
	admit(t, table, ada, session.Limits{})
	for _, addr := range []netip.Addr{six, four} {
		if err := table.Extend(ada, addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Withdraw(ada, six); err != nil || dp.allows(six) || !dp.allows(four) {
		t.Errorf("withdrawn: %v", err)
	}
	lease(t, table, session.Key{MAC: bob.MAC, Addr: four}) // a DHCP server gives the address away
	if s := get(t, table, ada); len(s.FurtherAddrs) > 0 || dp.allows(four) || s.State != session.Authenticated {
		t.Errorf("after the address was leased to another: %+v", s)
	}
	if err := table.Extend(ada, six); err != nil {
		t.Fatal(err)
	}
	if _, err := table.End(six, session.AdminReset); err != nil || dp.allows(ada.Addr) || dp.allows(six) {
		t.Errorf("ended by a further address: %v", err)
	}
	if err := table.Forget(ada); err != nil {
		t.Fatal(err)
	}
	if _, found := table.Get(six); found {
		t.Error("a client that was forgotten is found by a further address")
	}
	if err := table.Extend(ada, six); !errors.Is(err, session.ErrMoved) {
		t.Errorf("a client that is gone is extended: %v", err)
	}
}

// TestRefusedAddress: an address that the data path cannot have is the client's neither in the table nor in the file.
func TestRefusedAddress(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada := key(1, 1)
	six := netip.MustParseAddr("2001:db8::5")
	lease(t, table, ada)
	dp.refuseWith(datapath.ErrNotSupported)
	if err := table.Extend(ada, six); !errors.Is(err, datapath.ErrNotSupported) {
		t.Errorf("%v", err)
	}
	dp.refuseWith(nil)
	if _, found := table.Get(six); found {
		t.Error("the client is found by it")
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table = openTable(t, path, dp)
	if s := get(t, table, ada); len(s.FurtherAddrs) > 0 {
		t.Errorf("read again: %+v", s)
	}
	if err := table.Extend(ada, six); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestInvalidFirstAddress: what no client can be first known by is refused, and nobody is found by it.
func TestInvalidFirstAddress(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	ada := key(1, 1)
	lease(t, table, ada)
	for _, addr := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("2001:db8::5")} {
		key := session.Key{MAC: ada.MAC, Addr: addr}
		_, admitted := table.Admit(addr, session.Login{User: "ada"})
		_, connected := table.Connect(session.Login{User: "ada", For: key, PPPoE: session.PPPoESession{Session: 1}})
		_, ended := table.End(addr, session.AdminReset)
		for label, err := range map[string]error{
			"lease": table.Lease(key, "", time.Time{}), "claim": table.Claim(key, time.Now().Add(time.Hour), 9),
			"admit": admitted, "connect": connected, "end": ended,
		} {
			if err == nil {
				t.Errorf("%s of %v succeeds", label, addr)
			}
		}
		if s, there := table.Get(addr); there {
			t.Errorf("%v is of %+v", addr, s)
		}
		if err := table.Forget(key); err != nil {
			t.Error(err)
		}
	}
	if n := table.Known(); n != 1 {
		t.Errorf("%d clients are in the table, want ada alone", n)
	}
}
