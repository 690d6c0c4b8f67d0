// Tests of the table of leases, without a network. macOf(i) is the MAC of device i, and testConfig the configuration of
// a server whose pool is 10.1.1.0-10.1.40.255 (main_test.go).

package dhcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// smallTable has the pool 10.1.0.2 to .9, without .5, which is static.
func smallTable(t testing.TB) *table {
	t.Helper()
	cfg := testConfig("-")
	cfg.Pools = []Range{{addr("10.1.0.1"), addr("10.1.0.6")}, {addr("10.1.0.7"), addr("10.1.0.9")}}
	cfg.Static = map[MAC]netip.Addr{macOf(5): addr("10.1.0.5")}
	cfg.AddressesPerMAC = 3
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newTable(cfg)
}

// addr parses an IP address.
var addr = netip.MustParseAddr

// naiveTable is a simple model of the table, which searches everything.
type naiveTable struct {
	owner map[netip.Addr]client // of leased addresses
	end   map[netip.Addr]time.Time
}

// TestTableKeepsItsPromises performs thousands of random operations and checks each.
func TestTableKeepsItsPromises(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		tb, now := smallTable(t), time.Now()
		m := naiveTable{map[netip.Addr]client{}, map[netip.Addr]time.Time{}}
		for step := range 3000 {
			c := client{mac: macOf(rnd.IntN(8)), id: []string{"", "a", "b", "c"}[rnd.IntN(4)]}
			a := netip.AddrFrom4([4]byte{10, 1, 0, byte(rnd.IntN(12))})
			label := m.step(t, tb, rnd.IntN(7), c, a, now)
			m.check(t, tb, fmt.Sprintf("seed %d step %d: %s %x/%s %s", seed, step, label, c.mac, c.id, a))
			if rnd.IntN(3) == 0 {
				now = now.Add(time.Duration(rnd.IntN(1200)) * time.Second)
			}
		}
	}
}

// mayBeSameClient reports whether a message of a client may be about a lease of another: two identifiers are two
// clients.
func mayBeSameClient(of, c client) bool {
	return of.mac == c.mac && (of.id == c.id || of.id == "" || c.id == "")
}

// step performs one operation and checks its result.
func (m naiveTable) step(t *testing.T, tb *table, kind int, c client, a netip.Addr, now time.Time) string {
	t.Helper()
	switch kind {
	case 0:
		if b, err := tb.offer(c, "", a, now); err == nil {
			if owner, taken := m.owner[b.addr]; taken && !mayBeSameClient(owner, c) && tb.cfg.Static[c.mac] != b.addr {
				t.Fatalf("%s is leased to %x and offered to %x", b.addr, owner.mac, c.mac)
			}
			if _, leased := m.owner[b.addr]; leased { // static: another identifier of its MAC
				m.owner[b.addr] = b.client
			}
			if !mayBeSameClient(b.client, c) || c.id != "" && b.client != c {
				t.Fatalf("%s is offered to %x as %q instead of %x as %q", b.addr, b.client.mac, b.client.id, c.mac, c.id)
			}
			if b2, err := tb.offer(c, "", netip.Addr{}, now); err != nil || b2 != b {
				t.Fatalf("a repeated DISCOVER got %v, %v after %s", b2, err, b.addr)
			}
		}
		return "offer"
	case 1, 2:
		if b, err := tb.confirm(c, "", a, now); err == nil {
			if prior, taken := m.owner[a]; taken && !mayBeSameClient(prior, c) && tb.cfg.Static[c.mac] != a {
				t.Fatalf("%s is leased to %x and confirmed to %x", a, prior.mac, c.mac)
			}
			m.owner[a], m.end[a] = b.client, b.end
		}
		return "confirm"
	case 3:
		if _, err := tb.release(c, a, now); err == nil {
			if !mayBeSameClient(m.owner[a], c) {
				t.Fatalf("%x released %s of %x", c.mac, a, m.owner[a].mac)
			}
			delete(m.owner, a)
		}
		return "release"
	case 4:
		if _, before, err := tb.decline(c, a, now); err == nil && before {
			delete(m.owner, a)
		}
		return "decline"
	case 5:
		tb.withdraw(c)
		return "withdraw"
	}
	m.expire(t, tb, now)
	return "expire"
}

func (m naiveTable) expire(t *testing.T, tb *table, now time.Time) {
	t.Helper()
	for _, b := range tb.expire(now, 1000) {
		if m.end[b.addr].After(now) {
			t.Fatalf("%s ended %s early", b.addr, m.end[b.addr].Sub(now))
		}
		delete(m.owner, b.addr)
	}
	for a, end := range m.end {
		if _, leased := m.owner[a]; leased && !end.After(now) {
			t.Fatalf("%s should have ended %s ago", a, now.Sub(end))
		}
	}
}

