package visit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/oidc"
)

var (
	phone  = datapath.MAC{2, 0, 0, 0, 0, 1}
	laptop = datapath.MAC{2, 0, 0, 0, 0, 2}
	one    = netip.MustParseAddr("198.51.100.1")
	two    = netip.MustParseAddr("198.51.100.2")
	six    = netip.MustParseAddr("2001:db8::1")
	inside = netip.MustParseAddr("10.1.0.5")
)

// world is a garden over a record of what is open.
type world struct {
	*Garden
	open map[string]time.Time // by device and address
	fail error                // of the data path
	// calls of the data path, and questions to the gateway's resolver
	opens   int
	mu      sync.Mutex
	lookups []string // guarded by mu
}

// newWorld makes a garden whose own resolver knows names.
func newWorld(names map[string][]netip.Addr) *world {
	w := &world{open: map[string]time.Time{}}
	w.Garden = New(Config{
		Open: func(mac datapath.MAC, at netip.AddrPort, until time.Time) error {
			w.opens++
			if w.fail != nil {
				return w.fail
			}
			key := fmt.Sprintf("%d %s", mac[5], at)
			if delete(w.open, key); until.After(time.Now()) {
				w.open[key] = until
			}
			return nil
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lookups = append(w.lookups, name)
			if all, has := names[name]; has {
				return all, nil
			}
			return nil, errors.New("no such name")
		},
		Openable: func(a netip.Addr) bool { return a != inside },
	})
	return w
}

// wants checks what is open: device, address and port each.
func (w *world) wants(t *testing.T, label string, want ...string) {
	t.Helper()
	var got []string
	for key := range w.open {
		got = append(got, key)
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s: open are %s, want %s", label, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// hosts are visits of names at port 443 for an hour.
func hosts(names ...string) (all []oidc.Visit) {
	for _, n := range names {
		all = append(all, oidc.Visit{Host: oidc.Host{Pattern: n, Port: 443}, Until: time.Now().Add(time.Hour)})
	}
	return all
}

func (w *world) allow(t *testing.T, mac datapath.MAC, visits ...oidc.Visit) {
	t.Helper()
	var all []oidc.Host
	for _, v := range visits {
		all = append(all, v.Host)
	}
	w.Watch(all)
	w.Prepare(t.Context(), all)
	if err := w.Allow(mac, visits); err != nil {
		t.Error(err)
	}
}

// TestAddresses: a device reaches the addresses that its names have by the gateway's resolver, or by an answer to any
// client, before or while it visits them, and no others.
func TestAddresses(t *testing.T) {
	w := newWorld(map[string][]netip.Addr{"login.example": {one, inside}, "other.example": {two}})
	w.wants(t, "at first")
	w.allow(t, phone, hosts("login.example", "away.example", "*.cdn.example")...)
	w.wants(t, "by the gateway's resolver", "1 198.51.100.1:443")
	for name, want := range map[string]bool{"login.example": true, "away.example": true, "a.b.cdn.example": true,
		"cdn.example": false, "xcdn.example": false, "other.example": false} {
		if got := w.Watches(name); got != want {
			t.Errorf("watches %s: %t", name, got)
		}
	}
	w.Learned("a.cdn.example", []netip.Addr{six}, time.Minute)
	w.wants(t, "by an answer", "1 198.51.100.1:443", "1 [2001:db8::1]:443")
	w.allow(t, laptop, hosts("*.cdn.example")...)
	w.wants(t, "another device, by the same answer", "1 198.51.100.1:443", "1 [2001:db8::1]:443", "2 [2001:db8::1]:443")
	w.Learned("other.example", []netip.Addr{two}, time.Minute)
	w.wants(t, "a name that nobody visits", "1 198.51.100.1:443", "1 [2001:db8::1]:443", "2 [2001:db8::1]:443")
	w.allow(t, phone)
	w.wants(t, "the first has left", "2 [2001:db8::1]:443")
	w.allow(t, laptop)
	w.wants(t, "both have left")
	if len(w.devices) > 0 {
		t.Errorf("%d devices are remembered", len(w.devices))
	}
}

// TestEnds: an address is open as long as one of the visits lasts, also when its answer is no longer good, and the last
// visit's end is that of the data path.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		short, long := hosts("login.example")[0], hosts("login.example")[0]
		short.Until = time.Now().Add(time.Minute)
		w.allow(t, phone, short)
		w.Learned("login.example", []netip.Addr{one}, time.Second)
		w.wants(t, "a visit", "1 198.51.100.1:443")
		time.Sleep(5 * time.Second)
		w.Learned("login.example", []netip.Addr{two}, time.Minute)
		w.wants(t, "after the answer's time", "1 198.51.100.1:443", "1 198.51.100.2:443")
		w.allow(t, phone, short, long)
		if got := w.open["1 198.51.100.1:443"]; !got.Equal(long.Until) {
			t.Errorf("open until %s, and the longest visit ends %s", got, long.Until)
		}
		w.allow(t, phone, short)
		if got := w.open["1 198.51.100.1:443"]; !got.Equal(short.Until) {
			t.Errorf("open until %s, and the only visit ends %s", got, short.Until)
		}
		w.allow(t, laptop, short)
		w.wants(t, "a later visitor", "1 198.51.100.1:443", "1 198.51.100.2:443", "2 198.51.100.2:443")
	})
}

