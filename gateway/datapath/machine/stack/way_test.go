package stack

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The tests of this package run in a namespace where this machine forwards between lan0 and wan0, whose default route
// leads to 192.0.2.2. other is a third interface. must fails the test at an error; sh runs a script.

func TestMain(m *testing.M) {
	netnstest.Main(m, `mount -t tmpfs none /run; sysctl -qw net.ipv4.ip_forward=1
ip link add lan0 type veth peer name c0; ip link add wan0 type veth peer name s0; ip link add other type veth peer name o0
for l in lan0 c0 wan0 s0 other o0; do ip link set $l up; done
ip addr add 10.1.0.1/24 dev lan0; ip addr add 192.0.2.1/24 dev wan0; ip addr add 198.51.100.1/24 dev other
ip route add default via 192.0.2.2`)
}

var (
	must = netnstest.Must
	sh   = netnstest.Run
)

var lanNetwork = netip.MustParsePrefix("10.1.0.0/24")

// find returns the way from lan0 to wan0.
func find(t *testing.T) (Way, string) {
	t.Helper()
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	wan, err := net.InterfaceByName("wan0")
	must(t, err)
	w, unsure, err := FindWay(lan, wan, lanNetwork)
	must(t, err)
	return w, unsure
}

// TestWay: addresses outside Others are behind the next hop, and addresses of this machine and broadcast addresses have
// routes of their own.
func TestWay(t *testing.T) {
	w, unsure := find(t)
	if unsure != "" || w.Next.String() != "192.0.2.2" || w.Link.String() != "192.0.2.0/24" || w.LANMTU != 1500 ||
		w.WANMTU != 1500 {
		t.Errorf("%+v, unsure: %q", w, unsure)
	}
	for _, a := range []string{"192.0.2.1", "192.0.2.255"} {
		if !slices.Contains(w.OwnRoutes, netip.MustParseAddr(a)) {
			t.Errorf("%s has no route of its own: %v", a, w.OwnRoutes)
		}
	}
	elsewhere := func(a string) bool {
		return slices.ContainsFunc(w.Others, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(a)) })
	}
	for _, a := range []string{
		"10.1.0.1", "10.1.0.7", "192.0.2.7", "198.51.100.9", "127.0.0.1", "0.0.0.1", "224.0.0.1", "255.255.255.255"} {
		if !elsewhere(a) {
			t.Errorf("%s is behind the next hop", a)
		}
	}
	for _, a := range []string{"8.8.8.8", "10.1.1.1", "198.51.101.1", "223.255.255.255"} {
		if elsewhere(a) {
			t.Errorf("%s is not behind the next hop", a)
		}
	}
}