// check checks all invariants. Long: each is a few lines.
func (m naiveTable) check(t *testing.T, tb *table, label string) {
	t.Helper()
	held := map[MAC]int{}
	seen, inPools := 0, make([]int, len(tb.leasedIn))
	for s := range tb.queues {
		q, n := &tb.queues[s], 0
		var last time.Time
		for b := q.first(); b != nil && b != &q.ring; b = b.next {
			n++
			if b.state != state(s) || tb.byAddr[b.addr] != b {
				t.Fatalf("%s: %s in state %d is in queue %d", label, b.addr, b.state, s)
			}
			if b.state.isHeld() {
				held[b.client.mac]++
				if b.end.Before(last) {
					t.Fatalf("%s: %s ends before the one in front of it", label, b.addr)
				}
				last = b.end
			}
			if tb.static(b) && tb.cfg.Static[b.client.mac] != b.addr && b.client != (client{}) {
				t.Fatalf("%s: static %s is %x's", label, b.addr, b.client.mac)
			}
			if b.state == leased {
				inPools[tb.poolOf(b.addr)]++
			}
			if c, leasedThere := m.owner[b.addr]; leasedThere != (b.state == leased) || (leasedThere && c != b.client) {
				t.Fatalf("%s: %s is in state %d of %x, the model says %v %x", label, b.addr, b.state, b.client.mac, leasedThere,
					c.mac)
			}
		}
		if n != q.count {
			t.Fatalf("%s: queue %d has %d and counts %d", label, s, n, q.count)
		}
		seen += n
	}
	if seen != len(tb.byAddr) || len(tb.byAddr) > 8 {
		t.Fatalf("%s: %d bindings in queues, %d known, 8 possible", label, seen, len(tb.byAddr))
	}
	if !slices.Equal(inPools, tb.leasedIn) {
		t.Fatalf("%s: pools have %v leases, counted %v", label, inPools, tb.leasedIn)
	}
	for mac, n := range held {
		if len(tb.held[mac]) != n || n > tb.cfg.AddressesPerMAC {
			t.Fatalf("%s: %x holds %d, counted %d", label, mac, n, len(tb.held[mac]))
		}
	}
	if len(held) != len(tb.held) || len(tb.byClient) > len(tb.byAddr) {
		t.Fatalf("%s: %d MACs hold addresses, %d counted; %d clients", label, len(held), len(tb.held), len(tb.byClient))
	}
}

