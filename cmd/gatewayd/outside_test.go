// A test of PPPoE clients whose addresses are outside the LAN. newNetwork makes the host of a gateway, in namespaces
// (world_test.go); the clients are the tests' own (pppoe_test.go).

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// pooled is the first address of the pool outside the LAN.
var pooled = netip.MustParseAddr("203.0.113.100")

// newLinesOutside makes the host of a gateway with PPPoE clients that may have addresses outside the LAN.
func newLinesOutside(t *testing.T, path string) *world {
	w := newNetwork(t)
	w.Path, w.Pool = path, `public = ["203.0.113.100-203.0.113.101"]`
	w.Lines = "echo = \"1s\"\necho_failures = 60\nnetworks = [\"203.0.113.64/26\"]"
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh("ip -n $ID-server route replace default via 192.0.2.1")
	w.start()
	return w
}

// dialAs logs a user in, who is to have an address.
func (w *world) dialAs(user string, want netip.Addr) *subscriber {
	w.t.Helper()
	s := w.addUnaddressed().subscriber(ppp.Config{User: user, Password: "right"})
	if terms, err := s.dial(); err != nil || terms.Local != want {
		w.t.Fatalf("%s has %+v, %v", user, terms, err)
	}
	return s
}

// TestAddressesOutsideOfTheKernel: addresses outside the LAN with the kernel's PPPoE, whose clients have no networks
// behind them.
func TestAddressesOutsideOfTheKernel(t *testing.T) {
	kernelPPPoE(t)
	w := newLinesOutside(t, kernelPath)
	s := w.dialAs("away", pooled)
	s.ping(pooled, serverAddr, 100)
	w.kill()
	s.ping(pooled, serverAddr, 100)
	w.start()
	s.ping(pooled, serverAddr, 100)
	if one, err := w.session("away"); err != nil || one.Addr != pooled || one.UpPackets < 3 || one.DownPackets < 3 {
		t.Errorf("the session is %+v, %v", one, err)
	}
	if way := w.sh("ip -n $ID-router route get " + pooled.String()); !strings.Contains(way, " dev gw") {
		t.Errorf("the kernel has the way %s", way)
	}
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user away")
	eventually(t, "the end of the way", func() error {
		if way := w.sh("ip -n $ID-router route get " + pooled.String() + " || true"); strings.Contains(way, " dev gw") {
			return fmt.Errorf("left: %s", way)
		}
		return nil
	})
}

// TestAddressesOutsideTheLAN: a RADIUS server gives clients addresses of pppoe.networks, by Framed-IP-Address and by
// Framed-Pool. They are reached and billed, also after kill -9, with what is behind them, until their sessions end. An
// address of no network is refused, and a user that comes back keeps its address. Long: the steps of one run, each of
// which needs the state that the one before left.
func TestAddressesOutsideTheLAN(t *testing.T) {
	t.Parallel()
	w := newLinesOutside(t, "")
	own, behind := netip.MustParseAddr("203.0.113.77"), netip.MustParseAddr("198.18.5.9")
	s := w.dialAs("abroad", own)
	w.dialAs("away", pooled).ping(pooled, serverAddr, 100)
	sent := s.ping(own, serverAddr, 100) + s.ping(behind, serverAddr, 100)
	one, err := w.session("abroad")
	must(t, err)
	if n := uint64(sent); one.Addr != own || one.UpPackets != n || one.UpBytes != 100*n || one.DownBytes != 100*n {
		t.Errorf("%d echo requests of 100 bytes are counted as %+v", sent, one)
	}
	if r := w.acct.awaitAccounting("Start", one.ID); r.value("Framed-IP-Address") != own.String() ||
		len(r["Framed-Route"]) != 1 {
		t.Errorf("accounted as %v", r)
	}
	if _, err := w.addUnaddressed().subscriber(ppp.Config{User: "nowhere", Password: "right"}).dial(); !errors.Is(
		err, ppp.ErrRefused) {
		t.Errorf("with an address of no network: %v", err)
	}

	w.kill()
	s.ping(own, serverAddr, 100)
	w.start()
	s.ping(own, serverAddr, 100)
	s.ping(behind, serverAddr, 100)
	again := w.dialAs("abroad", own)
	s.awaitEnd()
	again.ping(own, serverAddr, 100)
	if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Framed-IP-Address") != own.String() {
		t.Errorf("accounted as %v", r)
	}
	w.sh("gatewayd logout --socket $DIR/run/control.sock --user abroad; " +
		"gatewayd logout --socket $DIR/run/control.sock --user away")
	eventually(t, "the end of the routes", func() error {
		if left := w.sh("ip -n $ID-router -4 route show proto 103"); strings.TrimSpace(left) != "" {
			return fmt.Errorf("left:\n%s", left)
		}
		return nil
	})
}
