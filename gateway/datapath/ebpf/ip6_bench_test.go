package ebpf

import (
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkFamilies measures the program's time, ns, for an admitted client's packet by IPv4 and by IPv6, redirected
// and by the cache of flows, without the kernel's time around it, and the ratio of IPv6's time to IPv4's. The client
// has the MAC address that the gateway has on the WAN, because the kernel runs a program again over the packet that the
// last run left.
func BenchmarkFamilies(b *testing.B) {
	n := newNetwork6(b)
	run(b, `ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan nud permanent
ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent`, n.env()...)
	d := n.open6(b, func(c *Config) { c.FlowCache = FlowCacheAlways })
	d.redirecting6(b)
	must(b, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: wanMAC, Admitted: true}))
	as := func(m datapath.MAC) func(*datapathtest.Frame) {
		return func(f *datapathtest.Frame) { f.Eth.SrcMAC = hw(m) }
	}
	up := [2]packets{
		{d.objs.LanIn, index(b, n.lan), tcp(443, as(wanMAC), datapathtest.TTL(255))},
		{d.objs.LanIn, index(b, n.lan), tcp6(b, wanMAC, lanMAC, alice6, server6)},
	}
	down := [2]packets{
		{d.objs.WanIn, index(b, n.wan), tcp(40000, source(443), down, datapathtest.TTL(255))},
		{d.objs.WanIn, index(b, n.wan), tcp6(b, serverMAC, wanMAC, server6, alice6)},
	}
	b.Run("redirect/up", func(b *testing.B) { duel(b, up) })
	b.Run("redirect/down", func(b *testing.B) { duel(b, down) })
	d.stop() // the daemon would end the cache, because there are no rules
	must(b, d.set(func(s *gatewaySettings) { s.RedirectUntil = 0 }))
	must(b, d.set6(func(s *gatewaySettings6) { s.RedirectUntil = 0 }))
	d.enterFlows(b)
	b.Run("cache/up", func(b *testing.B) { duel(b, up) })
	b.Run("cache/down", func(b *testing.B) { duel(b, down) })
}

// enterFlows enters the flows of BenchmarkFamilies into the cache. None of them is translated.
func (d *Datapath) enterFlows(b testing.TB) {
	b.Helper()
	const generation = 7
	for family := range uint32(2) {
		must(b, d.objs.FlowSettings.Put(family, gatewayFlowSettings{Until: now() + 3600e9, Generation: generation}))
	}
	place, err := d.placeOf(alice)
	must(b, err)
	for side := range uint16(2) {
		k := gatewayFlowKey{Saddr: networkOrder(alice), Daddr: networkOrder(server), Sport: port(40000), Dport: port(443),
			Protocol: 6, Side: side + 1}
		k6 := gatewayFlow6Key{Saddr: key6(alice6), Daddr: key6(server6), Sport: k.Sport, Dport: k.Dport, Protocol: 6,
			Side: side + 1}
		if side == 1 {
			k.Saddr, k.Daddr, k.Sport, k.Dport = k.Daddr, k.Saddr, k.Dport, k.Sport
			k6.Saddr, k6.Daddr, k6.Sport, k6.Dport = k6.Daddr, k6.Saddr, k.Sport, k.Dport
		}
		p := gatewayFlowPath{Until: now() + 3600e9, Generation: generation, At: place, Saddr: k.Saddr, Daddr: k.Daddr,
			Sport: k.Sport, Dport: k.Dport, Most: 1500, Dmac: lanMAC, Smac: wanMAC}
		p6 := gatewayFlow6Path{Until: p.Until, Generation: generation, Head: networkOrder(netip.AddrFrom4([4]byte{0x60})),
			Most: 1500, Dmac: lanMAC, Smac: wanMAC}
		if side == 1 {
			p.Smac, p6.Smac = serverMAC, serverMAC
		}
		p.Sum, p6.Sum = sum(k, p), sum6Of(k6, p6)
		must(b, d.objs.FlowPaths.Update(k, p, ebpf.UpdateAny))
		must(b, d.objs.Flow6Paths.Update(k6, p6, ebpf.UpdateAny))
	}
}

// packets is a program's input: one packet, again and again.
type packets struct {
	prog *ebpf.Program
	dev  uint32
	in   []byte
}

// duel runs a program over a packet of IPv4 and over one of IPv6, by turns, so that other load of the machine slows
// both alike. It reports the first quartile of each family's turns, in ns a packet.
func duel(b *testing.B, families [2]packets) {
	var took [2][]float64
	for range b.N {
		for family, p := range families {
			took[family] = append(took[family], p.turn(b))
		}
	}
	quick := [2]float64{quartile(took[0]), quartile(took[1])}
	b.ReportMetric(quick[0], "ipv4-ns")
	b.ReportMetric(quick[1], "ipv6-ns")
	b.ReportMetric(quick[1]/quick[0], "ipv6/ipv4")
	b.ReportMetric(0, "ns/op")
}

// turn runs the program for some 20 µs, and returns what it took, in ns a packet. The packet must be redirected.
func (p packets) turn(b *testing.B) float64 {
	const repeat = 250 // as often as the hop limit allows
	run := func(repeat uint32) time.Duration {
		opts := &ebpf.RunOptions{
			Data: p.in, DataOut: make([]byte, len(p.in)+256), Context: skb{Ifindex: p.dev}, Repeat: repeat}
		began := time.Now()
		verdict, err := p.prog.Run(opts)
		took := time.Since(began)
		must(b, err)
		if verdict != redirect {
			verdict, err = p.prog.Run(opts) // each second one packet goes to the stack, which refreshes the next hop
			must(b, err)
		}
		if verdict != redirect {
			b.Fatalf("verdict %d", verdict)
		}
		return took
	}
	each := run(repeat) - run(1)
	return float64(each.Nanoseconds()) / (repeat - 1)
}

// quartile is the first quartile of what turns took.
func quartile(took []float64) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/4]
}

// sum6Of computes the checksum of a cache entry, as sum_of6 in flow6.h.
func sum6Of(k gatewayFlow6Key, p gatewayFlow6Path) uint64 {
	a := unsafe.Slice((*uint64)(unsafe.Pointer(&k)), 5)
	out := 0x9e3779b97f4a7c15 ^ a[0]*3 ^ a[1]*0x9e3779b97f4a7c15 ^ a[2]*5 ^ a[3]*0xc2b2ae3d27d4eb4f ^ a[4]
	for _, w := range unsafe.Slice((*uint64)(unsafe.Pointer(&p)), unsafe.Offsetof(p.Sum)/8) {
		out ^= w
	}
	return out
}

// server6 is the server's IPv6 address.
var server6 = netip.MustParseAddr("2001:db8:9::2")

// tcp6 returns a TCP segment with 100 bytes by IPv6, with hop limit 255. The ports are always the same.
func tcp6(t testing.TB, src, dst datapath.MAC, from, to netip.Addr) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	segment := &layers.TCP{SrcPort: 40000, DstPort: 443, Seq: 1000, Ack: 2000, ACK: true, PSH: true, Window: 1000}
	if from == server6 {
		segment.SrcPort, segment.DstPort = segment.DstPort, segment.SrcPort
	}
	must(t, segment.SetNetworkLayerForChecksum(ip))
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: hw(src), DstMAC: hw(dst), EthernetType: layers.EthernetTypeIPv6}, ip, segment,
		gopacket.Payload(make([]byte, 100))))
	return b.Bytes()
}
