// Tests of IPv6 over PPPoE. newNetwork makes the host of a gateway with clients and a server, in namespaces
// (world_test.go); a subscriber is a PPPoE client within the test's process (subscriber_test.go). eventually waits
// until a function returns no error.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
)

// Addresses of worlds with IPv6.
const (
	gateway6 = "2001:db8:1::1"
	server6  = "2001:db8:9::2"
)

// newLines6 is newLines where the LAN has IPv6, with lines of [lan] beside its address.
func newLines6(t *testing.T, lan, settings string) *world { return newLines6At(t, "", lan, settings) }

// newLines6At is newLines6 on a data path, which is given by lines of [datapath].
func newLines6At(t *testing.T, path, lan, settings string) *world {
	w := newNetwork(t)
	w.enable6()
	w.Path = path
	w.LAN, w.Lines = "address6 = \""+gateway6+"/64\"\n"+lan, settings
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.start()
	return w
}

// enable6 gives the router and the server IPv6.
func (w *world) enable6() {
	w.t.Helper()
	w.sh(`router="nsenter --net=/run/netns/$ID-router" server="nsenter --net=/run/netns/$ID-server"
$router sysctl -qw net.ipv6.conf.lan0.addr_gen_mode=1 net.ipv6.conf.lan0.disable_ipv6=0
$router sysctl -qw net.ipv6.conf.wan0.disable_ipv6=0 net.ipv6.conf.all.forwarding=1
$server sysctl -qw net.ipv6.conf.s0.disable_ipv6=0 net.ipv6.conf.s0.accept_ra=0
$router ip addr add fe80::ff:fe00:ff/64 dev lan0 nodad # the users' file names it
$router ip addr add ` + gateway6 + `/64 dev lan0 nodad
$router ip addr add 2001:db8:9::1/64 dev wan0 nodad
$server ip addr add ` + server6 + `/64 dev s0 nodad
$server ip route add 2001:db8::/32 via 2001:db8:9::1`)
}

// global6 waits until the client's kernel has made a global address for a link.
func (c *client) global6(link string) (addr netip.Addr) {
	c.w.t.Helper()
	eventually(c.w.t, "a global address of "+link, func() error {
		out, err := c.try("ip -6 -o addr show dev " + link + " scope global -tentative")
		found := regexp.MustCompile(`inet6 ([^/ ]+)/`).FindStringSubmatch(out)
		if err == nil && found == nil {
			err = errors.New("none yet")
		}
		if err == nil {
			addr, err = netip.ParseAddr(found[1])
		}
		return err
	})
	return addr
}

// ping6 sends an echo request to the server from an address.
func (c *client) ping6(from netip.Addr) error {
	_, err := c.try(fmt.Sprintf("ping -6 -q -c 1 -W 4 -I %s %s", from, server6))
	return err
}

// TestDeviceOnBothLinks: a device that dials PPPoE, and is a host of the LAN with the same MAC address, is two clients.
// What it makes of the LAN's router advertisements is no address of its session.
func TestDeviceOnBothLinks(t *testing.T) {
	t.Parallel()
	w := newLines6(t, "", "echo_failures = 60")
	c := w.addUnaddressed()
	terms, err := c.subscriber(ppp.Config{User: "ann", Password: "right"}).dial()
	must(t, err)
	c.sh("sysctl -qw net.ipv6.conf.c0.disable_ipv6=0")
	c.addr = c.global6("c0")
	_, _ = c.try(curl + "-o /dev/null http://[" + gateway6 + "]:8080/login") // whatever comes of it, the gateway hears it
	if s := c.session(); s.PPPoE != 0 || s.Addr != c.addr {
		t.Fatalf("the host of the LAN is taken for the session: %+v", s)
	}
	daemon, err := w.control()
	must(t, err)
	_, err = daemon.Login(context.Background(), control.LoginRequest{Addr: c.addr, User: "bob"})
	must(t, err)
	eventually(t, "the way out", func() error { return c.ping6(c.addr) })
	if one, err := w.session("ann"); err != nil || one.Addr != terms.Local || len(one.Further) > 0 {
		t.Errorf("the session is %+v, %v", one, err)
	}
}

// prefixes6 are of which clients of these tests have a /64 each.
const prefixes6 = `client_prefixes = "2001:db8:100::/48"`

// dial6 is a client of a PPPoE session with both families. Its kernel makes an address of the prefix that it is told.
func (w *world) dial6(user string) (*client, *subscriber) {
	w.t.Helper()
	return w.dialIn6(user, "2001:db8:100::/48")
}

// dialIn6 is dial6 for a client whose prefix is of a network.
func (w *world) dialIn6(user, network string) (*client, *subscriber) {
	w.t.Helper()
	w.sh("nsenter --net=/run/netns/$ID-server ethtool -K s0 tx off") // see onLine
	c := w.addUnaddressed()
	s := c.subscriber(ppp.Config{User: user, Password: "right", IPv6: true})
	_, err := s.dial()
	must(w.t, err)
	terms := s.terms6()
	c.sh("sysctl -qw net.ipv6.conf.default.disable_ipv6=0 net.ipv6.conf.default.addr_gen_mode=1")
	s.route(c, terms)
	c.sh(fmt.Sprintf("ip addr add %s/64 dev ppp0", local6(terms.LocalID)))
	c.addr = c.global6("ppp0")
	if !netip.MustParsePrefix(network).Contains(c.addr) {
		w.t.Fatalf("%s has %s", user, c.addr)
	}
	return c, s
}

