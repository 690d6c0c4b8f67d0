package ebpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// BenchmarkFamilies is what an admitted client's redirected packet costs at tc by IPv4 and by IPv6, without the kernel
// around it. The client has the MAC address that the gateway has on the WAN, because the kernel runs a program again
// over what the last run left.
func BenchmarkFamilies(b *testing.B) {
	n := newNetwork6(b)
	run(b, `ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan nud permanent
ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent`, n.env()...)
	d := n.open6(b)
	d.redirecting6(b)
	must(b, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: wanMAC, Admitted: true}))
	const repeat = 250 // as often as the hop limit allows
	as := func(m datapath.MAC) func(*datapathtest.Frame) {
		return func(f *datapathtest.Frame) { f.Eth.SrcMAC = hw(m) }
	}
	up4, down4 := tcp(443, as(wanMAC), datapathtest.TTL(255)), tcp(40000, source(443), down, datapathtest.TTL(255))
	up6, down6 := tcp6(b, wanMAC, lanMAC, alice6, server6), tcp6(b, serverMAC, wanMAC, server6, alice6)
	for _, c := range []struct {
		name string
		prog *ebpf.Program
		dev  string
		in   []byte
	}{
		{"up/ipv4", d.objs.LanIn, n.lan, up4}, {"up/ipv6", d.objs.LanIn, n.lan, up6},
		{"down/ipv4", d.objs.WanIn, n.wan, down4}, {"down/ipv6", d.objs.WanIn, n.wan, down6},
	} {
		b.Run(c.name, func(b *testing.B) {
			opts := &ebpf.RunOptions{
				Data: c.in, DataOut: make([]byte, len(c.in)+256), Context: skb{Ifindex: index(b, c.dev)}, Repeat: repeat}
			for done := 0; done < b.N; done += repeat {
				verdict, err := c.prog.Run(opts)
				must(b, err)
				if verdict != redirect {
					b.Fatalf("verdict %d, packets %v", verdict, d.reasons)
				}
			}
		})
	}
}

// server6 is the server's IPv6 address.
var server6 = netip.MustParseAddr("2001:db8:9::2")

// tcp6 returns a TCP segment with 100 bytes by IPv6 of one connection, with hop limit 255.
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