// TestUncertainWays: after each script addresses do not determine a packet's way, or there is none, and FindWay gives
// the reason. After undo it finds the way again.
func TestUncertainWays(t *testing.T) {
	for _, c := range []struct{ script, undo, reason string }{
		{"ip rule add fwmark 1 lookup 100", "ip rule del fwmark 1 lookup 100", "rules of routing"},
		{"ip rule add from 10.1.0.9 lookup main", "ip rule del from 10.1.0.9 lookup main", "rules of routing"},
		{"ip rule add tos 0x10 lookup main", "ip rule del tos 0x10 lookup main", "rules of routing"},
		{"ip rule add ipproto tcp dport 80 lookup 100", "ip rule del ipproto tcp dport 80 lookup 100", "rules of routing"},
		{"ip rule add iif lan0 lookup main", "ip rule del iif lan0 lookup main", "rules of routing"},
		{"ip rule add pref 32766 lookup main suppress_prefixlength 0",
			"ip rule del pref 32766 lookup main suppress_prefixlength 0", "rules of routing"},
		{"ip rule add pref 100 lookup main; ip rule del pref 32766",
			"ip rule del pref 100; ip rule add pref 32766 lookup main", "rules of routing"},
		{"ip rule del pref 32766", "ip rule add pref 32766 lookup main", "default rules of routing are missing"},
		{"ip route add default via 198.51.100.2 metric 100", "ip route del default via 198.51.100.2 metric 100",
			"more than one default route"},
		{"ip route replace default via 198.51.100.2", "ip route replace default via 192.0.2.2", "no next hop at the WAN"},
		{"ip route replace default dev wan0", "ip route replace default via 192.0.2.2", "no next hop at the WAN"},
		{"ip route replace default nexthop via 192.0.2.2 nexthop via 192.0.2.3", "ip route replace default via 192.0.2.2",
			"no next hop at the WAN"},
		{"ip route replace default via 192.0.2.2 mtu 1400", "ip route replace default via 192.0.2.2",
			"no next hop at the WAN"},
		{"for i in $(seq 0 1100); do echo route add 203.$((i / 256)).$((i % 256)).0/24 via 192.0.2.2; done | ip -batch -",
			"ip route flush root 203.0.0.0/8", "too many routes"},
		{"ip route del default", "ip route add default via 192.0.2.2", "no default route"},
		{"ip route add 10.1.0.128/25 via 198.51.100.2", "ip route del 10.1.0.128/25", "routes within the LAN"},
		{"ip route del 10.1.0.0/24 dev lan0", "ip route add 10.1.0.0/24 dev lan0 src 10.1.0.1 scope link",
			"no route to the LAN"},
		{"sysctl -qw net.ipv4.conf.wan0.forwarding=0", "sysctl -qw net.ipv4.conf.wan0.forwarding=1", "wan0 does not forward"},
		{"ip link set lan0 down", "ip link set lan0 up", "lan0 is down"},
		{"ip link set s0 down", "ip link set s0 up", "wan0 is down"},
		{"ip link add br0 type bridge; ip link set lan0 master br0", "ip link del br0", "lan0 is part of another interface"},
		{"ip neigh add 192.0.2.2 dev wan0 nud failed", "ip neigh flush all; ip neigh del 192.0.2.2 dev wan0 || :",
			"the next hop does not answer"},
	} {
		sh(t, c.script)
		if w, unsure := find(t); !strings.Contains(unsure, c.reason) {
			t.Errorf("%s: unsure %q, want %q: %+v", c.script, unsure, c.reason, w)
		}
		sh(t, c.undo)
		if w, unsure := find(t); unsure != "" {
			t.Fatalf("%s: still unsure: %q, %+v", c.undo, unsure, w)
		}
	}
}

// TestAddressesWithOwnRoutes: an address of the WAN's network with its own route is in OwnRoutes. If a whole network
// within it has its own route, Way has no Link.
func TestAddressesWithOwnRoutes(t *testing.T) {
	sh(t, "ip route add unreachable 192.0.2.9/32")
	if w, unsure := find(t); unsure != "" || !slices.Contains(w.OwnRoutes, netip.MustParseAddr("192.0.2.9")) {
		t.Errorf("%+v, unsure: %q", w, unsure)
	}
	sh(t, "ip route add 192.0.2.64/26 via 198.51.100.2")
	if w, unsure := find(t); unsure != "" || w.Link.IsValid() || len(w.OwnRoutes) > 0 {
		t.Errorf("with a network within: %+v, unsure: %q", w, unsure)
	}
	sh(t, "ip route del 192.0.2.64/26; ip route del unreachable 192.0.2.9/32")
}

