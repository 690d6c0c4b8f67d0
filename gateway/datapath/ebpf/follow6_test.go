package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// firewall6 is a rule set by which IPv6 flows are cached.
const firewall6 = `table inet round1 {
chain forward { type filter hook forward priority 0; policy drop; meta l4proto 253 accept
ct state established,related accept
iifname lan0 ct state new tcp flags syn / syn,ack,rst,fin accept
iifname lan0 ct state new meta l4proto udp accept
}
}`

// TestCacheFollows6: packets of a cached IPv6 flow are treated as the stack would treat them after each change of what
// it decides by. It is TestCacheFollows for IPv6, with a firewall. Long: most lines are the table of cases.
func TestCacheFollows6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.rules(t, "round1", firewall6)
	tw.follows(t, []cause{
		{"a rule that drops", "nft insert rule inet round1 forward tcp dport 2000 drop", "nft 'delete table inet round1; " +
			firewall6 + "'"},
		{"a rule that rejects", "nft insert rule inet round1 forward tcp sport 2000 reject with tcp reset",
			"nft 'delete table inet round1; " + firewall6 + "'"},
		{"a rule about IPv6 alone", "nft 'table ip6 other { chain f { type filter hook forward priority 5; tcp dport 2000 " +
			"drop; }; }'", "nft delete table ip6 other"},
		{"a rule that varies", "nft insert rule inet round1 forward ip6 length 120 drop", "nft 'delete table inet round1; " +
			firewall6 + "'"},
		{"a rule that marks", "nft 'insert rule inet round1 forward meta mark set 7; table netdev other { chain e { type " +
			"filter hook egress device wan0 priority 0; meta mark 7 ip6 dscp set cs5; }; }'",
			"nft 'delete table netdev other; delete table inet round1; " + firewall6 + "'"},
		{"no rules", "nft delete table inet round1; ip -6 route add unreachable 2001:db8:3::198.51.100.9",
			"ip -6 route del unreachable 2001:db8:3::198.51.100.9; nft '" + firewall6 + "'"},
		{"a neighbour", "ip -6 neigh replace 2001:db8:2::192.0.2.2 lladdr 02:00:00:00:99:99 dev wan0 nud permanent",
			"ip -6 neigh replace 2001:db8:2::192.0.2.2 lladdr 02:00:00:00:02:02 dev wan0 nud permanent"},
		{"a route", "ip -6 neigh replace 2001:db8:2::5 lladdr 02:00:00:00:99:05 dev wan0 nud permanent; ip -6 route add " +
			"2001:db8:3::198.51.100.9 via 2001:db8:2::5", "ip -6 route del 2001:db8:3::198.51.100.9"},
		{"a rule of routing", "ip -6 rule add from 2001:db8:1::10.1.0.10 ipproto tcp prohibit",
			"ip -6 rule del from 2001:db8:1::10.1.0.10 ipproto tcp prohibit"},
		{"IPsec", "ip xfrm policy add src 2001:db8:1::10.1.0.10/128 dst 2001:db8:3::198.51.100.9/128 proto tcp dir fwd " +
			"action block",
			"ip xfrm policy flush"},
		{"connections flushed", flush, "true"},
	})
}

// TestCacheOfConnections6 ends cached connections, by a reset or FIN of either side and by deletion. The rules are
// those of a firewall that lets no packet pass after that, and the cache lets none pass either.
func TestCacheOfConnections6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.rules(t, "round1", firewall6)
	flags := func(set func(*layers.TCP)) func(*datapathtest.Frame) {
		return func(f *datapathtest.Frame) { set(f.L4.(*layers.TCP)); f.Payload = nil }
	}
	fin, reset := flags(func(l *layers.TCP) { l.FIN = true }), flags(func(l *layers.TCP) { l.RST = true })
	client := func(edits ...func(*datapathtest.Frame)) func(f *flow) []byte {
		return func(f *flow) []byte { return f.fromClient(edits...) }
	}
	peer := func(edits ...func(*datapathtest.Frame)) func(f *flow) []byte {
		return func(f *flow) []byte { return f.fromPeer(edits...) }
	}
	for name, ends := range map[string][]func(f *flow) []byte{
		"closed by the client": {client(fin), peer(fin)}, "closed by the peer": {peer(fin), client(fin)},
		"reset by the client": {client(reset), peer()}, "reset by the peer": {peer(reset), client()},
		"deleted": nil,
	} {
		f := begin(t, tw, alice)
		tw.makeCached(t, f.fromClient(), f.fromPeer())
		before := tw.cached.Packets(t)["forwarded"]
		if ends == nil {
			tw.each(func(w *twin) {
				var err error
				w.Router.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
				must(t, err)
			})
		}
		for _, frame := range append(ends, client(), peer(), client()) {
			tw.compare(t, frame(f))
		}
		if n := tw.cached.Packets(t)["forwarded"] - before; n != 0 {
			t.Errorf("%s, %d packets were forwarded by the cache", name, n)
		}
	}
}

