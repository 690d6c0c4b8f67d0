// Tests that cached flows follow changes of rules, routes, clients and the daemon. twins are two gateways between
// wires, one with the cache of flows and one without, to which a test sends the same frames (twins_test.go). A flow is
// a connection that makes its packets with fromClient and fromPeer (flow_test.go). makeCached sends until the cache
// forwards a flow.

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// flush stands for the script that deletes all connections; the test does that by netlink.
const flush = "conntrack -F"

// TestCacheFollows: after each change of what the stack decides by, such as rules and routes, packets of a cached flow
// are treated as the stack would treat them, as soon as the daemon has been told of the change. Long: most lines are
// the table of cases.
func TestCacheFollows(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	const rules = `table ip round1 { chain to { type nat hook prerouting priority -100
}
chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto { tcp, udp } masquerade
}
chain forward { type filter hook forward priority 0; ct state established,related accept
}
}`
	tw.rules(t, "round1", rules)
	tw.follows(t, []cause{
		{"a rule that drops", "nft insert rule ip round1 forward tcp dport 2000 drop", "nft flush chain ip round1 forward"},
		{"a rule that varies", "nft insert rule ip round1 forward meta length 140 drop", "nft flush chain ip round1 forward"},
		{"a policy", "nft 'flush chain ip round1 forward; add chain ip round1 forward { policy drop; }; add rule ip round1 " +
			"forward meta l4proto 253 accept'", "nft 'add chain ip round1 forward { policy accept; }'"},
		{"no rules", "nft delete table ip round1", "nft '" + rules + "'"},
		{"a neighbour", "ip neigh replace 192.0.2.2 lladdr 02:00:00:00:99:99 dev wan0 nud permanent",
			"ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev wan0 nud permanent"},
		{"a route", "ip neigh replace 192.0.2.5 lladdr 02:00:00:00:99:05 dev wan0 nud permanent; ip route add 198.51.100.9 " +
			"via 192.0.2.5", "ip route del 198.51.100.9"},
		{"no route", "ip route add unreachable 198.51.100.9", "ip route del unreachable 198.51.100.9"},
		{"a rule of routing", "ip rule add from 10.1.0.10 ipproto tcp prohibit",
			"ip rule del from 10.1.0.10 ipproto tcp prohibit"},
		{"an address", "ip addr del 192.0.2.1/24 dev wan0; ip addr add 192.0.2.99/24 dev wan0; ip route replace default " +
			"via 192.0.2.2",
			"ip addr del 192.0.2.99/24 dev wan0; ip addr add 192.0.2.1/24 dev wan0; ip route replace default via 192.0.2.2"},
		{"an MTU", "ip link set wan0 mtu 137", "ip link set wan0 mtu 1400"},
		{"IPsec", "ip xfrm policy add src 10.1.0.10/32 dst 198.51.100.9/32 proto tcp dir fwd action block",
			"ip xfrm policy flush"},
		{"connections flushed", flush, "true"},
	})
}

// cause is a change of what the stack decides by: a script, and one that undoes it.
type cause struct{ name, script, undo string }

// follows has a flow cached under the rules round1 for each cause, runs the cause's script, and waits until the gateway
// with the cache treats the flow as the one without. Long: the steps of each cause.
func (tw *twins) follows(t *testing.T, causes []cause) {
	t.Helper()
	for _, c := range causes {
		f := begin(t, tw, alice)
		up, down := f.fromClient(), f.fromPeer()
		tw.makeCached(t, down, up)
		before := tw.compare(t, down, up)
		tw.each(func(w *twin) {
			if c.script != flush {
				w.Router.Run(t, c.script)
				return
			}
			var err error
			w.Router.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
			must(t, err)
		})
		counted := false // the kernel deletes masqueraded connections later, and the next packet may begin one again
		netnstest.Await(t, c.name+" to count", func() error {
			a, now := tw.arrivals(t, down, up)
			if counted = counted || !now.equal(before); !counted {
				return errors.New("it changes nothing")
			}
			if !a.equal(now) {
				return errors.New("with the cache arrived " + a.String() + "without " + now.String())
			}
			return nil
		})
		tw.compare(t, down, up)
		tw.each(func(w *twin) { w.Router.Run(t, c.undo) })
		becomes(t, tw.cached.World, "flow cache", "round1")
		t.Log(c.name, "counts")
		if t.Failed() {
			return
		}
	}
}

// TestCacheKnowsClients: a client that is logged out gets no more packets of a cached flow, and gets them again when it
// is logged in.
func TestCacheKnowsClients(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.rules(t, "round1",
		"table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto tcp masquerade; "+
			"}; }")
	f := begin(t, tw, bob)
	tw.makeCached(t, f.fromClient(), f.fromPeer())
	for _, admitted := range []bool{false, true} {
		tw.each(func(w *twin) {
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Admitted: admitted}))
		})
		if all := tw.compare(t, f.fromPeer()); (len(all.client) > 0) != admitted {
			t.Errorf("admitted: %v, and arrived%s", admitted, all)
		}
	}
}

