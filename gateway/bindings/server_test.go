// Tests of a Server on a real LAN, whose hosts' kernels probe addresses. main_test.go has the helpers: newLAN, run,
// addAddress and await. newWire sends made-up frames (wire_test.go).

package bindings

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestDuplicateAddress: a kernel does not get an address that another kernel has, also where only the gateway hears
// both.
func TestDuplicateAddress(t *testing.T) {
	for _, isolated := range []bool{false, true} {
		t.Run(fmt.Sprintf("isolated %t", isolated), func(t *testing.T) {
			l := newLAN(t, 2, isolated)
			s := run(t, Config{Rules: Rules{Isolated: isolated}})
			l.addAddress(t, 0, "2001:db8::5")
			s.await("2001:db8::5", l.anchor(0), Valid)
			l.addAddress(t, 1, "2001:db8::5")
			if l.awaitAddress(t, 1, "2001:db8::5") {
				t.Error("the second host may use the address")
			}
			s.await("2001:db8::5", l.anchor(0), Valid)
			if got := s.Stats(); (got.Defended > 0) != isolated || got.Table.Moved > 0 || got.Asked == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestOwnerWentAway: an address whose owner has gone is the next one's, whose kernel is not told otherwise.
func TestOwnerWentAway(t *testing.T) {
	l := newLAN(t, 2, true)
	s := run(t, Config{Rules: Rules{Isolated: true}})
	l.addAddress(t, 0, "2001:db8::5")
	s.await("2001:db8::5", l.anchor(0), Valid)
	l.hosts[0].Run(t, "ip link set c0 down")
	netnstest.Until(t, "the owner to be silent", func() bool {
		for _, b := range s.List() {
			if b.Addr.String() == "2001:db8::5" {
				return time.Since(b.Heard) >= fresh
			}
		}
		return false
	})
	l.addAddress(t, 1, "2001:db8::5")
	if !l.awaitAddress(t, 1, "2001:db8::5") {
		t.Error("the gateway defends the address of a host that has gone")
	}
	s.await("2001:db8::5", l.anchor(1), Valid)
	if got := s.Stats(); got.Table.Moved != 1 || got.Defended != 0 {
		t.Errorf("%+v", got)
	}
}

// advertisePrefix has the gateway advertise the prefix to all hosts.
func advertisePrefix(t *testing.T) {
	t.Helper()
	w := newWire(t, func(f func()) { f() }, "lan0")
	w.send(w.frame(sender{gatewayMAC, linkLocalOf(gatewayMAC)}, allNodes,
		&ndp.RouterAdvertisement{RouterLifetime: time.Hour, Options: []ndp.Option{&ndp.PrefixInformation{
			PrefixLength: 64, OnLink: true, AutonomousAddressConfiguration: true, ValidLifetime: time.Hour,
			PreferredLifetime: time.Hour, Prefix: prefix.Addr()}}}))
}

// TestTemporaryAddresses: a kernel's stable and temporary addresses are bound when it has probed them, and so are those
// that follow.
func TestTemporaryAddresses(t *testing.T) {
	l := newLAN(t, 1, true)
	s := run(t, Config{Rules: Rules{Isolated: true}})
	l.hosts[0].Set(t, "ipv6/conf/c0/use_tempaddr", "2")
	all := map[netip.Addr]bool{}
	for range 2 {
		var addrs []string
		netnstest.Until(t, "addresses", func() bool {
			advertisePrefix(t) // again: a bridge's port that has just come up may drop a frame
			addrs = nil
			for line := range strings.Lines(l.hosts[0].Run(t, "ip -6 addr show dev c0 scope global -tentative")) {
				if f := strings.Fields(line); len(f) > 1 && f[0] == "inet6" {
					addrs = append(addrs, strings.TrimSuffix(f[1], "/64"))
				}
			}
			return len(addrs) == 2
		})
		for _, addr := range addrs {
			s.await(addr, l.anchor(0), Valid)
			all[netip.MustParseAddr(addr)] = true
		}
		l.hosts[0].Run(t, netnstest.Up+"ip link set c0 down; ip link set c0 up; up c0") // makes a new temporary address
	}
	if len(all) != 3 {
		t.Errorf("%v, want a stable address and two temporary ones", slices.Collect(maps.Keys(all)))
	}
}

// TestProxy: on an isolated LAN the gateway answers for hosts that it knows, and for no others.
func TestProxy(t *testing.T) {
	l := newLAN(t, 2, true)
	s := run(t, Config{Rules: Rules{Isolated: true}, Proxy: true})
	for i, addr := range []string{"2001:db8::5", "2001:db8::6"} {
		l.addAddress(t, i, addr)
		s.await(addr, l.anchor(i), Valid)
	}
	l.hosts[1].Run(t, `ping -c 1 -W 1 2001:db8::77 >/dev/null || true
until ip neigh show 2001:db8::77 | grep -q FAILED; do sleep 0.01; done
ping -c 1 -W 1 2001:db8::5 >/dev/null || true
until ip neigh show 2001:db8::5 | grep -q 02:00:00:00:00:01; do sleep 0.01; done`)
	before := s.Stats()
	if before.Proxied == 0 {
		t.Errorf("%+v", before)
	}
	w := newWire(t, l.hosts[1].Do, "c0")
	mine := netip.MustParseAddr("2001:db8::6")
	w.send(w.frame(sender{l.anchor(1).MAC, mine}, solicitedNode(mine), solicitation(mine)))
	netnstest.Until(t, "a solicitation for its own address", func() bool {
		return s.Stats().Solicitations > before.Solicitations
	})
	if got := s.Stats(); got.Proxied != before.Proxied {
		t.Errorf("the gateway answers a host for the host's own address: %+v", got)
	}
	if addrs := s.Of(l.anchor(1)); !slices.Contains(addrs, netip.MustParseAddr("2001:db8::6")) {
		t.Errorf("the second host has %v", addrs)
	}
}

// TestRefusals: what a client may not send changes nothing, and who redirects is reported once.
func TestRefusals(t *testing.T) {
	l := newLAN(t, 2, true)
	s := run(t, Config{Rules: Rules{Isolated: true}})
	l.addAddress(t, 0, "2001:db8::5")
	s.await("2001:db8::5", l.anchor(0), Valid)
	w := newWire(t, l.hosts[1].Do, "c0")
	from, five := sender{l.anchor(1).MAC, gateway}, netip.MustParseAddr("2001:db8::5")
	router := w.frame(from, allNodes, &ndp.RouterAdvertisement{})
	redirect := changed(router, ethernetLen+ipv6Len, Redirect)
	spoof := w.frame(from, allNodes, advertisement(five, false, lla(ndp.Target, l.anchor(1).MAC)))
	for _, frame := range [][]byte{
		router, redirect, redirect, spoof, spoof, changed(spoof, atCode, 1),
		w.frame(from, allNodes, advertisement(five, false, lla(ndp.Target, l.anchor(0).MAC))),
	} {
		w.send(frame)
	}
	netnstest.Await(t, "refusals", func() error {
		got := s.Stats()
		if got.Redirects != 2 || got.Table.Spoofed != 2 || got.Malformed != 1 ||
			got.Forged != 1 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	s.await("2001:db8::5", l.anchor(0), Valid)
	s.told.Lock()
	defer s.told.Unlock()
	if !slices.Equal(s.rogues, []MAC{l.anchor(1).MAC}) {
		t.Errorf("reported are %v", s.rogues)
	}
}

// TestFloodOfFrames: 100,000 probes by one device, and by as many, leave a host its address, also a new one, and end by
// themselves.
func TestFloodOfFrames(t *testing.T) {
	for name, from := range map[string]func(i int) MAC{
		"one":  func(int) MAC { return anchorOf(17).MAC },
		"many": func(i int) MAC { return anchorOf(1000 + i).MAC },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLAN(t, 2, true)
			s := run(t, Config{Rules: Rules{Isolated: true}})
			l.addAddress(t, 0, "2001:db8::5")
			s.await("2001:db8::5", l.anchor(0), Valid)
			w := newWire(t, l.hosts[1].Do, "c0")
			for i := range 100_000 {
				addr := addrOf(1000 + i)
				w.send(w.frame(sender{from(i), nobody}, solicitedNode(addr), solicitation(addr)))
			}
			l.addAddress(t, 0, "2001:db8::6")
			if !l.awaitAddress(t, 0, "2001:db8::6") {
				t.Error("the new address is taken")
			}
			s.await("2001:db8::6", l.anchor(0), Valid)
			s.await("2001:db8::5", l.anchor(0), Valid)
			got := s.Stats()
			if got.Throttled == 0 || got.Table.Tentative > MaxTentative || got.Table.Bindings > MaxTentative+100 {
				t.Errorf("%+v", got)
			}
			netnstest.Until(t, "made-up addresses to go", func() bool { return s.Stats().Table.Bindings < 10 })
		})
	}
}

// memory is a Store.
type memory struct {
	mu  sync.Mutex
	all map[netip.Addr]Anchor // guarded by mu
}

var _ Store = (*memory)(nil)

func (m *memory) Load() (all []Saved, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr, a := range m.all {
		all = append(all, Saved{addr, a})
	}
	return all, nil
}

func (m *memory) Put(s Saved) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[s.Addr] = s.Anchor
	return nil
}

func (m *memory) Delete(addr netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, addr)
	return nil
}

// TestRestart: a server's successor knows who has which address, and defends it.
func TestRestart(t *testing.T) {
	l := newLAN(t, 2, true)
	store := &memory{all: map[netip.Addr]Anchor{}}
	cfg := Config{Rules: Rules{Isolated: true}, Store: store}
	s := run(t, cfg)
	l.addAddress(t, 0, "2001:db8::5")
	s.await("2001:db8::5", l.anchor(0), Valid)
	netnstest.Must(t, s.Assign(l.anchor(0), netip.MustParseAddr("2001:db8::6")))
	s.stop()
	want := map[netip.Addr]Anchor{netip.MustParseAddr("2001:db8::5"): l.anchor(0)}
	maps.DeleteFunc(store.all, func(addr netip.Addr, _ Anchor) bool { return addr.IsLinkLocalUnicast() })
	if !maps.Equal(store.all, want) {
		t.Errorf("kept are %v", store.all)
	}
	s = run(t, cfg)
	s.await("2001:db8::5", l.anchor(0), Valid)
	l.addAddress(t, 1, "2001:db8::5")
	if l.awaitAddress(t, 1, "2001:db8::5") {
		t.Error("the second host may use the address")
	}
	s.End(l.anchor(0))
	netnstest.Until(t, "the end", func() bool {
		_, has := s.ownerTold("2001:db8::5")
		return !has
	})
	s.stop()
	for addr, owner := range store.all {
		if owner == l.anchor(0) {
			t.Errorf("%s is kept after its owner's end", addr)
		}
	}
}

// TestInterfaceDown: the server goes on when its interface comes back.
func TestInterfaceDown(t *testing.T) {
	l := newLAN(t, 1, true)
	s := run(t, Config{Rules: Rules{Isolated: true}})
	netnstest.Run(t, "ip link set lan0 down")
	netnstest.Until(t, "the loss", func() bool { return s.logs.Count("waiting for the interface") > 0 })
	netnstest.Run(t, netnstest.Up+"ip link set lan0 up; up lan0")
	netnstest.Until(t, "the return", func() bool { return s.logs.Count("the interface is back") > 0 })
	l.addAddress(t, 0, "2001:db8::5")
	s.await("2001:db8::5", l.anchor(0), Valid)
}

// TestOpenFails: without an interface, and on one that has no MAC address.
func TestOpenFails(t *testing.T) {
	for _, name := range []string{"lan9", "lo"} {
		if s, err := Open(Config{Interface: name}); err == nil {
			s.Close()
			t.Errorf("a server on %s", name)
		}
	}
}
