// A test of kernels on which the cache of flows cannot run. newNetwork makes a LAN with alice and bob and a WAN with a
// server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestWithoutCache: on a kernel that cannot cache flows, the status says why, the settings of connection tracking are
// not changed, and the stack translates every packet.
func TestWithoutCache(t *testing.T) {
	n := newNetwork(t)
	run(t, `ip -n $server route del default
nft "table ip isp { chain out { type nat hook postrouting priority srcnat; oifname $wan masquerade; }; }"`, n.env()...)
	t.Cleanup(func() { run(t, "nft delete table ip isp") })
	d := n.open(t, func(c *Config) { c.FlowCache, c.clsact = FlowCacheAuto, true })
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	netnstest.Await(t, "the reason", func() error {
		if word, reason := d.Forwarding(); word != "stack" || !strings.Contains(reason, "no flows are cached: ") ||
			!strings.Contains(reason, "6.6") && !strings.Contains(reason, "kernel") {
			return fmt.Errorf("%s: %s", word, reason)
		}
		return nil
	})
	_, reason := d.Forwarding()
	t.Log(reason)
	run(t, "ip netns exec $client ping -c 3 -i 0.1 -W 5 -I 10.1.0.10 192.0.2.2", n.env()...)
	if c := d.packets(t); c["stack"] < 6 || c["forwarded"] > 0 {
		t.Errorf("%v", c)
	}
	if current := run(t, "sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal"); current != "0" {
		t.Errorf("connection tracking is liberal: %s", current)
	}
}
