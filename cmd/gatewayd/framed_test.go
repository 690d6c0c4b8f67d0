// A test of networks behind PPPoE clients (Framed-Route). newNetwork makes the host of a gateway with clients and a
// server, in namespaces (world_test.go); a subscriber is a PPPoE client within the test's process (subscriber_test.go).

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// TestFramedRoutes: a user to whom the RADIUS server gives a pool and networks (Framed-Route) has an address of the
// pool, and sends and receives from the networks over its PPPoE session, on the data paths ebpf and tun. The networks
// are accounted, go to another device with the session, and end with it.
func TestFramedRoutes(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "kind = \"tun\"", "kind = \"tun\"\nfast = true"} {
		t.Run(strings.ReplaceAll(path, "\n", " "), func(t *testing.T) {
			w := newNetwork(t)
			w.Lines, w.Path = `echo = "1s"`, path
			w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
			w.write("radius/gatewayd.toml", "gatewayd.toml", w)
			if path != "" {
				w.sh("ip -n $ID-router addr flush dev lan0") // the TUN device has the gateway's address
			}
			w.sh("ip -n $ID-server route replace default via 192.0.2.1")
			w.start()
			framedRoutes(t, w)
		})
	}
}

// framedRoutes checks one data path: see TestFramedRoutes. Long: the steps of one run, each of which needs the state
// that the one before left.
func framedRoutes(t *testing.T, w *world) {
	hosts := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("198.18.5.77")}
	routes := func() string { return w.sh("ip -n $ID-router -4 route show proto 103") }
	s := w.addUnaddressed().subscriber(ppp.Config{User: "routed", Password: "right"})
	terms, err := s.dial()
	must(t, err)
	if first := netip.MustParseAddr("10.1.0.200"); terms.Local != first {
		t.Errorf("has %s, not %s of its pool", terms.Local, first)
	}
	sent := s.ping(terms.Local, serverAddr, 100)
	for _, host := range hosts {
		sent += s.ping(host, serverAddr, 100)
	}
	one, err := w.session("routed")
	must(t, err)
	if n := uint64(sent); one.UpPackets != n || one.UpBytes != 100*n || one.DownBytes != 100*n {
		t.Errorf("%d echo requests of 100 bytes are counted as %+v", sent, one)
	}
	if r := w.acct.awaitAccounting("Start", one.ID); !slices.Contains(r["Framed-Route"], "203.0.113.0/28 0.0.0.0 1") ||
		len(r["Framed-Route"]) != 2 {
		t.Errorf("accounted as %v", r)
	}
	if present := routes(); strings.Count(present, " dev ") != 2 {
		t.Errorf("the kernel has\n%s", present)
	}
	for _, user := range []string{"thief", "lost"} {
		if _, err := w.addUnaddressed().subscriber(ppp.Config{User: user, Password: "right"}).dial(); !errors.Is(
			err, ppp.ErrRefused) {
			t.Errorf("%s: %v", user, err)
		}
	}
	s.ping(hosts[0], serverAddr, 100)

	w.kill()
	w.start()
	s.ping(hosts[1], serverAddr, 100)
	other := w.addUnaddressed().subscriber(ppp.Config{User: "routed", Password: "right"})
	_, err = other.dial()
	must(t, err)
	s.awaitEnd()
	other.ping(hosts[0], serverAddr, 100)
	if r := w.acct.awaitAccounting("Stop", one.ID); len(r["Framed-Route"]) != 2 {
		t.Errorf("accounted as %v", r)
	}
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user routed")
	eventually(t, "the end of the routes", func() error {
		if left := routes(); strings.TrimSpace(left) != "" {
			return fmt.Errorf("left:\n%s", left)
		}
		return nil
	})
}
