package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// decisions are the behaviours of data paths that forward in the stack's place: packets take the way that the stack
// would choose, and meet the chains and policies that they would meet in the stack.
var decisions = []behaviour{
	{"RoutesByMoreThanDestination", routesByMore, Shape{}},
	{"HooksSeeEveryPacket", hooksSeeAll, Shape{}},
	{"ScanOfTheLAN", scanOfLAN, Shape{}},
}

// device is the interface by which clients' packets reach the stack.
func (w *World) device() string {
	if w.path.OwnAddress {
		return "tun0"
	}
	return lanLink
}

// leftToStack waits until the stack forwards packets, and the data path does not redirect them.
func (w *World) leftToStack(t *testing.T, phase string) {
	t.Helper()
	netnstest.Await(t, "the stack to forward, with "+phase, func() error {
		if word := w.Forwarding(t); word == "redirect" {
			return errors.New("it says redirect")
		}
		return nil
	})
}

// forwardsAs waits until packets are forwarded by a way again.
func (w *World) forwardsAs(t *testing.T, word, phase string) {
	t.Helper()
	netnstest.Await(t, word+" "+phase, func() error {
		if now, reason := w.ForwardingWhy(t); now != word {
			return fmt.Errorf("it is %s: %s", now, reason)
		}
		return nil
	})
}

// routesByMore: with a second uplink, packets take it exactly where the kernel's routing says so: by source, by a hash
// of addresses, by type of service.
func routesByMore(t *testing.T, w *World) {
	second := w.uplink(t, "wan1", net.HardwareAddr{2, 0, 0, 0, 3, 3})
	w.Router.Run(t,
		`ip neigh replace 10.9.0.2 lladdr 02:00:00:00:03:03 dev wan1 nud permanent; ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev wan0 nud permanent
ip route add default via 10.9.0.2 table 100`)
	w.admit(t, w.Alice, w.Bob)
	u := uplinks{w, NewWire(t, w.Server, serverLink), NewWire(t, second, "t0"), map[Station]*Wire{}}
	for _, s := range []Station{w.Alice, w.Bob} {
		u.lan[s] = NewWire(t, s.Space, clientLink)
	}
	u.follows(t, "one default route")
	first := w.Forwarding(t)
	for _, c := range []struct{ label, script, undo string }{
		{"a rule for one client", "ip rule add from 10.1.0.11 lookup 100", "ip rule del from 10.1.0.11 lookup 100"},
		{"two next hops", "ip route replace default nexthop via 192.0.2.2 nexthop via 10.9.0.2",
			"ip route replace default via 192.0.2.2"},
		{"a nexthop group",
			"ip nexthop add id 1 via 192.0.2.2 dev wan0; ip nexthop add id 2 via 10.9.0.2 dev wan1; ip nexthop add id 3 group " +
				"1/2; ip route replace default nhid 3",
			"ip route replace default via 192.0.2.2; ip nexthop flush >/dev/null"},
		{"a route for one type of service", "ip route add default via 10.9.0.2 tos 0x10",
			"ip route del default via 10.9.0.2 tos 0x10"},
	} {
		w.Router.Run(t, c.script)
		w.leftToStack(t, c.label)
		u.follows(t, c.label)
		w.Router.Run(t, c.undo)
		w.forwardsAs(t, first, "without "+c.label)
	}
}

// uplinks is a world with two uplinks, and the links of its clients.
type uplinks struct {
	*World
	first, second *Wire
	lan           map[Station]*Wire
}

// follows sends packets of every client to some destinations, with two types of service, and compares the uplink that
// each takes with the answer of the kernel's routing.
func (u uplinks) follows(t *testing.T, phase string) {
	t.Helper()
	want := strings.Fields(
		u.Router.Run(t, `for host in 1 2 3 4 5 6; do for from in 10.1.0.10 10.1.0.11; do for tos in 0 0x10; do
echo route get 203.0.113.$host from $from iif $dev tos $tos; done; done; done | ip -batch - | sed -n 's/.* dev \([^ ]*\) .*/\1/p'`,
			"dev="+u.device()))
	text := func(n int) string { return fmt.Sprintf("%s, way %d.", phase, n) }
	count := map[string]int{"wan0": len(u.first.Frames()), "wan1": len(u.second.Frames())}
	n := 0
	for host := range byte(6) {
		for _, s := range []Station{u.Alice, u.Bob} {
			for _, tos := range []uint8{0, 0x10} {
				for range 3 {
					u.lan[s].Send(t,
						Reset(text(n), By(s), To(netip.AddrFrom4([4]byte{203, 0, 113, 1 + host})), func(f *Frame) { f.IP.TOS = tos }))
				}
				n++
			}
		}
	}
	if len(want) != n {
		t.Fatalf("the kernel has %d answers for %d packets", len(want), n)
	}
	came := func(dev string, n int) int {
		return holding(map[string]*Wire{"wan0": u.first, "wan1": u.second}[dev].Frames()[count[dev]:], text(n))
	}
	for i, dev := range want {
		netnstest.Await(t, "packets with "+phase, func() error {
			if all := came("wan0", i) + came("wan1", i); all != 3 {
				return fmt.Errorf("%d of 3", all)
			}
			return nil
		})
		if n := came(dev, i); n != 3 {
			t.Errorf("with %s, %d of 3 packets took %s, the kernel's way", phase, n, dev)
		}
	}
}

