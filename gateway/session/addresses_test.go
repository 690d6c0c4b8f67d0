// Tests of further addresses (IPv6) of a client beside the one of its key. memory_test.go has the helpers: newMemory is
// a data path in memory; key(mac, host) is MAC 02:00:00:00:00:mac at 10.1.0.host; openTable opens a table in a file;
// lease gives a client a lease, admit logs it in, get reads its session; each fails the test on an error.

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

// TestSeveralAddresses: a client's further addresses, of either family, belong to its session: they are admitted and
// counted with the first one. That holds after the table is opened again. Other clients cannot get them.
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

// TestFurtherAddressRemoved: a client loses a further address by Withdraw, when another client leases it, and when it
// loses its first address.
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

// TestRefusedAddress: when the data path refuses an address, neither the table nor the file gives it to the client.
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

// TestAddressesTogether: of several addresses at once a client gets those that nobody else has. What the data path
// refuses it gets later.
func TestAddressesTogether(t *testing.T) {
	dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, dp)
	ada, bob := key(1, 1), key(2, 2)
	lease(t, table, ada)
	lease(t, table, bob)
	addrs := make([]netip.Addr, 4)
	for i := range addrs {
		addrs[i] = netip.MustParseAddr("2001:db8::5")
		for range i {
			addrs[i] = addrs[i].Next()
		}
	}
	if err := table.Extend(bob, addrs[1]); err != nil {
		t.Fatal(err)
	}
	if err := table.Extend(ada, addrs[0], addrs[1], addrs[2], addrs[0]); !errors.Is(err, session.ErrTaken) {
		t.Errorf("with one of bob's: %v", err)
	}
	dp.refuseWith(datapath.ErrNotSupported)
	if err := table.Extend(ada, addrs[2], addrs[3]); !errors.Is(err, datapath.ErrNotSupported) {
		t.Errorf("refused: %v", err)
	}
	dp.refuseWith(nil)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table = openTable(t, path, dp)
	want := []netip.Addr{addrs[0], addrs[2]}
	if s := get(t, table, ada); !slices.Equal(s.FurtherAddrs, want) {
		t.Errorf("ada has %v, want %v", s.FurtherAddrs, want)
	}
	if err := table.Extend(ada, addrs[3]); err != nil {
		t.Errorf("what was refused: %v", err)
	}
}

// TestInvalidFirstAddress: an address that cannot be a client's first one is refused, and finds no client.
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

// extended returns a table on a store in memory, in which ada is logged in. open opens another table on the same store
// and data path.
func extended(t *testing.T) (table *session.Table, dp *memory, store *memoryStore, open func() *session.Table) {
	t.Helper()
	dp, store = newMemory(), &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}
	dir := t.TempDir()
	open = func() *session.Table {
		table, err := session.OpenStore(store, dp, discardLog, session.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { table.Close() })
		return table
	}
	table = open()
	lease(t, table, key(1, 1))
	admit(t, table, key(1, 1), session.Limits{})
	return table, dp, store, open
}

// TestAddressesFail: when the disk or the data path fails while addresses change, the client keeps the addresses that
// it had: in the table, in the data path and on the disk.
func TestAddressesFail(t *testing.T) {
	ada, six, broken := key(1, 1), netip.MustParseAddr("2001:db8::5"), errors.New("broken")
	for name, tt := range map[string]struct {
		change func(*session.Table, *memory, *memoryStore) error
		had    bool
	}{
		"the disk refuses an address": {func(table *session.Table, _ *memory, store *memoryStore) error {
			store.refuse(broken)
			return table.Extend(ada, six)
		}, false},
		"the data path takes one halfway": {func(table *session.Table, dp *memory, _ *memoryStore) error {
			dp.halfway = broken
			return table.Extend(ada, six)
		}, false},
		"the disk refuses that one is taken back": {func(table *session.Table, _ *memory, store *memoryStore) error {
			store.refuse(broken)
			return table.Withdraw(ada, six)
		}, true},
		"the data path refuses that": {func(table *session.Table, dp *memory, _ *memoryStore) error {
			dp.refuseWith(broken)
			return table.Withdraw(ada, six)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			table, dp, store, open := extended(t)
			if tt.had {
				done(t, table.Extend(ada, six))
			}
			err := tt.change(table, dp, store)
			dp.refuseWith(nil)
			store.refuse(nil)
			has := func(when string) {
				t.Helper()
				if _, found := table.Get(six); found != tt.had || dp.allows(six) != tt.had || !dp.allows(ada.Addr) {
					t.Errorf("%s: %v; found %v, let in %v", when, err, found, dp.allows(six))
				}
			}
			if !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			has("then")
			err = table.Close()
			table = open()
			has("read again")
		})
	}
}

// TestAddressesBegin: an address finds its client only when it is on the disk and in the data path.
func TestAddressesBegin(t *testing.T) {
	ada, six := key(1, 1), netip.MustParseAddr("2001:db8::5")
	table, dp, _, _ := extended(t)
	dp.onSet = func(datapath.Client) {
		if s, found := table.Get(six); found {
			t.Errorf("found early: %+v", s)
		}
	}
	done(t, table.Extend(ada, six))
	dp.onSet = nil
	if _, found := table.Get(six); !found || !table.Taken(six) || table.Taken(netip.MustParseAddr("2001:db8::6")) {
		t.Error("not found in the end")
	}
	for _, key := range []session.Key{{MAC: ada.MAC, Addr: six}, {Addr: ada.Addr}} {
		if err := table.Extend(key, netip.MustParseAddr("2001:db8::6")); !errors.Is(err, session.ErrMoved) {
			t.Errorf("%s, which is no client's key, is extended: %v", key, err)
		}
	}
	for _, addr := range []netip.Addr{{}, netip.IPv6Unspecified()} {
		if err := table.Extend(ada, addr); !errors.Is(err, session.ErrNoHost) {
			t.Errorf("extended by %v: %v", addr, err)
		}
	}
}

// TestAddressesOfFormerPaths: addresses that another kind of data path cannot have are removed from the disk too, so
// that they do not come back with the former kind.
func TestAddressesOfFormerPaths(t *testing.T) {
	ada, six := key(1, 1), netip.MustParseAddr("2001:db8::5")
	table, dp, _, open := extended(t)
	done(t, table.Extend(ada, six))
	done(t, table.Close())
	dp.single = true
	open()
	dp.single = false
	table = open() // as after a crash: closing writes clients anew
	if s := get(t, table, ada); len(s.FurtherAddrs) > 0 || s.State != session.Authenticated || dp.allows(six) {
		t.Errorf("with the former kind: %+v", s)
	}
}

// TestLeaseOfAnAddressThatGoes: an address can be leased at the moment when the client that has it as a further address
// is removed.
func TestLeaseOfAnAddressThatGoes(t *testing.T) {
	table, _, _, _ := extended(t)
	ada, bob, four := key(1, 1), key(2, 2), netip.MustParseAddr("10.1.0.9")
	for range 200 {
		lease(t, table, ada)
		done(t, table.Extend(ada, four))
		gone := make(chan error)
		go func() { gone <- table.Forget(ada) }()
		lease(t, table, session.Key{MAC: bob.MAC, Addr: four})
		done(t, <-gone)
		done(t, table.Forget(session.Key{MAC: bob.MAC, Addr: four}))
	}
}
