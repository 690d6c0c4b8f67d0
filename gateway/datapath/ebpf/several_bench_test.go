// A benchmark of what a packet costs where many networks share a WAN. crowd_bench_test.go has the helpers for blocks of
// measurements.

package ebpf

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkNetworks is what an admitted client's packet costs at tc beside 63 other networks, as a part of what it
// costs where its network is the only one: redirected, by both families and in both directions. In each block the
// others come and go, as far as packets meet them. The interval is of 95 %, over blocks.
func BenchmarkNetworks(b *testing.B) {
	n := newNetwork6(b)
	run(b, `ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan nud permanent
ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent`, n.env()...)
	d := n.open6(b, func(c *Config) { c.Shared = "/sys/fs/bpf/" + n.lan + "-shared" })
	d.redirecting6(b)
	must(b, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: wanMAC, Admitted: true}))
	as := func(f *datapathtest.Frame) { f.Eth.SrcMAC = hw(wanMAC) }
	lan, wan, split := index(b, n.lan), index(b, n.wan), d.split.objs.WanSplit
	for _, way := range []struct {
		name string
		packets
	}{
		{"ipv4/up", packets{d.objs.LanIn, lan, tcp(443, as, datapathtest.TTL(255))}},
		{"ipv4/down", packets{split, wan, tcp(40000, source(443), down, datapathtest.TTL(255))}},
		{"ipv6/up", packets{d.objs.LanIn, lan, tcp6(b, wanMAC, lanMAC, alice6, server6)}},
		{"ipv6/down", packets{split, wan, tcp6(b, serverMAC, wanMAC, server6, alice6)}},
	} {
		b.Run(way.name, func(b *testing.B) {
			const blocks = 40
			if b.N < blocks {
				return // the framework's first try
			}
			var alone, ratios []float64
			for block := range blocks {
				var quick [2]float64
				for i := range 2 {
					among := (block + i) % 2
					d.setOthers(b, among == 1)
					var took []float64
					for range b.N / blocks {
						took = append(took, way.turn(b))
					}
					quick[among] = quartile(took)
				}
				alone, ratios = append(alone, quick[0]), append(ratios, quick[1]/quick[0])
			}
			d.setOthers(b, false)
			mean, half := interval(ratios)
			b.ReportMetric(quartile(alone), "one-ns")
			b.ReportMetric(mean, "64/one")
			b.ReportMetric(half, "±")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// setOthers enters 63 other networks in what networks share, or removes them.
func (d *Datapath) setOthers(b *testing.B, on bool) {
	b.Helper()
	for i := range 63 {
		lan := uint32(1_000_000 + i)
		if !on {
			if number, err := d.split.number(lan); err == nil {
				must(b, d.split.forget(lan, number))
			}
			continue
		}
		number, err := d.split.number(lan)
		must(b, err)
		must(b, d.split.objs.WanIns.Put(number, uint32(d.objs.WanIn.FD())))
		must(b, d.split.setParts(number, []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 2)}), 24)}))
		must(b, d.split.setParts6(number, []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/64", i+0x100))}))
	}
}

// interval returns the mean of some 40 values and half of its 95 % interval.
func interval(values []float64) (mean, half float64) {
	const t = 2.02 // of Student's distribution with 39 degrees of freedom
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		half += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, t * math.Sqrt(half/float64(len(values)))
}