// TestCacheEndsWithItsDaemon: when the daemon is dead, and would miss changes, the stack soon forwards instead of the
// cache. The next daemon uses the cache again. No packet is lost or changed.
func TestCacheEndsWithItsDaemon(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.rules(t, "round1",
		"table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto tcp masquerade; "+
			"}; }")
	f := begin(t, tw, alice)
	tw.makeCached(t, f.fromClient(), f.fromPeer())
	tw.cached.Kill(t)
	var before uint64
	netnstest.Await(t, "the end of what the cache forwards", func() error {
		for range 20 {
			tw.compare(t, f.fromClient(), f.fromPeer())
		}
		n := tw.passedUnseen(t)
		if n != before {
			before = n
			return errors.New("it still forwards")
		}
		return nil
	})
	tw.cached.Start(t)
	must(t, tw.cached.Open())
	must(t, tw.cached.Set(datapath.Client{Addrs: []netip.Addr{tw.cached.Alice.Addr}, MAC: tw.cached.Alice.MAC,
		Admitted: true}))
	tw.makeCached(t, f.fromClient(), f.fromPeer())
}

// begin opens a connection of a client to port 2000 of a server beyond the WAN's own network.
func begin(t *testing.T, tw *twins, client netip.Addr) *flow {
	t.Helper()
	tw.begun++
	f := &flow{up: true, client: netip.AddrPortFrom(client, 41000+tw.begun),
		wanted: netip.MustParseAddrPort("198.51.100.9:2000"), seq: 1000 * uint32(tw.begun), ack: 7}
	f.seen, f.answered = f.client, f.wanted
	netnstest.Await(t, "a connection", func() error {
		if !f.shake(t, tw) {
			return errors.New("refused")
		}
		return nil
	})
	return f
}

// makeCached sends frames until all of them are forwarded by the cache.
func (tw *twins) makeCached(t *testing.T, frames ...[]byte) {
	t.Helper()
	netnstest.Await(t, "the flow in the cache", func() error {
		before := tw.cached.Packets(t)["forwarded"]
		tw.compare(t, frames...)
		if n := tw.cached.Packets(t)["forwarded"] - before; n < uint64(len(frames)) {
			word, reason := tw.cached.ForwardingWhy(t)
			return errors.New(word + ": " + reason)
		}
		return nil
	})
}

// passedUnseen returns how many packets the cached twin has redirected, also while it has no daemon.
func (tw *twins) passedUnseen(t *testing.T) (n uint64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(fmt.Sprintf("/sys/fs/bpf/%d/stats", tw.cached.Router.TID()), nil)
	must(t, err)
	defer m.Close()
	var each []uint64
	must(t, m.Lookup(uint32(gatewayReasonREASON_FORWARDED), &each))
	for _, of := range each {
		n += of
	}
	return n
}

// TestCacheWithConnectionMarks: rules mark a flow's connection, and decide by the mark that the packet before left.
// With the cache the same packets pass as without it.
func TestCacheWithConnectionMarks(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.withMarks(t, func(name, rules string) {
		tw.rules(t, name, fmt.Sprintf(
			`table ip %s { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto tcp masquerade
}
chain forward { type filter hook forward priority 0; meta l4proto 253 accept
%s
}
}`, name, rules))
	})
}

// withMarks is TestCacheWithConnectionMarks for a family of addresses. The function rules sets rules.
func (tw *twins) withMarks(t *testing.T, rules func(name, rules string)) {
	t.Helper()
	rules("round1", "ct state invalid drop")
	f, other := begin(t, tw, alice), begin(t, tw, bob)
	tw.makeCached(t, f.fromClient(), f.fromPeer(), other.fromClient(), other.fromPeer())

	rules("round2", "ip saddr 10.1.0.10 ct mark 5 drop\nct mark set 5")
	for range 3 {
		if all := tw.compare(t, f.fromClient(), f.fromClient(), other.fromClient(), f.fromPeer()); len(all.client) != 1 {
			t.Errorf("arrived %v", all)
		}
	}
	tw.makeCached(t, other.fromClient(), other.fromPeer())

	rules("round3", "ip saddr 10.1.0.11 ct mark 6 drop\nct direction original ct mark set 6\nct direction reply ct mark "+
		"set 7")
	for range 20 {
		tw.compare(t, other.fromPeer(), other.fromClient(), other.fromClient(), other.fromPeer(), other.fromPeer(),
			other.fromClient())
	}
	if word, reason := tw.cached.ForwardingWhy(t); word != "flow cache" {
		t.Errorf("%s: %s", word, reason)
	}
	rules("round4", "ct direction reply ct mark set 8")
	tw.makeCached(t, other.fromClient(), other.fromPeer())
}
