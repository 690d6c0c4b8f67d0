// Tests of connections by IPv6. connect makes connections of 40 clients (client(i)), and connections counts those of
// each (end_test.go).

package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// client6 is the IPv6 address of one of several clients.
func client6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", i)) }

// connect6 connects three clients by IPv6 to a server and to the gateway, each client from one port.
func connect6(t *testing.T, server, gateway netip.Addr) {
	t.Helper()
	for i := range 3 {
		for _, to := range []netip.Addr{server, gateway} {
			from := &net.UDPAddr{IP: client6(i + 2).AsSlice(), Port: 4000}
			c, err := net.DialUDP("udp6", from, &net.UDPAddr{IP: to.AsSlice(), Port: 9})
			must(t, err)
			_, err = c.Write([]byte("x"))
			must(t, err)
			must(t, c.Close())
		}
	}
}

// TestIPv6: connections of IPv6 are listed beside those of IPv4, found by their reply, and end with their clients,
// however the kernel is asked. Those of other clients and with the gateway go on. Long: the steps of one run, each of
// which needs the state that the one before left.
func TestIPv6(t *testing.T) {
	server, gateway6 := netip.MustParseAddr("2001:db8:9::2"), netip.MustParseAddr("2001:db8:1::1")
	connect(t)
	before := connections(t)
	left := func() (of map[netip.Addr]int) {
		of = map[netip.Addr]int{}
		must(t, List(func(c Connection) {
			if c.Orig.From.Addr().Is6() {
				of[c.Orig.From.Addr()]++
				if back, found, err := FindByReply(c.Reply); err != nil || !found || back.Orig != c.Orig {
					t.Errorf("by the reply of %v: %v, %v, %v", c.Orig, back.Orig, found, err)
				}
			}
		}))
		return of
	}
	wants := func(when string, want ...int) {
		t.Helper()
		of := left()
		for i, n := range want {
			if of[client6(i+2)] != n {
				t.Errorf("%s: left %v, want %v", when, of, want)
			}
		}
		if got := connections(t); got[1] != before[1] || got[4] != before[4] {
			t.Errorf("%s: of IPv4 are left %v of %v", when, got, before)
		}
	}
	netnstest.Await(t, "all connections", func() error {
		connect6(t, server, gateway6) // again: a packet may be lost where the kernel's table is busy
		if of := left(); of[client6(2)] != 2 || of[client6(3)] != 2 || of[client6(4)] != 2 {
			return fmt.Errorf("there are %v", of)
		}
		return nil
	})
	wants("at first", 2, 2, 2)
	e := Ender{Gateway: gateway, Gateway6: gateway6}
	must(t, e.End(netip.PrefixFrom(client6(2), 128)))
	wants("after one has left", 1, 2, 2)
	one := netip.PrefixFrom(client6(3), 128)
	must(t, e.endWhere(one.Contains, queryFrom(one.Addr(), tupleOrig), queryFrom(one.Addr(), tupleReply)))
	wants("after the kernel was asked for one", 1, 1, 2)
	n := 0
	must(t, list(queryFrom(client6(4), tupleOrig), func(Connection) { n++ }))
	if n != 2 {
		t.Errorf("the kernel lists %d connections from an address, want 2", n)
	}
	must(t, e.EndWhere(func(a netip.Addr) bool { return a == client6(4) }))
	wants("in the end", 1, 1, 1)
}

// TestReadIPv6: of a message about an echo by ICMPv6 all is read that there is of one by ICMP.
func TestReadIPv6(t *testing.T) {
	netnstest.Run(t, "ping -6 -q -c 1 -e 4242 ::1")
	addr := netip.AddrPortFrom(netip.IPv6Loopback(), 4242)
	want := Tuple{From: addr, To: addr, Protocol: unix.IPPROTO_ICMPV6, ICMPType: 128}
	found := false
	must(t, List(func(c Connection) {
		if c.Orig.From == addr {
			if found = true; c.Orig != want {
				t.Errorf("read %+v, want %+v", c.Orig, want)
			}
			for n := range c.message {
				if _, err := Read(c.message[:n]); err == nil && n%4 != 0 {
					t.Errorf("of %d bytes: no error", n)
				}
			}
		}
	}))
	if !found {
		t.Error("the echo is no connection")
	}
}
