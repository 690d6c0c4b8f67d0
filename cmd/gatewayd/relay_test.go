// A test of a relay of DHCP. newWorld makes the host of a gateway with clients and a server, in namespaces, and
// FreeRADIUS (world_test.go).

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// relayed puts a router with ISC's relay between a client and the LAN, and returns the router's MAC address on the LAN.
// The relay names the client's port as circuit ID.
func (w *world) relayed(c *client) (mac string) {
	w.t.Helper()
	router := w.space("relay")
	router.Veth(w.t, netnstest.End{Name: "u0"}, w.hub, netnstest.End{Name: "relay"})
	router.Enable(w.t, "u0", netip.MustParsePrefix("10.1.0.2/18"))
	w.hub.Plug(w.t, "relay")
	router.Set(w.t, "ipv4/ip_forward", "1")
	w.sh(`ip -n $ID-hub link set ` + c.host + ` netns $ID-relay
ip -n $ID-relay addr add 10.1.64.1/24 dev ` + c.host + `; ip -n $ID-relay link set ` + c.host + ` up
ip -n $ID-relay route add default via 10.1.0.1`)
	router.AwaitUp(w.t, "u0")
	router.AwaitUp(w.t, c.host)
	w.spawnAt("relay", "dhcrelay.log", "dhcrelay", "-4", "-d", "-a", "--no-pid", "-id", c.host, "-iu", "u0", "10.1.0.1")
	eventually(w.t, "dhcrelay starts", func() error {
		log, _ := os.ReadFile(filepath.Join(w.Dir, "dhcrelay.log"))
		if !strings.Contains(string(log), "Sending on   Socket/fallback") {
			return fmt.Errorf("it says:\n%s", log)
		}
		return nil
	})
	return w.sh("ip -n $ID-relay -br link show u0 | awk '{print $3}'")
}

// TestRelay: a client behind a router with ISC's relay gets an address of the relay's network, comes in by RADIUS,
// which is told its circuit ID, and reaches the server by the router; it renews and releases without the relay. All of
// that outlives the daemon. A client on the LAN gets no address of that network, and what it says in option 82 is not
// believed. Long: the steps of one run, each of which needs what the one before left.
func TestRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Wide = true
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh(`ip -n $ID-router addr del 10.1.0.1/24 dev lan0; ip -n $ID-router addr add 10.1.0.1/16 dev lan0
ip -n $ID-server route replace 10.1.0.0/16 via 192.0.2.1 rto_min 5s`)
	w.add("gatewayd.toml", "\n[dhcp]\nrelays = [\"10.1.64.1/24 via 10.1.0.2\"]\n[devices]\nradius = true\n"+
		"mac_format = \"AA-BB-CC-DD-EE-FF\"\n")
	c := w.addUnaddressed()
	circuit := fmt.Sprintf("%#x", c.host)
	w.add("auth/users", "\nDEFAULT ADSL-Agent-Circuit-Id == "+circuit+
		", Service-Type == Call-Check, Auth-Type := Accept\n")
	w.auth.stop()
	w.auth.start()
	router := w.relayed(c)
	w.start()

	script := w.spawnAt(c.host, "udhcpc.log", strings.Fields(strings.Replace(c.udhcpc("-f -R"), " -q ", " ", 1))...)
	eventually(t, "a lease", func() error {
		_, text, found := strings.Cut(script.output(), "leased ")
		if !found {
			return fmt.Errorf("udhcpc says:\n%s", script.output())
		}
		addr, _, _ := strings.Cut(text, "\n")
		c.addr = netip.MustParseAddr(addr)
		return nil
	})
	if !netip.MustParsePrefix("10.1.64.0/24").Contains(c.addr) {
		t.Errorf("the client has %s", c.addr)
	}
	s := c.awaitWay(session.Authenticated, session.ByMAC)
	if s.Circuit != c.host || s.Via != router || strings.ToUpper(strings.ReplaceAll(s.MAC, ":", "-")) != c.station() {
		t.Errorf("the session is %+v", s)
	}
	if asked := w.auth.accessRequests(s.ID); len(asked) == 0 || asked[0].value("ADSL-Agent-Circuit-Id") != circuit ||
		asked[0].value("Calling-Station-Id") != c.station() {
		t.Errorf("the server was asked %v", asked)
	}
	if begun := w.acct.awaitAccounting("Start", s.ID); begun.value("ADSL-Agent-Circuit-Id") != circuit {
		t.Errorf("accounting begins with %v", begun)
	}
	c.sh("ping -c 1 -W 5 " + serverAddr.String())

	beside := w.client()
	if beside.addr.As4()[2] == 64 {
		t.Errorf("a client on the LAN has %s", beside.addr)
	}
	claims := w.addUnaddressed()
	claims.leaseBy("-x 0x52:010470726f78")
	if s := claims.session(); s.Circuit != "" {
		t.Errorf("a client's own circuit ID %q is believed", s.Circuit)
	}

	w.kill()
	w.start()
	if now := c.session(); now.ID != s.ID || now.Circuit != s.Circuit || now.Via != s.Via {
		t.Errorf("after a crash the session is %+v", now)
	}
	c.sh("ping -c 1 -W 5 " + serverAddr.String())
	must(t, script.cmd.Process.Signal(syscall.SIGUSR1))
	w.awaitDHCP("ack", 1)
	if now := c.session(); now.ID != s.ID || now.Circuit != s.Circuit || now.Via != s.Via {
		t.Errorf("after a renewal the session is %+v", now)
	}
	must(t, script.cmd.Process.Signal(syscall.SIGUSR2))
	w.awaitDHCP("release", 1)
	w.acct.awaitAccounting("Stop", s.ID)
}

// leaseBy is lease with further flags of udhcpc.
func (c *client) leaseBy(flags string) {
	c.w.t.Helper()
	_, text, _ := strings.Cut(c.sh(c.udhcpc("-n "+flags)), "leased ")
	addr, _, _ := strings.Cut(text, "\n")
	c.addr = netip.MustParseAddr(addr)
}

// awaitDHCP waits until the daemon has counted so many events of DHCP.
func (w *world) awaitDHCP(event string, least uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d of %s", least, event), func() error {
		s, err := w.status()
		if err == nil && s.DHCP[event] < least {
			err = fmt.Errorf("%v", s.DHCP)
		}
		return err
	})
}
