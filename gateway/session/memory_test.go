// Helpers of all tests of this package: a data path in memory, keys of clients, and functions that lease to a client,
// log it in and read its session.

package session_test

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// memory is a data path in memory that keeps Datapath's promises. send simulates packets. Like the kernel's programs,
// it outlives the tables that use it.
type memory struct {
	mu      sync.Mutex
	epoch   uint64
	clients map[datapath.ID]datapath.Client
	counted map[datapath.ID]datapath.Counters
	refuse  error                 // what Set and Remove return
	onSet   func(datapath.Client) // called before each Set
	halfway error                 // what Set returns once, of a client with several addresses, after it has set it
	single  bool                  // clients have one address
}

var _ datapath.Datapath = (*memory)(nil)

func newMemory() *memory {
	m := &memory{}
	m.restart()
	return m
}

// restart forgets everything, like a reboot.
func (m *memory) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.clients = map[datapath.ID]datapath.Client{}
	m.counted = map[datapath.ID]datapath.Counters{}
}

func (m *memory) Set(c datapath.Client) error {
	if m.onSet != nil {
		m.onSet(c)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	if m.single && len(c.Addrs) > 1 {
		return datapath.ErrNotSupported
	}
	m.clients[c.Identity()] = c
	if err := m.halfway; len(c.Addrs) > 1 && err != nil {
		m.halfway = nil
		return err
	}
	return nil
}

func (m *memory) Remove(id datapath.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	delete(m.clients, id)
	return nil
}

func (m *memory) Counters(id datapath.ID) (datapath.Counters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counted[id]
	c.Epoch = m.epoch
	return c, nil
}

func (m *memory) Open(netip.Prefix, time.Time) error { return nil }
func (m *memory) Close() error                       { return nil }

func (m *memory) refuseWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

// send sends and receives packets of size bytes for the client with the key's address, one by one. It returns how many
// passed in each direction.
func (m *memory) send(key session.Key, packets, size uint64) (up, down uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.counted[m.idOf(key.Addr)]
	defer func() { m.counted[m.idOf(key.Addr)] = n }()
	for range packets {
		if !m.passes(key) {
			continue
		}
		n.Seen = time.Now()
		l := m.clients[m.idOf(key.Addr)].Limits
		total := l.TotalBytes > 0 && n.UpBytes+n.DownBytes >= l.TotalBytes
		if total || l.UpBytes > 0 && n.UpBytes >= l.UpBytes {
			n.DroppedPackets++
		} else {
			n.UpBytes, n.UpPackets = n.UpBytes+size, n.UpPackets+1
			up++
		}
		if total || l.DownBytes > 0 && n.DownBytes >= l.DownBytes {
			n.DroppedPackets++
		} else {
			n.DownBytes, n.DownPackets = n.DownBytes+size, n.DownPackets+1
			down++
		}
	}
	return up, down
}

// passes must be called with mu held.
func (m *memory) passes(key session.Key) bool {
	c, found := m.clients[m.idOf(key.Addr)]
	return found && c.Admitted && c.MAC == key.MAC && (c.Until.IsZero() || time.Now().Before(c.Until))
}

func (m *memory) admits(key session.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passes(key)
}

// allows reports whether an address may be used by the client that has it.
func (m *memory) allows(addr netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clients {
		if slices.Contains(c.Addrs, addr) {
			return c.Admitted
		}
	}
	return false
}

// of returns the entry of the client that has an address.
func (m *memory) of(addr netip.Addr) (datapath.Client, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, found := m.clients[m.idOf(addr)]
	return c, found
}

// idOf is the identity of the client that has an address. mu is held.
func (m *memory) idOf(addr netip.Addr) datapath.ID {
	for id, c := range m.clients {
		if addr.Is6() && slices.Contains(c.Addrs, addr) {
			return id
		}
	}
	return datapath.IDOf(addr)
}

func (m *memory) client(addr netip.Addr) (datapath.Client, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, found := m.clients[datapath.IDOf(addr)]
	return c, found
}

// key returns a client's key: MAC 02:00:00:00:00:mac at 10.1.0.host.
func key(mac, host byte) session.Key {
	return session.Key{MAC: datapath.MAC{2, 0, 0, 0, 0, mac}, Addr: netip.AddrFrom4([4]byte{10, 1, 0, host})}
}

// keyOf returns the key of client i of millions.
func keyOf(i int) session.Key {
	return session.Key{
		MAC:  datapath.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)},
		Addr: netip.AddrFrom4([4]byte{10, byte(2 + i>>16), byte(i >> 8), byte(i)}),
	}
}

// discardLog is the log of tables of whose log a test says nothing.
var discardLog = slog.New(slog.DiscardHandler)

func openTable(t testing.TB, path string, dp datapath.Datapath) *session.Table {
	t.Helper()
	table, err := session.Open(path, dp, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// longLease outlives every test, also those that let years pass.
const longLease = 100 * 365 * 24 * time.Hour

// lease gives a client a lease that outlives the test.
func lease(t testing.TB, table *session.Table, k session.Key) {
	t.Helper()
	if err := table.Lease(k, "phone", time.Now().Add(longLease)); err != nil {
		t.Fatal(err)
	}
}

// admit logs a client in as the user ada, and returns the session.
func admit(t testing.TB, table *session.Table, k session.Key, limits session.Limits) session.Session {
	t.Helper()
	login := session.Login{User: "ada", Class: [][]byte{{1, 2}, {3}}, Limits: limits, For: k}
	s, err := table.Admit(k.Addr, login)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// get returns the session of a client that the table must know.
func get(t testing.TB, table *session.Table, k session.Key) session.Session {
	t.Helper()
	s, found := table.Get(k.Addr)
	if !found || s.Key != k {
		t.Fatalf("Get(%s) = %+v, %v", k.Addr, s, found)
	}
	return s
}

// drain accounts all pending events.
func drain(t testing.TB, table *session.Table) []session.Event {
	t.Helper()
	var events []session.Event
	for table.Pending() > 0 {
		e, err := table.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Done(e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// kinds lists the kinds of events, in their order.
func kinds(events []session.Event) (kinds []session.Kind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
