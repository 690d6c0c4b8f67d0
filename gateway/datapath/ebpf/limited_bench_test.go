// A benchmark of the program that applies a client's rate. newNetwork makes a LAN with alice and bob and a WAN with a
// server, and open starts a data path between them (main_test.go). skb is what the kernel tells a program of a packet
// (programs_test.go).

package ebpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkLimited measures the program's time for a packet of a client with a rate, below that rate, and of a client
// without a rate, without the kernel's time around it.
func BenchmarkLimited(b *testing.B) {
	n := newNetwork(b)
	d := n.open(b, func(c *Config) { c.Shaping = ShapingAuto })
	d.stop() // the daemon would renew the stamp
	must(b, d.set(func(s *gatewaySettings) { s.RedirectUntil = now() + 3600e9 }))
	const repeat = 250 // as often as the TTL allows
	const bps = 1e12
	for _, c := range []struct {
		name   string
		limits datapath.Limits
		holder gatewayHolder
	}{
		{"without", datapath.Limits{}, gatewayHolderHOLDER_NONE},
		{"policed", datapath.Limits{UpBps: bps, DownBps: bps}, gatewayHolderHOLDER_NONE},
		{"shaped", datapath.Limits{UpBps: bps, DownBps: bps}, gatewayHolderHOLDER_CLASS},
	} {
		b.Run(c.name, func(b *testing.B) {
			must(b, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true, Limits: c.limits}))
			must(b, d.objs.RateShaping.Put(uint32(0), gatewayShaping{Until: now() + 3600e9, Up: uint32(c.holder),
				Down: uint32(c.holder)}))
			in := tcp(443, down, datapathtest.TTL(255))
			opts := &ebpf.RunOptions{
				Data: in, DataOut: make([]byte, len(in)+256), Context: skb{Ifindex: index(b, n.wan)}, Repeat: repeat}
			for done := 0; done < b.N; done += repeat {
				v, err := d.objs.WanIn.Run(opts)
				must(b, err)
				if v != redirect {
					b.Fatalf("verdict %d", v)
				}
			}
		})
	}
}