// local6 is the link-local address of an interface identifier.
func local6(id [8]byte) netip.Addr {
	return netip.AddrFrom16([16]byte(append([]byte{0: 0xfe, 1: 0x80, 7: 0}, id[:]...)))
}

// terms6 waits until IPv6 is agreed on.
func (s *subscriber) terms6() (terms ppp.Terms) {
	s.t.Helper()
	eventually(s.t, "IPV6CP", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if terms = s.terms; terms.PeerID == ([8]byte{}) {
			return fmt.Errorf("agreed on %+v", terms)
		}
		return nil
	})
	return terms
}

// TestSubscribersIPv6: subscribers have IPv6 beside IPv4 in their sessions, each a /64 of its own. Both families are
// one session with one bill, which a killed daemon's successor takes up.
func TestSubscribersIPv6(t *testing.T) {
	t.Parallel()
	newLines6(t, prefixes6, "ipv6 = true\necho_failures = 60").bothFamilies()
}

// bothFamilies is TestSubscribersIPv6 on any data path. Long: the steps of one run, each of which needs the state that
// the one before left.
func (w *world) bothFamilies() {
	t := w.t
	t.Helper()
	w.sh("nsenter --net=/run/netns/$ID-router ethtool -K wan0 gro on") // the gateway aggregates what it receives
	ann, line := w.dial6("ann")
	router := local6(line.terms6().PeerID)
	if out := ann.sh("ip -6 route show default"); !strings.Contains(out, "via "+router.String()) {
		t.Errorf("the gateway is %s in the session, the client's default route is %s", router, out)
	}
	must(t, ann.ping6(ann.addr)) // the first packet
	ann.sh("ping -6 -q -c 1 -W 9 " + router.String() + "%ppp0")
	ann.sh("ping -6 -q -c 1 -W 9 " + gateway6)
	var one control.Session
	eventually(t, "the client's address", func() (err error) {
		if one, err = w.session("ann"); err == nil && !slices.Equal(one.Further, []netip.Addr{ann.addr}) {
			err = fmt.Errorf("the session has %v, the client %s", one.Further, ann.addr)
		}
		return err
	})

	ann.sh("ip route add " + serverAddr.String() + " dev ppp0")
	ann.sh("ping -q -c 10 -i 0.05 -s 100 " + serverAddr.String())
	ann.sh("ping -6 -q -c 10 -i 0.05 -s 100 -I " + ann.addr.String() + " " + server6)
	want := one.UpBytes + 10*(128+148)
	eventually(t, "the bytes of both families", func() error {
		now, err := w.session("ann")
		if err == nil && (now.UpBytes != want || now.DownBytes != one.DownBytes+10*(128+148)) {
			err = fmt.Errorf("counted %d and %d, then %d and %d", one.UpBytes, one.DownBytes, now.UpBytes, now.DownBytes)
		}
		return err
	})
	w.transferTo(ann, server6, 5_000_000)

	bob, _ := w.dial6("guest-bob")
	if netip.PrefixFrom(bob.addr, 64).Contains(ann.addr) {
		t.Errorf("%s and %s are of one prefix", ann.addr, bob.addr)
	}
	bob.addLocal(ann.addr)
	w.refused(bob, ann.addr)
	must(t, bob.ping6(bob.addr))
	must(t, ann.ping6(ann.addr))

	w.kill()
	must(t, ann.ping6(ann.addr))
	w.start()
	must(t, ann.ping6(ann.addr))
	if now, err := w.session("ann"); err != nil || now.ID != one.ID || !slices.Equal(now.Further, one.Further) {
		t.Errorf("after a restart the session is %+v, %v", now, err)
	}
	ann.addLocal(ann.addr.Next())
	must(t, ann.ping6(ann.addr.Next()))
	bob.addLocal(ann.addr.Next().Next())
	w.refused(bob, ann.addr.Next().Next())

	line.hangUp()
	if reason := line.awaitEnd(); reason == nil {
		t.Error("the link ended without a reason")
	}
	eventually(t, "the session's end", func() error {
		if _, err := w.session("ann"); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.refused(ann, ann.addr) // its host goes on sending in the session
	if r := w.acct.awaitAccounting("Stop", one.ID); r.number("Acct-Output-Octets") < 5_000_000 {
		t.Errorf("accounted as %v", r)
	}
}

// refused checks that a client's packets from an address do not pass.
func (w *world) refused(c *client, from netip.Addr) {
	w.t.Helper()
	before := w.received6()
	if _, err := c.try(fmt.Sprintf("ping -6 -q -c 3 -i 0.2 -W 1 -I %s %s", from, server6)); err == nil {
		w.t.Errorf("%s passes from %s", from, c.host)
	}
	if now := w.received6(); now != before {
		w.t.Errorf("%d echo requests from %s reach the server", now-before, from)
	}
}

// received6 is how many echo requests the server has received by IPv6.
func (w *world) received6() (n int) {
	w.t.Helper()
	return received(w.t, w.sh("nsenter --net=/run/netns/$ID-server cat /proc/net/snmp6"))
}

// received is how many echo requests a host has received by IPv6, by its counters.
func received(t testing.TB, counters string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(regexp.MustCompile(`Icmp6InEchos\s+(\d+)`).FindStringSubmatch(counters)[1], &n)
	must(t, err)
	return n
}