// TestDataPathFails: what the data path did not close is closed with the next change.
func TestDataPathFails(t *testing.T) {
	w := newWorld(map[string][]netip.Addr{"login.example": {one}})
	w.fail = errors.New("no")
	visits := hosts("login.example")
	w.Watch([]oidc.Host{visits[0].Host})
	w.Prepare(t.Context(), []oidc.Host{visits[0].Host})
	if err := w.Allow(phone, visits); err == nil {
		t.Error("a data path that fails opens")
	}
	w.fail = nil
	w.allow(t, phone, visits...)
	w.wants(t, "again", "1 198.51.100.1:443")
	w.fail = errors.New("no")
	if err := w.Allow(phone, nil); err == nil {
		t.Error("a data path that fails closes")
	}
	w.fail = nil
	w.allow(t, phone)
	w.wants(t, "closed again")
}

// TestBounds: whatever names and addresses answers have, few are remembered of patterns. Names that are watched
// themselves stand beside these.
func TestBounds(t *testing.T) {
	w := newWorld(nil)
	w.allow(t, phone, hosts("login.example", "*.example")...)
	addr := netip.MustParseAddr("198.51.0.0")
	for n := range maxNames + 10 {
		addr = addr.Next()
		w.Learned(fmt.Sprintf("n%d.example", n), []netip.Addr{addr}, time.Hour)
	}
	var many []netip.Addr
	for range maxAddresses + 10 {
		addr = addr.Next()
		many = append(many, addr)
	}
	w.Learned("n0.example", many, time.Hour)
	if got := len(w.below); got != maxNames {
		t.Errorf("%d names", got)
	}
	if got := len(w.below["n0.example"]); got != maxAddresses {
		t.Errorf("%d addresses", got)
	}
	if len(w.open) != MaxOpen {
		t.Errorf("%d addresses are open for a device", len(w.open))
	}
	w.Learned("login.example", []netip.Addr{one}, time.Hour)
	if _, open := w.open["1 198.51.100.1:443"]; !open || len(w.open) != MaxOpen {
		t.Errorf("of %d open addresses none is that of the login's host", len(w.open))
	}
	before := len(w.open)
	w.allow(t, laptop, hosts("login.example", "*.example")...)
	if _, open := w.open["2 198.51.100.1:443"]; !open || len(w.open)-before != MaxOpen {
		t.Errorf("of %d open addresses of another device none is that of the login's host", len(w.open)-before)
	}
	w.allow(t, phone)
	w.allow(t, laptop)
	w.wants(t, "in the end")
}

// TestTidied: names whose addresses are no longer good make room, and the host of the login is not among them.
func TestTidied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		w.allow(t, phone, hosts("login.example", "*.example")...)
		w.Learned("login.example", []netip.Addr{one}, time.Second)
		for n := range maxNames {
			w.Learned(fmt.Sprintf("n%d.example", n), []netip.Addr{two}, time.Second)
		}
		time.Sleep(tidyEach)
		w.Learned("new.example", []netip.Addr{six}, time.Minute)
		w.wants(t, "after the answers' time", "1 198.51.100.1:443", "1 198.51.100.2:443", "1 [2001:db8::1]:443")
		if len(w.below) != 1 || w.exact["login.example"] == nil {
			t.Errorf("%d names are remembered, and of the login's host %v", len(w.below), w.exact)
		}
	})
}

// TestNothingNew: an answer that tells nothing new, and a name that is known, cost the data path and the resolver
// nothing; devices that do not visit the name are not touched.
func TestNothingNew(t *testing.T) {
	w := newWorld(map[string][]netip.Addr{"login.example": {one}})
	w.allow(t, phone, hosts("login.example")...)
	w.allow(t, laptop, hosts("other.example")...)
	opens := w.opens
	for range 10 {
		w.Learned("login.example", []netip.Addr{one, inside}, time.Minute)
	}
	if w.opens != opens {
		t.Errorf("the data path was called %d times", w.opens-opens)
	}
	if w.Learned("login.example", []netip.Addr{one, two}, time.Minute); w.opens != opens+1 {
		t.Errorf("for a new address the data path was called %d times", w.opens-opens)
	}
	w.allow(t, phone, hosts("login.example")...)
	if got := slices.DeleteFunc(w.lookups, func(n string) bool { return n != "login.example" }); len(got) != 1 {
		t.Errorf("the resolver was asked %d times", len(got))
	}
}
