// Tests that rules which others remove are restored (restore.go).

package nfqueue

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestFlushedRulesRestored: on a kernel where tables have no owner, so that other programs can flush them, the daemon
// restores its rules, the clients and their counts. straight is the flow to the stranger.
func TestFlushedRulesRestored(t *testing.T) {
	for _, p := range paths(true) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := datapathtest.NewWorld(t, p, datapathtest.Shape{})
			if rules := w.Router.Run(t, "nft list ruleset"); strings.Contains(rules, "owner") {
				t.Fatalf("tables have an owner:\n%s", rules)
			}
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true},
				datapath.Client{Addrs: []netip.Addr{w.Bob.Addr}, MAC: w.Bob.MAC}))
			for n := range byte(150) { // more than are restored at once
				must(t, w.Set(datapath.Client{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, 100 + n})},
					MAC: datapath.MAC{2, 1, 0, 0, 0, n}, Admitted: true}))
			}
			up, down, stranger, straight := w.Up(t, w.Alice), w.Down(t, w.Alice), w.Up(t, w.Bob), w.Down(t, w.Bob)
			for _, f := range []*datapathtest.Flow{up, down, stranger, straight} {
				f.Begin()
			}
			up.Passes(t, "up, before")
			before := w.Counters(t, w.Alice.Addr)
			for _, label := range []string{"flush ruleset", "delete table ip gatewayd_lan0", "delete table arp gatewayd_lan0"} {
				w.Router.Run(t, "nft "+label)
				stranger.Ends(t, "a stranger's, after nft "+label)
				straight.Stops(t, "to a stranger, after nft "+label)
				up.Passes(t, "up, after nft "+label)
				down.Passes(t, "down, after nft "+label)
				now := w.Counters(t, w.Alice.Addr)
				if now.UpPackets < before.UpPackets+20 || now.DownPackets < before.DownPackets+20 {
					t.Errorf("after nft %s Alice's counters were %+v, and are %+v", label, before, now)
				}
				before = now
				if out := w.Router.Run(t, "nft list table arp gatewayd_lan0"); strings.Count(out, " . 02:01:00:00:00:") != 150 {
					t.Errorf("after nft %s not all clients are known:\n%s", label, out)
				}
			}
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC}))
			up.Stops(t, "up, after logout")
			down.Stops(t, "down, after logout")
		})
	}
}
