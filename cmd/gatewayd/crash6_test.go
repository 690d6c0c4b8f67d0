// A test that kills the daemon while clients send by IPv6. newNetwork makes the host of a gateway with clients and a
// server, in namespaces (world_test.go); a flow sends numbered UDP datagrams through it and records which arrive
// (flow_test.go).

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// server6Addr is the server's address by IPv6.
var server6Addr = netip.MustParseAddr("2001:db8:9::2")

// newNetwork6 is newNetwork with IPv6 on the LAN and beyond it.
func newNetwork6(t testing.TB) *world {
	t.Helper()
	w := newNetwork(t)
	path := w.write("gatewayd.toml", "gatewayd.toml", w)
	text, err := os.ReadFile(path)
	must(t, err)
	keys := strings.Replace(string(text), "[wan]", "address6 = \"2001:db8:1::1/64\"\n[wan]", 1)
	must(t, os.WriteFile(path, []byte(keys), 0o600))
	w.sh(`at() { host=$1; shift; nsenter --net=/run/netns/$ID-$host sh -ec "$*"; }
at router 'sysctl -qw net.ipv6.conf.lan0.disable_ipv6=0 net.ipv6.conf.wan0.disable_ipv6=0 net.ipv6.conf.all.forwarding=1
ip addr add 2001:db8:1::1/64 dev lan0 nodad; ip addr add 2001:db8:9::1/64 dev wan0 nodad'
at server 'sysctl -qw net.ipv6.conf.s0.disable_ipv6=0 net.ipv6.conf.s0.accept_ra=0
ip addr add 2001:db8:9::2/64 dev s0 nodad; ip route add default via 2001:db8:9::1'`)
	return w
}

// client6 adds a client without IPv4, whose kernel makes its addresses.
func (w *world) client6() *client {
	w.t.Helper()
	c := w.addUnaddressed()
	c.sh("sysctl -qw net.ipv6.conf.c0.disable_ipv6=0")
	eventually(w.t, "an address of "+c.host, func() error {
		for _, word := range strings.Fields(c.sh("ip -6 -o addr show dev c0 scope global -tentative")) {
			if p, err := netip.ParsePrefix(word); err == nil {
				c.addr = p.Addr()
				return nil
			}
		}
		return errors.New("none yet")
	})
	return c
}

// goesOn waits until datagrams arrive that the flow sends after the call.
func (f *flow) goesOn(t *testing.T, while string) {
	t.Helper()
	next := f.sent.Load() + 100
	eventually(t, "datagrams "+while, func() error {
		if highest := f.highest.Load(); highest < next {
			return fmt.Errorf("number %d has arrived, want %d", highest, next)
		}
		return nil
	})
}

// TestKilledUnderIPv6Load: while the daemon is killed and started again and again, every IPv6 datagram of ann, who is
// logged in, arrives, and none of bob, who is not, or of carol, who comes while no daemon runs.
func TestKilledUnderIPv6Load(t *testing.T) {
	t.Parallel()
	w := newNetwork6(t)
	w.start()
	ann, bob := w.client6(), w.client6()
	eventually(t, "ann is logged in", func() error {
		ann.try("ping -6 -c 1 -W 1 2001:db8:1::1") // the gateway learns of her by this
		daemon, err := w.control()
		if err == nil {
			_, err = daemon.Login(context.Background(), control.LoginRequest{Addr: ann.addr, User: "ann"})
		}
		return err
	})
	eventually(t, "ann's way out", func() error {
		_, err := ann.try("ping -6 -c 1 -W 4 " + server6Addr.String())
		return err
	})
	id := ann.session().ID
	carol := w.addUnaddressed()
	admitted, strange := w.flowTo(ann.host, "server", server6Addr, 500), w.flowTo(bob.host, "server", server6Addr, 500)
	admitted.start()
	strange.start()
	var late *flow
	for range *rounds {
		w.kill()
		admitted.goesOn(t, "without a daemon")
		if late == nil {
			carol.sh(`sh -c 'sysctl -qw net.ipv6.conf.c0.disable_ipv6=0; ip addr add 2001:db8:1::ca/64 dev c0 nodad
ip route add default via 2001:db8:1::1'`)
			late = w.flowTo(carol.host, "server", server6Addr, 100)
			late.start()
		}
		w.start()
		admitted.goesOn(t, "under the next daemon")
		w.replace()
		admitted.goesOn(t, "under a daemon that took over")
	}
	for _, f := range []*flow{strange, late} {
		f.halt()
		if n := f.received.Load(); n > 0 || f.sent.Load() == 0 {
			t.Errorf("%d of %d datagrams of a client that is not logged in arrived", n, f.sent.Load())
		}
	}
	admitted.halt()
	admitted.expectAll(t, "datagrams of a client that is logged in")
	if s := ann.session(); s.ID != id {
		t.Errorf("the session is %+v, want %s", s, id)
	}
}
