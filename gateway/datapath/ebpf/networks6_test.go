package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Networks behind clients by IPv6: the pool, Alice's, and addresses in it and beside it.
var (
	pool6    = netip.MustParsePrefix("2001:db8:200::/48")
	behind6  = netip.MustParsePrefix("2001:db8:200:a::/64")
	behindIt = netip.MustParseAddr("2001:db8:200:a::5")
	besideIt = netip.MustParseAddr("2001:db8:200:b::5")
)

// TestNetworksBehindIPv6: the table is the policy for packets of IPv6 networks behind a client: the verdict, the
// counter that counts the packet, and the bytes that are counted for the client. Long: a table of packets.
func TestNetworksBehindIPv6(t *testing.T) {
	n := newNetwork6(t)
	run(t, "ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent", n.env()...)
	d := n.open6(t)
	d.redirecting6(t)
	must(t, d.SetPools6([]netip.Prefix{pool6}))
	ofAlice := datapath.Client{Addrs: []netip.Addr{alice, aliceLocal}, MAC: aliceMAC, Admitted: true,
		Routes: []netip.Prefix{behind6}}
	must(t, d.Set(ofAlice))
	err := d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Admitted: true, Routes: ofAlice.Routes})
	if !errors.Is(err, datapath.ErrTaken) {
		t.Errorf("another client's network: %v", err)
	}
	for _, wrong := range []string{"2001:db8:1:0:8000::/65", "ff02::/16", "fe80::/64"} {
		c := datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Routes: []netip.Prefix{netip.MustParsePrefix(wrong)}}
		if err := d.Set(c); !errors.Is(err, datapath.ErrForeign) {
			t.Errorf("the network %s: %v", wrong, err)
		}
	}
	lan, wan := index(t, n.lan), index(t, n.wan)
	up := func(mac datapath.MAC, from netip.Addr) []byte { return tcp6(t, mac, lanMAC, from, server6) }
	down := func(from, to netip.Addr) []byte { return tcp6(t, serverMAC, wanMAC, from, to) }
	const size = 40 + 20 + 100
	for _, step := range []struct {
		name     string
		prog     *ebpf.Program
		link     uint32
		packet   []byte
		verdict  uint32
		reason   string
		up, down uint64 // bytes counted
	}{
		{"from it", d.objs.LanIn, lan, up(aliceMAC, behindIt), redirect, "forwarded", size, 0},
		{"from it, by another MAC", d.objs.LanIn, lan, up(bobMAC, behindIt), shot, "wrong-mac", 0, 0},
		{"from beside it", d.objs.LanIn, lan, up(aliceMAC, besideIt), shot, "not-leased", 0, 0},
		{"to it", d.objs.WanIn, wan, down(server6, behindIt), redirect, "forwarded", 0, size},
		{"to beside it", d.objs.WanIn, wan, down(server6, besideIt), shot, "not-leased", 0, 0},
		{"from it, but from the WAN", d.objs.WanIn, wan, down(behindIt, behindIt), shot, "foreign-source", 0, 0},
	} {
		var packets map[string]uint64
		var before datapath.Counters
		verdict, frame := d.tryWanting(t, step.reason, step.prog, step.link, step.packet, func() {
			packets, before = d.packets(t), counters(t, d, alice)
		})
		got, want := change(packets, d.packets(t)), map[string]uint64{step.reason: 1}
		if verdict != step.verdict || !maps.Equal(got, want) {
			t.Errorf("%s: verdict %d and %v, want %d and %v", step.name, verdict, got, step.verdict, want)
		}
		now := counters(t, d, alice)
		if now.UpBytes-before.UpBytes != step.up || now.DownBytes-before.DownBytes != step.down {
			t.Errorf("%s: counted %+v after %+v", step.name, now, before)
		}
		if to := datapath.MAC(frame[:6]); step.name == "to it" && to != aliceMAC {
			t.Errorf("%s: it goes to %v", step.name, to)
		}
	}
	ofAlice.Admitted = false
	must(t, d.Set(ofAlice))
	if verdict, _, _ := d.try(t, d.objs.LanIn, lan, up(aliceMAC, behindIt)); verdict != redirect { // answered with a reset
		t.Errorf("before login a packet has the verdict %d", verdict)
	}
	if verdict, _, _ := d.try(t, d.objs.WanIn, wan, down(server6, behindIt)); verdict != shot {
		t.Errorf("before login a packet to it has the verdict %d", verdict)
	}
}

// TestIPv6NetworkForwarded: packets of a network behind a client pass by redirect and by the stack, and the gateway
// reaches it. The next daemon knows the network, and nothing is left of it when the client has lost it. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestIPv6NetworkForwarded(t *testing.T) {
	n := newNetwork6(t)
	run(t, `ip -n $client link set lo up; ip -n $client addr add 2001:db8:200:a::5/128 dev lo
ip -n $client addr add 2001:db8:300::5/128 dev lo`, n.env()...)
	other, otherAddr := netip.MustParsePrefix("2001:db8:300::/56"), netip.MustParseAddr("2001:db8:300::5") // of no pool
	d := n.open6(t)
	must(t, d.SetPools6([]netip.Prefix{pool6}))
	c := datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: aliceMAC, Admitted: true,
		Routes: []netip.Prefix{behind6, other}}
	must(t, d.Set(c))
	passes := func() {
		t.Helper()
		n.reaches6(t, behindIt)
		n.reaches6(t, otherAddr)
		run(t, "ping -6 -c 1 -W 10 2001:db8:200:a::5", n.env()...)
	}
	d.redirecting6(t)
	passes()
	must(t, d.Close())
	d = n.open6(t)
	n.reaches6(t, behindIt)
	must(t, d.SetPools6([]netip.Prefix{pool6}))
	must(t, d.Set(c))
	run(t, `nft add table ip6 t; nft 'add chain ip6 t f { type filter hook forward priority 0; }'
nft add rule ip6 t f counter`, n.env()...)
	t.Cleanup(func() { try("nft delete table ip6 t") })
	netnstest.Await(t, "the stack to forward", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stackReason6 == "" {
			return errors.New("packets are redirected")
		}
		return nil
	})
	before := d.packets(t)
	passes()
	if change(before, d.packets(t))["stack"] == 0 {
		t.Errorf("the stack has forwarded nothing: %v", change(before, d.packets(t)))
	}
	run(t, "ip link set $lan down; ip link set $lan up; ip addr replace 2001:db8:1::1/64 dev $lan nodad", n.env()...)
	passes()
	c.Routes = nil
	must(t, d.Set(c))
	for _, addr := range []netip.Addr{behindIt, otherAddr} {
		packet := tcp6(t, aliceMAC, lanMAC, addr, server6)
		if verdict, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), packet); verdict != shot {
			t.Errorf("%s, of a network that the client has lost, has the verdict %d", addr, verdict)
		}
	}
	must(t, d.SetPools6(nil))
	must(t, d.Remove(datapath.IDOf(alice)))
	left := run(t, "ip -6 route show proto 103; ip -6 neigh show dev $lan nud permanent", n.env()...)
	if strings.TrimSpace(left) != "" {
		t.Errorf("routes or neighbours are left: %s", left)
	}
	if err := d.SetPools6(make([]netip.Prefix, 8)); err == nil {
		t.Error("more pools than programs compare are taken")
	}
	if got := fmt.Sprint(d.networks6.owner, d.networks6.of); got != "map[] map[]" {
		t.Errorf("of networks is left %s", got)
	}
}