// TestAddressesAreChosenInOrder: a client is offered its static or former address, the one that it requests if that is
// free, or else the next free one. Long: the steps of one run, each of which needs the state that the one before left.
func TestAddressesAreChosenInOrder(t *testing.T) {
	tb, now := smallTable(t), time.Now()
	get := func(i int, wish string) string {
		t.Helper()
		var w netip.Addr
		if wish != "" {
			w = addr(wish)
		}
		b, err := tb.offer(client{mac: macOf(i)}, "", w, now)
		if err != nil {
			return err.Error()
		}
		if _, err := tb.confirm(b.client, "", b.addr, now); err != nil {
			t.Fatal(err)
		}
		return b.addr.String()
	}
	for _, tt := range []struct {
		client int
		wish   string
		want   string
	}{
		{10, "", "10.1.0.2"},
		{11, "10.1.0.8", "10.1.0.8"}, // a requested address that is free
		{12, "10.1.0.8", "10.1.0.3"}, // is not
		{13, "10.1.0.5", "10.1.0.4"}, // is static
		{14, "10.1.0.1", "10.1.0.6"}, // is the gateway's
		{5, "10.1.0.9", "10.1.0.5"},  // it has a static one
		{15, "", "10.1.0.7"},
		{16, "", "10.1.0.9"},
		{17, "", errExhausted.Error()},
		{11, "10.1.0.2", "10.1.0.8"}, // keeps its own
	} {
		if got := get(tt.client, tt.wish); got != tt.want {
			t.Errorf("client %d wishing %q: %s, want %s", tt.client, tt.wish, got, tt.want)
		}
	}
	// Clients gone longest are forgotten first.
	for _, i := range []int{13, 10} {
		own := tb.byClient[client{mac: macOf(i)}]
		if _, err := tb.release(own.client, own.addr, now); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(18, ""); got != "10.1.0.4" {
		t.Errorf("a new client got %s, want the address that was free longest", got)
	}
	if got := get(10, ""); got != "10.1.0.2" {
		t.Errorf("a former client got %s, want the one it had", got)
	}
}

func TestOffersAloneDoNotExhaustThePool(t *testing.T) {
	tb, now := smallTable(t), time.Now()
	for i := range 7 {
		if _, err := tb.offer(client{mac: macOf(100 + i)}, "", netip.Addr{}, now); err != nil {
			t.Fatal(err)
		}
	}
	first, late := client{mac: macOf(100)}, client{mac: macOf(1)}
	b, err := tb.offer(late, "", netip.Addr{}, now)
	if err != nil || b.addr != addr("10.1.0.2") {
		t.Fatalf("%v, %v: want the oldest offer's address", b, err)
	}
	for i := range 7 { // a flood, before any offer is accepted
		if _, err := tb.offer(client{mac: macOf(200 + i)}, "", netip.Addr{}, now); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := tb.confirm(late, "", addr("10.1.0.2"), now); err != nil || b.client != late {
		t.Errorf("who asks first for what is offered gets %v, %v", b, err)
	}
	if _, err := tb.confirm(first, "", addr("10.1.0.2"), now); !errors.Is(err, errNotYours) {
		t.Errorf("who came second got the address too: %v", err)
	}
}

// TestBriefLeases: clients that are not settled get short leases, and each renewal decides again.
func TestBriefLeases(t *testing.T) {
	tb, now, stays := smallTable(t), time.Now(), map[MAC]bool{}
	tb.cfg.ShortLease, tb.cfg.Settled = time.Minute, func(m MAC, _ netip.Addr) bool { return stays[m] }
	guest, passer := client{mac: macOf(1)}, client{mac: macOf(2)}
	left := func(c client, now time.Time) time.Duration {
		t.Helper()
		b, err := tb.offer(c, "", netip.Addr{}, now)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = tb.confirm(c, "", b.addr, now); err != nil {
			t.Fatal(err)
		}
		return b.end.Sub(now)
	}
	if a, b := left(guest, now), left(passer, now); a != time.Minute || b != time.Minute {
		t.Errorf("leased for %s and %s, want a minute", a, b)
	}
	stays[guest.mac] = true
	if got := left(guest, now.Add(30*time.Second)); got != tb.cfg.Lease {
		t.Errorf("who stays has its lease for %s", got)
	}
	if n := tb.leases(); n != 2 {
		t.Errorf("%d leases, want 2", n)
	}
	if over := tb.expire(now.Add(time.Minute), 10); len(over) != 1 || over[0].client != passer {
		t.Errorf("after a minute these have ended: %+v", over)
	}
	stays[guest.mac] = false
	if got := left(guest, now.Add(tb.cfg.Lease/2)); got != time.Minute {
		t.Errorf("who no longer stays has its lease for %s", got)
	}
	if over := tb.expire(now.Add(tb.cfg.Lease), 10); len(over) != 1 || over[0].client != guest || tb.leases() != 0 {
		t.Errorf("in the end these have ended: %+v", over)
	}
}

func TestRestore(t *testing.T) {
	now := time.Now()
	rec := func(at string, i int, s state, end time.Time) record {
		return record{addr: addr(at), client: client{mac: macOf(i)}, state: s, end: end}
	}
	for _, tt := range []struct {
		name string
		rec  record
		ok   bool
		want state
		left time.Duration
	}{
		{"lease", rec("10.1.0.2", 1, leased, now.Add(time.Minute)), true, leased, time.Minute},
		{"lease that ran out", rec("10.1.0.2", 1, leased, now.Add(-time.Minute)), true, leased, -time.Minute},
		{"lease from a clock that was ahead", rec("10.1.0.2", 1, leased, now.AddDate(50, 0, 0)), true, leased,
			time.Hour},
		{"former lease", rec("10.1.0.2", 1, known, now), true, known, 0},
		{"declined", rec("10.1.0.2", 1, declined, now.AddDate(1, 0, 0)), true, declined, declineTime},
		{"static", rec("10.1.0.5", 5, leased, now.Add(time.Minute)), true, leased, time.Minute},
		{"static, ended", rec("10.1.0.5", 5, known, now), true, reserved, 0},
		{"static one of another now", rec("10.1.0.5", 6, leased, now.Add(time.Minute)), false, 0, 0},
		{"of who has a static one now", rec("10.1.0.2", 5, leased, now.Add(time.Minute)), false, 0, 0},
		{"outside the pools", rec("10.1.9.9", 1, leased, now.Add(time.Minute)), false, 0, 0},
		{"the gateway's", rec("10.1.0.1", 1, leased, now.Add(time.Minute)), false, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := smallTable(t)
			if ok := tb.restore(tt.rec, now); ok != tt.ok {
				t.Fatalf("restored: %v", ok)
			}
			b := tb.byAddr[tt.rec.addr]
			if !tt.ok {
				if b != nil {
					t.Error("left behind")
				}
				return
			}
			if left := b.end.Sub(now); b.state != tt.want || (left != tt.left && b.state.isHeld()) {
				t.Errorf("state %d for %s, want %d for %s", b.state, left, tt.want, tt.left)
			}
		})
	}
}
