// A benchmark of the program that forwards a packet by the cache of flows. newNetwork makes a LAN with alice and bob
// and a WAN with a server, and open starts a data path between them (main_test.go). sum, diff and port make an entry of
// the cache (cache_test.go).

package ebpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkCached measures the program's time for a packet of a cached and translated flow, without the kernel's time
// around it. The kernel runs a program again over the packet that the last run left, so two flows take turns, each of
// which is translated into the other.
func BenchmarkCached(b *testing.B) {
	n := newNetwork(b)
	d := n.open(b, func(c *Config) { c.FlowCache = FlowCacheAlways })
	d.stop() // the daemon would end the cache, because there are no rules
	must(b, d.set(func(s *gatewaySettings) { s.RedirectUntil = 0 }))
	const generation, repeat = 7, 250 // as often as the TTL allows
	must(b, d.objs.FlowSettings.Put(uint32(0), gatewayFlowSettings{Until: now() + 3600e9, Generation: generation}))
	peer := networkOrder(server)
	enter := func(k gatewayFlowKey, p gatewayFlowPath) {
		k.Protocol = 6
		p.Until, p.Generation, p.Most, p.Smac, p.Dmac = now()+3600e9, generation, 1500, aliceMAC, lanMAC
		p.AddressDiff = diff([]uint32{k.Saddr, k.Daddr}, []uint32{p.Saddr, p.Daddr})
		p.PortDiff = diff([]uint32{uint32(k.Sport) | uint32(k.Dport)<<16}, []uint32{uint32(p.Sport) | uint32(p.Dport)<<16})
		p.Sum = sum(k, p)
		must(b, d.objs.FlowPaths.Update(k, p, ebpf.UpdateAny))
	}
	inside, outside := [2]netip.Addr{alice, bob}, [2]netip.Addr{routerWAN, routerWAN.Prev()}
	for i, a := range inside {
		must(b, d.Set(datapath.Client{Addrs: []netip.Addr{a}, MAC: aliceMAC, Admitted: true}))
		place, err := d.placeOf(a)
		must(b, err)
		own, other := port(uint16(40000+i)), port(uint16(40001-i))
		enter(gatewayFlowKey{Saddr: networkOrder(a), Daddr: peer, Sport: own, Dport: port(443), Side: 1},
			gatewayFlowPath{At: place, Saddr: networkOrder(inside[1-i]), Daddr: peer, Sport: other, Dport: port(443)})
		enter(gatewayFlowKey{Saddr: peer, Daddr: networkOrder(outside[i]), Sport: port(443), Dport: own, Side: 2},
			gatewayFlowPath{At: place, Saddr: peer, Daddr: networkOrder(outside[1-i]), Sport: port(443), Dport: other})
	}
	for name, c := range map[string]struct {
		prog *ebpf.Program
		dev  string
		in   []byte
	}{
		"up":   {d.objs.LanIn, n.lan, tcp(443, source(40000), datapathtest.TTL(255))},
		"down": {d.objs.WanIn, n.wan, tcp(40000, source(443), down, to(routerWAN), datapathtest.TTL(255))},
	} {
		b.Run(name, func(b *testing.B) {
			opts := &ebpf.RunOptions{
				Data: c.in, DataOut: make([]byte, len(c.in)+256), Context: skb{Ifindex: index(b, c.dev)}, Repeat: repeat}
			for done := 0; done < b.N; done += repeat {
				verdict, err := c.prog.Run(opts)
				must(b, err)
				if verdict != redirect {
					b.Fatalf("verdict %d", verdict)
				}
			}
		})
	}
}
