// Tests of the log with IPv6. newWorld makes a client and a server with this namespace as a router between them;
// holders tells which user has the client's address; start runs a log in a folder, and whois searches it until it finds
// a flow (log_test.go).

package flowlog

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// newWorld6 is newWorld with IPv6, which is not translated.
func newWorld6(t *testing.T) network {
	t.Helper()
	w := newWorld(t)
	run(t, "sysctl -qw net.ipv6.conf.all.forwarding=1; ip addr add 2001:db8:1::1/64 dev lan0 nodad; "+
		"ip addr add 2001:db8:9::1/64 dev wan0 nodad")
	t.Cleanup(func() { run(t, "sysctl -qw net.ipv6.conf.all.forwarding=0") })
	w.client.Run(t, "ip addr add 2001:db8:1::9/64 dev c0 nodad; ip route add default via 2001:db8:1::1")
	w.server.Run(t, "ip addr add 2001:db8:9::9/64 dev s0 nodad; ip route add default via 2001:db8:9::1")
	return w
}

func config6(folder string, p *holders) Config {
	cfg := config(folder, p)
	cfg.Gateway6 = netip.MustParseAddr("2001:db8:1::1")
	cfg.IsClient6 = netip.MustParsePrefix("2001:db8:1::/64").Contains
	cfg.HolderOf = func(a netip.Addr, since time.Time) Holder {
		if a == netip.MustParseAddr("2001:db8:1::9") {
			a = netip.MustParseAddr("10.1.0.9")
		}
		return p.get(a, since)
	}
	return cfg
}

// TestIPv6: the log records flows of IPv6, begun from either side, and ICMPv6, with the fields that flows of IPv4 have.
// FindFlows finds them in the plain and in the packed file. Flows with the gateway itself are not recorded. The rule
// that makes the kernel track IPv6 is restored when it is removed, and removed at the end. Long: the steps of one run,
// each of which needs the state that the one before left.
func TestIPv6(t *testing.T) {
	w, p, folder := newWorld6(t), &holders{}, t.TempDir()
	before := run(t, "nft list ruleset")
	p.set("ann")
	log, stop := start(t, config6(folder, p))
	var inside *net.UDPConn
	var err error
	w.client.Do(func() { inside, err = net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP("2001:db8:1::9")}) })
	must(t, err)
	defer inside.Close()
	for _, to := range []string{"2001:db8:1::1", "2001:db8:9::9", "2001:db8:9::9"} { // first the gateway itself
		_, err := inside.WriteToUDP([]byte("hello"), &net.UDPAddr{IP: net.ParseIP(to), Port: 5000})
		must(t, err)
	}
	open := time.Now()
	var asked net.Listener // a refused connection would have ended before whois asks
	w.client.Do(func() { asked, err = net.Listen("tcp6", "[2001:db8:1::9]:22") })
	must(t, err)
	defer asked.Close()
	var asking net.Conn
	w.server.Do(func() { asking, err = net.Dial("tcp6", asked.Addr().String()) })
	must(t, err)
	defer asking.Close()
	w.client.Run(t, "ping -q -c 1 -e 4242 2001:db8:9::9")
	in := whois(t, folder, "[2001:db8:1::9]:22", time.Now(), func(flow Flow) bool { return flow.Inbound })
	if in.Protocol != unix.IPPROTO_TCP || in.User != "ann" || in.Peer.Addr() != netip.MustParseAddr("2001:db8:9::9") {
		t.Errorf("found %+v", in)
	}
	ping := whois(t, folder, "[2001:db8:1::9]:4242", time.Now(), func(flow Flow) bool { return flow.User == "ann" })
	if ping.Protocol != unix.IPPROTO_ICMPV6 || ping.ICMPType != 128 || ping.Outside.IsValid() || ping.Inbound {
		t.Errorf("found %+v", ping)
	}
	flushConnections6(t)
	client := inside.LocalAddr().String()
	closed := whois(t, folder, client, open, func(flow Flow) bool { return flow.Event == Ends })
	if closed.User != "ann" || closed.Session != "s-ann" || closed.MAC != "02:00:00:00:00:09" || closed.UpPkts != 2 ||
		closed.UpBytes != 2*53 || closed.Peer != netip.MustParseAddrPort("[2001:db8:9::9]:5000") || closed.End.IsZero() {
		t.Errorf("found %+v", closed)
	}
	run(t, "nft delete table ip6 gatewayd-flows-lan0")
	netnstest.Await(t, "the rule", func() error {
		if n := log.Stats().Restored; n != 1 {
			return fmt.Errorf("put back %d times", n)
		}
		return nil
	})
	stop()
	if after := run(t, "nft list ruleset"); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	found, err := FindFlows(folder, netip.MustParseAddrPort(client), closed.Start)
	if err != nil || len(found.Flows) != 1 {
		t.Errorf("beside one with the server there are %+v, %v", found.Flows, err)
	}
	must(t, tidy(context.Background(), log.cfg, "", time.Now()))
	found, err = FindFlows(folder, netip.MustParseAddrPort(client), closed.Start)
	if err != nil || found.Slow > 0 || len(found.Flows) != 1 || found.Flows[0] != closed {
		t.Errorf("in the packed file: %+v, %v, not %+v", found, err, closed)
	}
}
