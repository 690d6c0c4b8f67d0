package ebpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestIPv6KnownConnections: the programs remember what they have found out about an IPv6 connection. They do not use
// that any more after a change of the client's admission or limits, or when another client has the address. Long: a
// table of steps.
func TestIPv6KnownConnections(t *testing.T) {
	n := newNetwork6(t)
	run(t, "ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent", n.env()...)
	d := n.open6(t)
	d.redirecting6(t)
	lan, wan := index(t, n.lan), index(t, n.wan)
	ofAlice := datapath.Client{Addrs: []netip.Addr{alice, alice6}, MAC: aliceMAC, Admitted: true}
	ofBob := datapath.Client{Addrs: []netip.Addr{bob, alice6}, MAC: bobMAC, Admitted: true}
	out, stranger, ended, noMore := ofAlice, ofAlice, ofAlice, ofAlice
	out.Admitted, stranger.Addrs = false, ofAlice.Addrs[:1]
	ended.Until, noMore.Limits.TotalBytes = time.Now().Add(-time.Second), 1
	up := func(mac datapath.MAC) []byte { return tcp6(t, mac, lanMAC, alice6, server6) }
	frames := map[string][]byte{
		"alice": up(aliceMAC), "bob": up(bobMAC), "down": tcp6(t, serverMAC, wanMAC, server6, alice6)}
	for _, step := range []struct {
		name string
		set  datapath.Client
		sent map[string]string // by packet: the verdict, and the counter that counts it
	}{
		{"alice has it", ofAlice, map[string]string{"alice": "7 forwarded", "bob": "2 wrong-mac", "down": "7 forwarded"}},
		{"quota used", noMore, map[string]string{"alice": "2 quota", "bob": "2 wrong-mac", "down": "2 quota"}},
		{"without quota", ofAlice, map[string]string{"alice": "7 forwarded", "down": "7 forwarded"}},
		{"time over", ended, map[string]string{"alice": "7 rejected", "bob": "2 wrong-mac", "down": "2 blocked"}},
		{"admitted again", ofAlice, map[string]string{"alice": "7 forwarded", "down": "7 forwarded"}},
		{"logged out", out, map[string]string{"alice": "7 rejected", "bob": "2 wrong-mac", "down": "2 blocked"}},
		{"logged in", ofAlice, map[string]string{"alice": "7 forwarded", "down": "7 forwarded"}},
		{"lost", stranger, map[string]string{"alice": "2 not-leased", "bob": "2 not-leased", "down": "2 not-leased"}},
		{"bob gets it", ofBob, map[string]string{"alice": "2 wrong-mac", "bob": "7 forwarded", "down": "7 forwarded"}},
	} {
		must(t, d.Set(step.set))
		for i := range 9 {
			name := []string{"alice", "bob", "down"}[i%3]
			want, sent := step.sent[name]
			if !sent {
				continue
			}
			prog, link := d.objs.LanIn, lan
			if name == "down" {
				prog, link = d.objs.WanIn, wan
			}
			var before map[string]uint64
			verdict, frame := d.tryWanting(t, strings.Fields(want)[1], prog, link, frames[name], func() {
				before = d.packets(t)
			})
			if got := fmt.Sprint(verdict); !strings.HasPrefix(want, got+" ") ||
				change(before, d.packets(t))[want[len(got)+1:]] != 1 {
				t.Errorf("%s, %s: verdict %s, counted %v, want %s", step.name, name, got, change(before, d.packets(t)), want)
			}
			if to := datapath.MAC(frame[:6]); want == "7 forwarded" && name == "down" && to != step.set.MAC {
				t.Errorf("%s: a packet down goes to %v", step.name, to)
			}
		}
	}
}
