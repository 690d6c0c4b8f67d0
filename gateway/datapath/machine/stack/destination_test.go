// Tests of ByDestination and of reading lists that change. lanNetwork is the network of the LAN (way_test.go).

package stack

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestByDestination: after each script ByDestination gives the reason why a packet's destination alone does not
// determine its way, or no reason (""), however many next hops there are. undo takes the script back. Long: most lines
// are the table of cases.
func TestByDestination(t *testing.T) {
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	wan, err := net.InterfaceByName("wan0")
	must(t, err)
	judged := func() string {
		t.Helper()
		unsure, err := ByDestination(lan, wan, lanNetwork)
		must(t, err)
		return unsure
	}
	const two = "nexthop via 192.0.2.2 nexthop via 198.51.100.2"
	for _, c := range []struct{ script, undo, reason string }{
		{"true", "true", ""},
		{"ip route add 203.0.113.0/24 via 198.51.100.2; ip route add default via 198.51.100.2 metric 100; ip route add " +
			"unreachable 10.0.0.0/8",
			"ip route del 203.0.113.0/24; ip route del default metric 100; ip route del unreachable 10.0.0.0/8", ""},
		{"ip route add default via 198.51.100.2 table 100", "ip route flush table 100", ""},
		{"ip nexthop add id 1 via 192.0.2.2 dev wan0; ip route replace default nhid 1",
			"ip route replace default via 192.0.2.2; ip nexthop flush >/dev/null", ""},
		{"ip addr add 10.1.0.5/32 dev lo", "ip addr del 10.1.0.5/32 dev lo", ""},
		{"ip rule add from 10.1.0.9 lookup main", "ip rule del from 10.1.0.9 lookup main", "rules of routing"},
		{"ip route replace default " + two, "ip route replace default via 192.0.2.2", "several next hops"},
		{"ip route add 203.0.113.0/24 " + two, "ip route del 203.0.113.0/24", "several next hops"},
		{"ip nexthop add id 1 via 192.0.2.2 dev wan0; ip nexthop add id 2 via 198.51.100.2 dev other; ip nexthop add id 3 " +
			"group 1/2; ip route add 203.0.113.0/24 nhid 3",
			"ip nexthop flush >/dev/null", "several next hops"},
		{"sysctl -qw net.ipv4.nexthop_compat_mode=0", "sysctl -qw net.ipv4.nexthop_compat_mode=1", "nexthop_compat_mode"},
		{"ip route add 203.0.113.0/24 via 192.0.2.2 tos 0x10", "ip route del 203.0.113.0/24 tos 0x10", "type of service"},
		{"ip route add 10.1.0.128/25 via 198.51.100.2", "ip route del 10.1.0.128/25", "within the LAN"},
		{"ip route add unreachable 10.1.0.9", "ip route del unreachable 10.1.0.9", "within the LAN"},
		{"ip route add local 10.1.0.128/25 dev lo", "ip route del local 10.1.0.128/25 dev lo", "this machine's"},
		{"ip route change 10.1.0.0/24 dev lan0 src 10.1.0.1 mtu 1400", "ip route change 10.1.0.0/24 dev lan0 src 10.1.0.1",
			"MTU of its own"},
		{"ip route add 203.0.113.0/24 via 192.0.2.2 mtu 1400", "ip route del 203.0.113.0/24", "MTU of its own"},
		{"ip route add 203.0.113.0/24 via 192.0.2.2 mtu lock 1400", "ip route del 203.0.113.0/24", "MTU of its own"},
		{"ip route del 10.1.0.0/24 dev lan0", "ip route add 10.1.0.0/24 dev lan0 src 10.1.0.1 scope link",
			"no route to the LAN"},
		{"sysctl -qw net.ipv4.conf.lan0.forwarding=0", "sysctl -qw net.ipv4.conf.lan0.forwarding=1", "lan0 does not forward"},
		{"sysctl -qw net.ipv4.conf.wan0.forwarding=0", "sysctl -qw net.ipv4.conf.wan0.forwarding=1", "wan0 does not forward"},
		{"sysctl -qw net.ipv4.conf.wan0.rp_filter=2", "true", ""},
		{"ip route add unreachable 203.0.113.0/24", "ip route del unreachable 203.0.113.0/24", "leads nowhere"},
		{"ip route del default", "ip route add default via 192.0.2.2", "no default route"},
		{"sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.wan0.rp_filter=0",
			"sysctl -qw net.ipv4.conf.all.rp_filter=0", "leads elsewhere"},
	} {
		sh(t, c.script)
		if unsure := judged(); (c.reason == "") != (unsure == "") || !strings.Contains(unsure, c.reason) {
			t.Errorf("%s: unsure %q, want %q", c.script, unsure, c.reason)
		}
		sh(t, c.undo)
	}
	if unsure := judged(); unsure != "" {
		t.Errorf("in the end: %s", unsure)
	}
}

// TestPolicies: IPsec's policies for forwarded packets are named, others are not.
func TestPolicies(t *testing.T) {
	for _, c := range []struct{ script, undo, reason string }{
		{"ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir in", "ip xfrm policy flush", ""},
		{"ip xfrm policy add src 2001:db8:1::/64 dst 2001:db8:2::/64 dir fwd", "ip xfrm policy flush", ""},
		{"ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir fwd", "ip xfrm policy flush", "IPsec policies"},
		{"ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out", "ip xfrm policy flush", "IPsec policies"},
		{"ip xfrm policy setdefault fwd block", "ip xfrm policy setdefault fwd accept", "default policy blocks"},
		{"ip xfrm policy setdefault in block", "ip xfrm policy setdefault in accept", ""},
	} {
		sh(t, c.script)
		if got, err := Policies(); err != nil || (c.reason == "") != (got == "") || !strings.Contains(got, c.reason) {
			t.Errorf("%s: %q, %v; want %q", c.script, got, err, c.reason)
		}
		sh(t, c.undo)
	}
}

// TestChangingListIsReadAgain: a list that changes while it is read is read again, and not for ever.
func TestChangingListIsReadAgain(t *testing.T) {
	for after, want := range map[int]bool{0: true, 3: true, dumpTries: false, 1 << 30: false} {
		reads := 0
		all, err := ConsistentList(func() ([]int, error) {
			if reads++; reads <= after {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		})
		if ok := err == nil && len(all) == 2; ok != want || reads > dumpTries ||
			!ok && !errors.Is(err, netlink.ErrDumpInterrupted) {
			t.Errorf("interrupted %d times: read %d times, %v, %v", after, reads, all, err)
		}
	}
}
