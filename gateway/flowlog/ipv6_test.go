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

// TestIPv6: flows of IPv6 are recorded with the fields of those of IPv4, from either side, and ICMPv6. FindFlows finds
// them in the plain file and in the packed one. Those with the gateway itself are not recorded, and the rule that has
// the kernel track them is put back and removed as that of IPv4. Long: the steps of one run, each of which needs the
// state that the one before left.
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
	w.server.Run(t, "echo hello | busybox nc -w 1 2001:db8:1::9 22 || :") // refused, which is a connection too
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
	closed := whois(t, folder, client, time.Now(), func(flow Flow) bool { return flow.Event == Ends })
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
