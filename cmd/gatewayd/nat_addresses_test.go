// A test of nat.source: addresses that clients have outside. translating makes the host of a gateway that translates
// addresses, with two clients, which are logged in as the users ann and frugal (nat_test.go); an identHost is a host on
// the WAN (ident_test.go).

package main

import (
	"net/netip"
	"strings"
	"testing"
)

// TestNATSource: with addresses in nat.source and no ports_per_client, each client keeps one of these addresses, which
// are routed to the gateway. A forward works at each of the addresses and at the gateway's own, from outside and from
// another client. Packets from outside to an address that no connection uses are not sent back.
func TestNATSource(t *testing.T) {
	t.Parallel()
	w, ann, bob := translating(t, "",
		"[nat]\nsource = [\"198.51.100.16-198.51.100.23\"]\n[[nat.forward]]\nproto = \"tcp\"\nports = 8022\nto = \"ANN:7000\"")
	w.sh(`ip -n $ID-server route add 198.51.100.0/24 via 192.0.2.1; ip -n $ID-router route add default via 192.0.2.2`)
	server, other := w.identHost("192.0.2.2"), w.identHost("192.0.2.3")
	for _, c := range []*client{ann, bob} {
		first := c.sourceSeenBy(server).Addr()
		if first.Less(netip.MustParseAddr("198.51.100.16")) || netip.MustParseAddr("198.51.100.23").Less(first) {
			t.Errorf("%v has %v", c.addr, first)
		}
		for _, a := range []*identHost{server, other, server, other} {
			if got := c.sourceSeenBy(a).Addr(); got != first {
				t.Errorf("%v has %v and %v", c.addr, first, got)
			}
		}
	}
	l, _ := ann.serving(7000)
	for _, address := range []string{"198.51.100.16:8022", "198.51.100.23:8022", "192.0.2.1:8022"} {
		for _, from := range []string{"server", bob.host} {
			if got, err := w.reaches(from, netip.MustParseAddrPort(address), l); err != nil ||
				(got.Addr() == serverAddr) != (from == "server") {
				t.Errorf("%s reaches %s as %v, %v", from, address, got, err)
			}
		}
	}
	if st, err := w.status(); err != nil || st.Datapath != "ebpf, flow cache" {
		t.Errorf("the status says %q, %q, %v", st.Datapath, st.Why, err)
	}
	w.sh(`nsenter --net=/run/netns/$ID-server nft 'table ip back { chain in { type filter hook prerouting priority 0; ip daddr 198.51.100.0/24 counter; }; }'`)
	// The answer to the second ping follows a packet that the first might send back.
	w.sh(`nsenter --net=/run/netns/$ID-server sh -c 'ping -c 1 -W 0.1 198.51.100.18 || ping -c 1 192.0.2.1'`)
	if back := w.sh("nsenter --net=/run/netns/$ID-server nft list table ip back"); !strings.Contains(
		back, "counter packets 0 ") {
		t.Errorf("a packet to an address that nobody uses is sent back:\n%s", back)
	}
}