// TestRules: Rules names the chains that affect forwarding, and no others.
func TestRules(t *testing.T) {
	nobodys := func(uint8, string) bool { return false }
	rules := func(own func(uint8, string) bool) string {
		t.Helper()
		names, err := Rules(own, "lan0", "wan0")
		must(t, err)
		return strings.Join(names, ", ")
	}
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	sh(t, `nft 'add table ip a; add chain ip a in { type filter hook input priority 0; }; add rule ip a in drop; add chain ip a through { type filter hook forward priority 0; }'`)
	if got := rules(nobodys); got != "" {
		t.Errorf("without a rule for what is forwarded: %s", got)
	}
	sh(t, `nft 'add rule ip a through accept; add table inet b; add chain inet b post { type filter hook postrouting priority 0; policy drop; }; add chain inet b free; add rule inet b free drop'`)
	if got := rules(nobodys); got != "ip a through, inet b post" {
		t.Errorf("rules in %s", got)
	}
	sh(t, `nft 'add table netdev d; add chain netdev d elsewhere { type filter hook ingress device other priority 0; policy drop; }; add chain netdev d quiet { type filter hook ingress device lan0 priority 0; }'
nft 'add chain netdev d out { type filter hook egress device other priority 0; policy drop; }; add chain netdev d lan { type filter hook ingress devices = { other, lan0 } priority 0; policy drop; }'
nft 'add chain inet b in { type filter hook ingress device wan0 priority 0; policy drop; }; add chain inet b there { type filter hook ingress device other priority 0; policy drop; }'`)
	if got := rules(nobodys); got != "ip a through, inet b post, inet b in, netdev d out, netdev d lan" {
		t.Errorf("with chains at devices, rules in %s", got)
	}
	sh(t, "nft delete table netdev d; nft delete chain inet b in; nft delete chain inet b there")
	if got := rules(
		func(family uint8, table string) bool { return family == unix.NFPROTO_IPV4 && table == "a" }); got != "inet b post" {
		t.Errorf("but for a's, rules in %s", got)
	}
}

// TestFollow: changes are reported, except of the LAN's neighbours. Long: two tables of changes.
func TestFollow(t *testing.T) {
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	f, err := Follow()
	must(t, err)
	routing, rules := make(chan struct{}, 100), make(chan struct{}, 100)
	reports := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	sh(t, "ip neigh replace 10.1.0.66 lladdr 02:00:00:00:00:66 dev lan0")
	must(t, f.Run(Changes{LAN: lan.Index, Routing: reports(routing), Rules: reports(rules)}))
	for label, c := range map[string]chan struct{}{
		"ip route add 203.0.113.0/24 via 192.0.2.2; ip route del 203.0.113.0/24":                          routing,
		"ip neigh replace 192.0.2.66 lladdr 02:00:00:00:00:66 dev wan0; ip neigh del 192.0.2.66 dev wan0": routing,
		"sysctl -qw net.ipv4.conf.other.forwarding=0; sysctl -qw net.ipv4.conf.other.forwarding=1":        routing,
		"ip rule add from 10.9.0.0/16 lookup main; ip rule del from 10.9.0.0/16":                          routing,
		"nft add table ip c; nft delete table ip c":                                                       rules,
		"ip nexthop add id 7 via 192.0.2.7 dev wan0; ip nexthop del id 7":                                 routing,
		"sysctl -qw net.ipv4.conf.other.rp_filter=1; sysctl -qw net.ipv4.conf.other.rp_filter=0":          routing,
		"ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir fwd; ip xfrm policy flush":                rules,
		"ip xfrm policy setdefault fwd block; ip xfrm policy setdefault fwd accept":                       rules,
	} {
		sh(t, label)
		<-c
	}
	must(t, f.Close())
	for len(routing) > 0 {
		<-routing
	}
	told := 0
	for range 5 { // the kernel may tell late of the WAN's neighbours above, but not each time
		f, err = Follow()
		must(t, err)
		must(t, f.Run(Changes{LAN: lan.Index, Routing: reports(routing), Rules: reports(rules)}))
		sh(t, "ip neigh replace 10.1.0.66 lladdr 02:00:00:00:00:67 dev lan0; ip neigh del 10.1.0.66 dev lan0; ip route add "+
			"203.0.113.0/24 via 192.0.2.2")
		<-routing
		must(t, f.Close())
		told = len(routing)
		for len(routing) > 0 {
			<-routing
		}
		sh(t, "ip route del 203.0.113.0/24")
		if told == 0 {
			return
		}
	}
	t.Errorf("told %d times of a neighbour of the LAN's", told)
}