// seers is a script that adds chains which count Alice's packets at every hook of the devices.
const seers = `nft -f - <<end
table netdev seers {
	counter lan_in { }
	counter lan_out { }
	counter wan_in { }
	counter wan_out { }
	chain a { type filter hook ingress device lan0 priority -600; ip saddr 10.1.0.10 ip protocol udp counter name lan_in; }
	chain b { type filter hook egress device lan0 priority 0; ip daddr 10.1.0.10 ip protocol udp counter name lan_out; }
	chain c { type filter hook ingress device wan0 priority 0; ip daddr 10.1.0.10 ip protocol udp counter name wan_in; }
	chain d { type filter hook egress device wan0 priority 0; ip saddr 10.1.0.10 ip protocol udp counter name wan_out; }
}
end`

// hooksSeeAll: chains at the devices see every packet, and IPsec's policies apply to every packet. For chains this also
// holds if they are loaded while no daemon runs.
func hooksSeeAll(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	w.sendReference(t, up, 20)
	w.sendReference(t, down, 20)
	first := w.Forwarding(t)
	if w.path.Netfilter {
		w.Router.Run(t, seers)
		w.leftToStack(t, "chains at the devices")
		if err := w.seen(t, up, down); err != nil {
			t.Error(err)
		}
		w.Router.Run(t, "nft delete table netdev seers")
		w.forwardsAs(t, first, "without chains")
	}
	w.Router.Run(t, "ip xfrm policy add src 10.1.0.10/32 dst 192.0.2.2/32 dir fwd action block")
	w.leftToStack(t, "a policy")
	blocked := w.Up(t, w.Alice)
	blocked.Send(50)
	blocked.Settled(t, 0, "that IPsec's policy blocks")
	w.Router.Run(t, "ip xfrm policy flush")
	w.forwardsAs(t, first, "without a policy")
	w.sendReference(t, down, 20)
	if !w.path.Unattended {
		return
	}
	w.Kill(t)
	w.Router.Run(t, seers)
	netnstest.Await(t, "the chains to see packets without a daemon", func() error { return w.seen(t, up, down) })
	if err := w.seen(t, up, down); err != nil {
		t.Errorf("without a daemon, later: %v", err)
	}
	w.Router.Run(t, "nft delete table netdev seers")
	w.Start(t)
	must(t, w.Open())
	w.forwardsAs(t, first, "with a successor")
	w.sendReference(t, down, 20)
}

var counted = regexp.MustCompile(`counter (\w+) {\s+packets (\d+)`)

// seen sends packets both ways, one by one so that none are aggregated, and compares what the chains have counted.
func (w *World) seen(t *testing.T, up, down *Flow) error {
	t.Helper()
	const many = 10
	counts := func() map[string]int {
		all := map[string]int{}
		for _, m := range counted.FindAllStringSubmatch(w.Router.Run(t, "nft list counters table netdev seers"), -1) {
			all[m[1]], _ = strconv.Atoi(m[2])
		}
		return all
	}
	before := counts()
	for range many {
		w.sendReference(t, up, 1)
		w.sendReference(t, down, 1)
	}
	var err error
	for name, n := range counts() {
		if n -= before[name]; n != many {
			err = errors.Join(err, fmt.Errorf("%s saw %d of %d packets", name, n, many))
		}
	}
	return err
}

// scanOfLAN: packets from the WAN and from a client to addresses that nobody leased cause no ARP request of the gateway
// and no entry in its neighbour table.
func scanOfLAN(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	server, alice, lan := NewWire(t, w.Server, serverLink), NewWire(t, w.Alice.Space, clientLink),
		NewWire(t, w.Intruder.Space, clientLink)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	w.sendReference(t, up, 1)
	w.sendReference(t, down, 1)
	for host := range byte(100) {
		to := To(netip.AddrFrom4([4]byte{10, 1, 0, 100 + host}))
		server.Send(t, UDP(443, Down, to), SYN(443, Down, to), Echo(Down, to))
		alice.Send(t, UDP(443, By(w.Alice), to))
	}
	w.sendReference(t, up, 20)
	w.sendReference(t, down, 20)
	if n := looked(lan.Frames()); n > 0 {
		t.Errorf("%d ARP requests for addresses that nobody leased", n)
	}
	if out := w.Router.Run(t, "ip -4 neigh show dev lan0"); strings.Contains(out, "10.1.0.1") &&
		regexp.MustCompile(`(?m)^10\.1\.0\.1\d\d `).MatchString(out) {
		t.Errorf("entries of the neighbour table:\n%s", out)
	}
	w.Router.Run(t, "ip addr add 10.1.0.150/32 dev lo") // an address of the gateway's machine, which nobody leases
	says(t, w.Server, "ping -c 1 -W 5 10.1.0.150", "1 received")
}

// looked counts the gateway's ARP requests for 10.1.0.100 to 10.1.0.199.
func looked(frames [][]byte) (n int) {
	for _, f := range frames {
		if isARP(f) && bytes.Equal(f[6:12], LANMAC[:]) && binary.BigEndian.Uint16(f[20:]) == 1 && f[41] >= 100 &&
			f[41] < 200 {
			n++
		}
	}
	return n
}