// TestUnansweredUDPCached6: a UDP flow that nobody answers is cached. After the first answer the stack decides about
// its packets again.
func TestUnansweredUDPCached6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.rules(t, "round1", firewall6)
	up := &flow{udp: true, up: true, client: netip.AddrPortFrom(alice, 43000),
		wanted: netip.MustParseAddrPort("198.51.100.9:514")}
	up.seen, up.answered = up.client, up.wanted
	tw.makeCached(t, up.fromClient())
	before := tw.cached.Packets(t)["forwarded"]
	if all := tw.compare(t, up.fromPeer(), up.fromClient()); len(all.server) != 1 || len(all.client) != 1 {
		t.Errorf("an answer and what follows it became %v", all)
	}
	if n := tw.cached.Packets(t)["forwarded"] - before; n != 0 {
		t.Errorf("an answer and what follows it were forwarded by the cache: %d packets", n)
	}
	tw.makeCached(t, up.fromClient(), up.fromPeer())
}

// TestTranslatedIsStacks6: IPv6 flows whose addresses netfilter translates are not cached.
func TestTranslatedIsStacks6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.rules(t, "round1", `table inet round1 { chain from { type nat hook postrouting priority 100
oifname wan0 ip6 daddr 2001:db8:3::/64 snat to 2001:db8:2::c000:24e
}
}`)
	f := begin(t, tw, alice)
	before := tw.cached.Packets(t)["forwarded"]
	for range 10 {
		if all := tw.compare(t, f.fromClient(), f.fromPeer()); len(all.client) != 1 || len(all.server) != 1 {
			t.Errorf("of a packet each way arrived %s", all)
		}
	}
	if n := tw.cached.Packets(t)["forwarded"] - before; n != 0 {
		t.Errorf("the cache forwarded %d packets", n)
	}
	if from := f.seen.Addr(); from != netip.MustParseAddr("192.0.2.78") {
		t.Errorf("the peer sees %s", from)
	}
	if word, reason := tw.cached.ForwardingWhy(t); word != "flow cache" {
		t.Errorf("%s: %s", word, reason)
	}
}

// TestCacheWithConnectionMarks6 is TestCacheWithConnectionMarks for IPv6: where rules mark connections and decide by
// the mark, the same packets pass with the cache as without it.
func TestCacheWithConnectionMarks6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.withMarks(t, func(name, rules string) {
		tw.rules(t, name, rules6(fmt.Sprintf(
			`table ip %s { chain forward { type filter hook forward priority 0; meta l4proto 253 accept
%s
}
}`, name, rules)))
	})
}

// TestCacheKnowsClients6: a cached flow's client is logged out, loses its address to another, and reaches its quota.
// Its packets have the fate that they have without a cache, in both directions.
func TestCacheKnowsClients6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	tw.rules(t, "round1", firewall6)
	six := datapathtest.Six(bob)
	of := func(c datapath.Client) datapath.Client { c.Addrs, c.MAC = []netip.Addr{bob, six}, bobMAC; return c }
	admitted := of(datapath.Client{Admitted: true})
	for name, steps := range map[string][]datapath.Client{
		"logged out":        {of(datapath.Client{})},
		"its quota is used": {of(datapath.Client{Admitted: true, Limits: datapath.Limits{TotalBytes: 1}})},
		"its address goes": {
			{Addrs: []netip.Addr{bob}, MAC: bobMAC, Admitted: true},
			{Addrs: []netip.Addr{alice, datapathtest.Six(alice), six}, MAC: aliceMAC, Admitted: true},
		},
	} {
		tw.each(func(w *twin) { must(t, w.Set(admitted)) })
		f := begin(t, tw, bob)
		tw.makeCached(t, f.fromClient(), f.fromPeer())
		before := tw.cached.Packets(t)["forwarded"]
		tw.each(func(w *twin) {
			for _, c := range steps {
				must(t, w.Set(c))
			}
		})
		if all := tw.compare(t, f.fromClient()); len(all.server) != 0 {
			t.Errorf("%s: up arrived %s", name, all)
		}
		tw.compare(t, f.fromPeer())
		if n := tw.cached.Packets(t)["forwarded"] - before; n > 1 {
			t.Errorf("%s: %d packets were forwarded by the cache", name, n)
		}
		tw.each(func(w *twin) {
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{alice, datapathtest.Six(alice)}, MAC: aliceMAC,
				Admitted: true}))
		})
	}
}

// TestCacheStatus6: where IPv4 and IPv6 are forwarded in different ways, the status names both.
func TestCacheStatus6(t *testing.T) {
	t.Parallel()
	tw := newTwins6(t)
	const at = " other { chain f { type filter hook forward priority 0; "
	for rules, want := range map[string]string{
		"table ip6" + at + "ct state invalid drop": "redirect IPv6: flow cache, netfilter has rules in ip6 other f",
		"table ip" + at + "ct state invalid drop":  "flow cache netfilter has rules in ip other f; IPv6: redirect",
		"table ip6" + at + "ip6 hoplimit 2 drop": "redirect IPv6: stack, netfilter has rules in ip6 other f; no flows are " +
			"cached: a rule in ip6 other f (handle 2) looks at each packet's hop limit (ip6 hoplimit)",
	} {
		tw.cached.Router.Run(t, "nft '"+rules+"; }; }'")
		netnstest.Await(t, want, func() error {
			if word, reason := tw.cached.ForwardingWhy(t); word+" "+reason != want {
				return errors.New(word + " " + reason)
			}
			return nil
		})
		tw.cached.Router.Run(t, "nft flush ruleset")
	}
}
