// Helpers for tests of a Server on a real LAN: newLAN makes hosts behind a bridge, run starts the server, await waits
// until a host has an address.

package bindings

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

var gatewayMAC = MAC{2, 0, 0, 0, 0, 1}

// lan is the gateway's LAN: lan0 of the test's namespace and the hosts are ports of a bridge with the kernel's
// defaults.
type lan struct {
	hub   *netnstest.Space
	hosts []*netnstest.Space
}

// newLAN makes a LAN with some hosts, each with the interface c0. Where it is isolated, frames of a host reach the
// gateway only.
func newLAN(t *testing.T, hosts int, isolated bool) *lan {
	t.Helper()
	l := &lan{hub: netnstest.NewSpace(t)}
	l.hub.Run(t, "ip link add br0 type bridge; ip link set br0 up")
	netnstest.Run(t, "ip link add lan0 address 02:00:00:00:00:01 type veth peer name gw netns $hub; ip link set lan0 up",
		fmt.Sprintf("hub=%d", l.hub.TID()))
	t.Cleanup(func() { netnstest.Try("ip link del lan0") })
	l.plug(t, "gw", false)
	netnstest.Run(t, netnstest.Up+"up lan0")
	for i := range hosts {
		host := netnstest.NewSpace(t)
		host.Run(t, "ip link add c0 address $mac type veth peer name $port netns $hub; ip link set c0 up",
			fmt.Sprintf("hub=%d", l.hub.TID()), fmt.Sprintf("port=host%d", i), "mac="+l.anchor(i).String())
		l.plug(t, fmt.Sprintf("host%d", i), isolated)
		host.Run(t, netnstest.Up+"up c0")
		l.hosts = append(l.hosts, host)
	}
	return l
}

// plug makes a link a port of the bridge, and waits until it forwards.
func (l *lan) plug(t *testing.T, port string, isolated bool) {
	t.Helper()
	on := map[bool]string{false: "off", true: "on"}[isolated]
	l.hub.Run(t, netnstest.Up+`ip link set $port master br0 up; bridge link set dev $port isolated $on; up $port
until bridge link show dev $port | grep -q "state forwarding"; do sleep 0.01; done`, "port="+port, "on="+on)
}

// anchor is that of the i-th host.
func (l *lan) anchor(i int) Anchor { return anchorOf(16 + i) }

// addAddress has the i-th host's kernel probe an address, and then have it.
func (l *lan) addAddress(t *testing.T, i int, addr string) {
	t.Helper()
	l.hosts[i].Run(t, "ip addr add $addr/64 dev c0", "addr="+addr)
}

// awaitAddress waits until the i-th host's kernel has probed an address, and reports whether it may use it.
func (l *lan) awaitAddress(t *testing.T, i int, addr string) bool {
	t.Helper()
	var text string
	netnstest.Until(t, addr+" to be probed", func() bool {
		text = l.hosts[i].Run(t, "ip -6 addr show dev c0 to $addr/128", "addr="+addr)
		return strings.Contains(text, "dadfailed") || strings.Contains(text, addr) && !strings.Contains(text, "tentative")
	})
	return !strings.Contains(text, "dadfailed")
}

// running is a server with what it has told.
type running struct {
	*Server
	t    *testing.T
	logs logtest.Log
	stop func()

	told   sync.Mutex
	owners map[netip.Addr]Anchor // guarded by told: by Bound and Gone
	latest map[netip.Addr]Anchor // guarded by told: by Bound
	rogues []MAC                 // guarded by told
}

// run runs a server on lan0 until the test ends or stop is called. Global addresses of the prefix may be bound.
func run(t *testing.T, cfg Config) *running {
	t.Helper()
	r := &running{t: t, owners: map[netip.Addr]Anchor{}, latest: map[netip.Addr]Anchor{}}
	cfg.Interface, cfg.Rules.MayUse, cfg.Log = "lan0", within, r.logs.Logger()
	cfg.Bound, cfg.Gone, cfg.Redirects = r.bound, r.gone, r.redirects
	var err error
	if r.Server, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) bound(a Anchor, addrs ...netip.Addr) {
	r.told.Lock()
	defer r.told.Unlock()
	for _, addr := range addrs {
		if owner, has := r.owners[addr]; has {
			r.t.Errorf("%s is bound to %s while %s has it", addr, a, owner)
		}
		r.owners[addr], r.latest[addr] = a, a
	}
}

func (r *running) gone(a Anchor, addr netip.Addr) {
	r.told.Lock()
	defer r.told.Unlock()
	if r.owners[addr] != a {
		r.t.Errorf("%s is gone from %s, and was of %s", addr, a, r.owners[addr])
	}
	delete(r.owners, addr)
}

func (r *running) redirects(mac MAC) {
	r.told.Lock()
	defer r.told.Unlock()
	r.rogues = append(r.rogues, mac)
}

// ownerTold is who has an address by Bound and Gone.
func (r *running) ownerTold(addr string) (Anchor, bool) {
	r.told.Lock()
	defer r.told.Unlock()
	a, has := r.owners[netip.MustParseAddr(addr)]
	return a, has
}

// awaitBound waits until Bound tells that an anchor has an address, which it may lose soon after.
func (r *running) awaitBound(addr string, a Anchor) {
	r.t.Helper()
	netnstest.Until(r.t, addr+" to be bound", func() bool {
		r.told.Lock()
		defer r.told.Unlock()
		return r.latest[netip.MustParseAddr(addr)] == a
	})
}

// await waits until an anchor has an address, in a state, and Bound has told it.
func (r *running) await(addr string, a Anchor, state State) {
	r.t.Helper()
	netnstest.Await(r.t, addr+" to be bound", func() error {
		owner, _ := r.ownerTold(addr)
		for _, b := range r.List() {
			if b.Addr.String() == addr {
				if b.Anchor == a && b.State == state && owner == a {
					return nil
				}
				return fmt.Errorf("%s has it (%s), told was %s", b.Anchor, b.State, owner)
			}
		}
		return fmt.Errorf("nobody has it, told was %s", owner)
	})
}
