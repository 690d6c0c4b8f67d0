// A test of UDP flows that nobody answers. twins are two gateways between wires, one with the cache of flows and one
// without, to which a test sends the same frames (twins_test.go). A flow is a connection that makes its packets with
// fromClient and fromPeer (flow_test.go).

package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestUnansweredUDPCached: a UDP flow that nobody answers, from a client or to one, is cached while no rule decides
// packet by packet about new connections. With the first answer it becomes established, and the stack decides about its
// packets again.
func TestUnansweredUDPCached(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	rules := func(name, rule string) {
		tw.rules(t, name, fmt.Sprintf(
			`table ip %s { chain to { type nat hook prerouting priority -100; iifname wan0 udp dport 8000 dnat to 10.1.0.10
}
chain from { type nat hook postrouting priority 100; oifname wan0 udp sport 43000 snat to 192.0.2.77:5000
}
chain forward { type filter hook forward priority 0; %s
}
}`, name, rule))
	}
	rules("round1", "ct state new counter")
	up := &flow{udp: true, up: true, client: netip.AddrPortFrom(alice, 43000),
		wanted: netip.MustParseAddrPort("198.51.100.9:514")}
	up.seen, up.answered = netip.MustParseAddrPort("192.0.2.77:5000"), up.wanted
	down := &flow{udp: true, seen: netip.AddrPortFrom(routerWAN, 8000),
		answered: netip.MustParseAddrPort("198.51.100.9:30000")}
	down.client, down.wanted = netip.AddrPortFrom(alice, 8000), down.answered
	tw.makeCached(t, up.fromClient(), down.fromPeer())

	rules("round2", "ct state new limit rate 1000/second burst 1000 packets accept")
	netnstest.Await(t, "a limit to keep it from being cached", func() error {
		before := tw.cached.Packets(t)["forwarded"]
		for range 10 {
			tw.compare(t, up.fromClient(), down.fromPeer())
		}
		if n := tw.cached.Packets(t)["forwarded"] - before; n > 0 {
			return fmt.Errorf("the cache forwards %d packets", n)
		}
		return nil
	})

	rules("round3", "ct state established ip saddr 10.1.0.10 udp dport 514 drop")
	tw.makeCached(t, up.fromClient(), down.fromPeer())
	if all := tw.compare(t, up.fromPeer(), up.fromClient()); len(all.server) != 0 || len(all.client) != 1 {
		t.Errorf("an answer and what follows it became %v", all)
	}
	if all := tw.compare(t, down.fromClient(), down.fromPeer()); len(all.server) != 1 || len(all.client) != 1 {
		t.Errorf("a client's answer and what follows it became %v", all)
	}
	if word, reason := tw.cached.ForwardingWhy(t); word != "flow cache" {
		t.Errorf("%s: %s", word, reason)
	}
}
