// Tests of clients without IPv4. memory_test.go has the helpers: newMemory is a data path in memory; openTable opens a
// table in a file; lease gives a client a lease, admit logs it in.

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

// Addresses of a device without IPv4.
var (
	stable6    = netip.MustParseAddr("2001:db8::5")
	temporary6 = netip.MustParseAddr("2001:db8::a1ce")
	local6     = netip.MustParseAddr("fe80::5")
)

// only6 is the key of a device without IPv4.
func only6(n byte, addr netip.Addr) session.Key { return session.Key{MAC: key(n, n).MAC, Addr: addr} }

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientWithoutIPv4: a client that has only IPv6 addresses has a session, also after the table is opened again.
// When its first address is withdrawn, another one becomes the first. It ends with its last address.
func TestClientWithoutIPv4(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada := only6(1, stable6)
	must(t, table.Enter(ada))
	if err := table.Enter(only6(2, stable6)); !errors.Is(err, session.ErrTaken) {
		t.Errorf("another device with its address: %v", err)
	}
	if err := table.Enter(only6(1, temporary6)); !errors.Is(err, session.ErrAddresses) {
		t.Errorf("entered once more: %v", err)
	}
	if err := table.Extend(ada, netip.MustParseAddr("10.1.0.9")); !errors.Is(err, session.ErrFirst) {
		t.Errorf("an IPv4 address without a lease: %v", err)
	}
	must(t, table.Extend(ada, local6))
	must(t, table.Extend(ada, temporary6))
	began := admit(t, table, ada, session.Limits{})
	dp.send(ada, 1, 100)
	must(t, table.Close())
	table = openTable(t, path, dp)
	must(t, table.Enter(only6(2, netip.MustParseAddr("2001:db8::b0b")))) // has a number of its own
	for _, addr := range []netip.Addr{stable6, temporary6, local6} {
		if s, _ := table.Get(addr); s.Key != ada || s.ID != began.ID || s.UpBytes != 100 || !dp.allows(addr) {
			t.Errorf("%s, read again: %+v, let in: %v", addr, s, dp.allows(addr))
		}
	}
	must(t, table.Withdraw(ada, stable6))
	next := only6(1, temporary6)
	s, _ := table.Get(temporary6)
	if s.Key != next || s.ID != began.ID || !slices.Equal(s.FurtherAddrs, []netip.Addr{local6}) || dp.allows(stable6) {
		t.Errorf("without its first address: %+v", s)
	}
	must(t, table.Withdraw(next, local6))
	must(t, table.Withdraw(next, temporary6))
	if _, found := table.Get(temporary6); found || dp.allows(temporary6) {
		t.Error("it is still there without addresses")
	}
	if e := lastEvent(t, table, next); e.Kind != session.Ended || e.Cause != session.LeaseEnded || e.ID != began.ID {
		t.Errorf("the last event is %s by %s", e.Kind, e.Cause)
	}
}

// TestClientLeasesIPv4Later: when a client without IPv4 leases an IPv4 address, its session goes on with its counts and
// all addresses. The session ends with that lease.
func TestClientLeasesIPv4Later(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada := only6(1, stable6)
	must(t, table.Enter(ada))
	must(t, table.Extend(ada, temporary6))
	began := admit(t, table, ada, session.Limits{TotalBytes: 1000})
	dp.send(ada, 1, 300)
	leased := key(1, 7)
	lease(t, table, leased)
	dp.send(leased, 1, 150)
	same := func() {
		t.Helper()
		for _, addr := range []netip.Addr{leased.Addr, stable6, temporary6} {
			s, _ := table.Get(addr)
			if s.Key != leased || s.ID != began.ID || s.UpBytes != 450 || s.LeaseEnd.IsZero() || !dp.allows(addr) {
				t.Errorf("%s: %+v, let in: %v", addr, s, dp.allows(addr))
			}
		}
	}
	same()
	if c, _ := dp.client(leased.Addr); c.Limits.TotalBytes != 400 {
		t.Errorf("it may go on to %d bytes on its new counters, want what is left, 400", c.Limits.TotalBytes)
	}
	must(t, table.Close())
	table = openTable(t, path, dp)
	same()
	found, _ := table.Find(ada.MAC, 0)
	if states := table.States(); states[session.Authenticated] != 1 || table.Known() != 1 || found != leased {
		t.Errorf("%v, clients %v, found %s", states, table.Known(), found)
	}
	must(t, table.Forget(leased))
	if dp.allows(stable6) {
		t.Error("it still passes without its lease")
	}
	must(t, table.Enter(ada)) // it goes on by IPv6, and logs in anew
	if s, _ := table.Get(stable6); s.State != session.Leased {
		t.Errorf("it is %q", s.State)
	}
}

// TestMoveRefused: when the disk or the data path fails while such a client gets its IPv4 address, the client stays as
// it was. Its next lease tries again.
func TestMoveRefused(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	ada, leased := only6(1, stable6), key(1, 7)
	must(t, table.Enter(ada))
	began := admit(t, table, ada, session.Limits{})
	dp.refuseWith(datapath.ErrNotSupported)
	if err := table.Lease(leased, "", time.Now().Add(time.Hour)); !errors.Is(err, datapath.ErrNotSupported) {
		t.Errorf("leased while the data path refuses: %v", err)
	}
	dp.refuseWith(nil)
	if s, _ := table.Get(stable6); s.ID != began.ID || !dp.allows(stable6) {
		t.Errorf("%+v, let in: %v", s, dp.allows(stable6))
	}
	lease(t, table, leased)
	if s, _ := table.Get(stable6); s.Key != leased || s.ID != began.ID || !dp.allows(stable6) {
		t.Errorf("leased again: %+v, let in: %v", s, dp.allows(stable6))
	}
}

// TestFind: the clients of one MAC address are found by their PPPoE sessions, and a device with one is another client
// without it.
func TestFind(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	line := key(1, 7)
	_, err := table.Connect(session.Login{User: "ada", For: line, PPPoE: session.PPPoESession{Session: 5}})
	must(t, err)
	if found, is := table.Find(line.MAC, 5); !is || found != line {
		t.Errorf("session 5 is %s", found)
	}
	for _, other := range []uint16{0, 6} {
		if found, is := table.Find(line.MAC, other); is {
			t.Errorf("session %d is %s", other, found)
		}
	}
	host := session.Key{MAC: line.MAC, Addr: stable6}
	must(t, table.Enter(host))
	if found, is := table.Find(line.MAC, 0); !is || found != host {
		t.Errorf("without PPPoE it is %s", found)
	}
	if found, is := table.Find(line.MAC, 5); !is || found != line {
		t.Errorf("session 5 is %s afterwards", found)
	}
}
