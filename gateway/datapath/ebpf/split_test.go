// Tests of the program that hands packets from a WAN to one of several networks (split.bpf.c). verdictOf tells which
// network's program was called.

package ebpf

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// verdictOf is what the program of a network returns in place of wan_in.
func verdictOf(number uint32) uint32 { return 100 + number }

// newSplit opens what two networks share, numbers 0 and 1, whose programs tell which one was called.
func newSplit(t *testing.T) (s *split, wan uint32) {
	t.Helper()
	n := newNetwork(t)
	dir := "/sys/fs/bpf/" + n.lan + "-shared"
	wanLink, err := net.InterfaceByName(n.wan)
	must(t, err)
	s, err = openSplit(dir, wanLink)
	must(t, err)
	t.Cleanup(func() { must(t, s.close()); must(t, os.RemoveAll(dir)) })
	for i, lan := range []string{n.lan, n.wan} { // any two interfaces
		number, err := s.number(index(t, lan))
		must(t, err)
		if number != uint32(i) {
			t.Fatalf("network %d has the number %d", i, number)
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, int32(verdictOf(number))), asm.Return()}})
		must(t, err)
		t.Cleanup(func() { p.Close() })
		must(t, s.objs.WanIns.Put(number, uint32(p.FD())))
	}
	return s, uint32(wanLink.Index)
}

// wan6 is a packet of IPv6 to a host, from the WAN.
func wan6(t *testing.T, from, to string, next layers.IPProtocol, payload []byte) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: hw(serverMAC), DstMAC: hw(wanMAC), EthernetType: layers.EthernetTypeIPv6},
		&layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)},
		gopacket.Payload(payload)))
	return b.Bytes()
}

// TestWANSplit: a packet from the WAN goes to the program of the network that has its source, because it is forged, or
// else its destination, or else its flow; others, and those of a network that has left, are the stack's. Long: most
// lines are the table of cases.
func TestWANSplit(t *testing.T) {
	s, wan := newSplit(t)
	must(t, s.setParts(0, []netip.Prefix{lanPrefix, netip.MustParsePrefix("203.0.113.0/28")}))
	must(t, s.setParts(1, []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("203.0.113.8/30")}))
	must(t, s.setParts6(0, []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64")}))
	must(t, s.setParts6(1, []netip.Prefix{netip.MustParsePrefix("2001:db8:2::/64"),
		netip.MustParsePrefix("2001:db8:200::/40")}))
	for i, protocol := range []uint16{6, 17} { // flows that the networks translate to the WAN's address
		must(t, s.objs.FlowPaths.Put(splitFlowKey{Saddr: networkOrder(server), Daddr: networkOrder(routerWAN),
			Sport: port(443), Dport: port(40000), Protocol: protocol, Side: fromWAN}, splitFlowPath{Network: uint32(1 - i)}))
	}
	at := func(src, dst string) func(*datapathtest.Frame) {
		return func(f *datapathtest.Frame) {
			down(f)
			f.IP.SrcIP, f.IP.DstIP = net.ParseIP(src), net.ParseIP(dst)
		}
	}
	back := func(f *datapathtest.Frame) { at("192.0.2.2", "192.0.2.1")(f); source(443)(f) }
	icmpError := func(f *datapathtest.Frame) {
		f.IP.Protocol, f.L4 = layers.IPProtocolICMPv4, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}
	}
	options := func(f *datapathtest.Frame) { f.IP.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 0}} }
	data := make([]byte, 64)
	const server6, first6, second6 = "2001:db8:9::2", "2001:db8:1::10", "2001:db8:2::10"
	first, second, none := verdictOf(0), verdictOf(1), uint32(ok)
	for name, c := range map[string]struct {
		packet []byte
		want   uint32
	}{
		"to the first":                   {tcp(443, at("192.0.2.2", "10.1.0.10")), first},
		"to the second":                  {udp(443, at("192.0.2.2", "10.2.255.255")), second},
		"to a network behind a client":   {udp(443, at("192.0.2.2", "203.0.113.1")), first},
		"to a network within that":       {udp(443, at("192.0.2.2", "203.0.113.9")), second},
		"forged: of the first":           {udp(443, at("10.1.0.10", "198.51.100.7")), first},
		"forged: the first's, to second": {udp(443, at("10.1.0.10", "10.2.0.10")), first},
		"forged: the second's, to first": {udp(443, at("10.2.0.10", "10.1.0.10")), second},
		"forged: to the WAN's address":   {udp(443, at("10.2.0.10", "192.0.2.1")), second},
		"beside the first":               {udp(443, at("192.0.2.2", "10.1.1.0")), none},
		"to the WAN's address":           {udp(443, at("192.0.2.2", "192.0.2.1")), none},
		"a fragment":                     {udp(443, at("192.0.2.2", "10.2.0.10"), datapathtest.Fragment(1480)), second},
		"an ICMP error to a client":      {udp(443, at("198.51.100.7", "10.1.0.10"), icmpError), first},
		"an ICMP error to the WAN":       {udp(443, at("198.51.100.7", "192.0.2.1"), icmpError), none},
		"options":                        {udp(443, at("192.0.2.2", "10.1.0.10"), options), first},
		"translated, TCP":                {tcp(40000, back), second},
		"translated, UDP":                {udp(40000, back), first},
		"translated, another port":       {udp(40001, back), none},
		"translated, with options":       {udp(40000, back, options), none},
		"ARP":                            {arpFrame(alice, aliceMAC), none},
		"IPv6 to the first":              {wan6(t, server6, first6, layers.IPProtocolUDP, data), first},
		"IPv6 to the second":             {wan6(t, server6, second6, layers.IPProtocolUDP, data), second},
		"IPv6 to a delegated prefix":     {wan6(t, server6, "2001:db8:2ff::1", layers.IPProtocolUDP, nil), second},
		"IPv6, forged":                   {wan6(t, first6, second6, layers.IPProtocolUDP, data), first},
		"IPv6, forged, to a stranger":    {wan6(t, second6, server6, layers.IPProtocolUDP, data), second},
		"IPv6 to nobody":                 {wan6(t, server6, "2001:db8:3::10", layers.IPProtocolUDP, data), none},
		"IPv6, a fragment":               {wan6(t, server6, second6, layers.IPProtocolIPv6Fragment, data), second},
		"IPv6, an ICMP error":            {wan6(t, "2001:db8:99::1", first6, layers.IPProtocolICMPv6, data), first},
		"IPv6 for the link":              {wan6(t, "fe80::2", "ff02::1", layers.IPProtocolICMPv6, data), none},
	} {
		t.Run(name, func(t *testing.T) {
			if verdict, _, _ := new(Datapath).try(t, s.objs.WanSplit, wan, c.packet); verdict != c.want {
				t.Errorf("verdict %d, want %d (%d the first's, %d the second's)", verdict, c.want, first, second)
			}
		})
	}
	must(t, s.forget(wan, 1))
	for name, c := range map[string]struct {
		packet []byte
		want   uint32
	}{
		"to the first":                 {tcp(443, at("192.0.2.2", "10.1.0.10")), first},
		"to the one that left":         {udp(443, at("192.0.2.2", "10.2.0.10")), none},
		"forged, of the one that left": {udp(443, at("10.2.0.10", "10.1.0.10")), first},
		"IPv6 to the one that left":    {wan6(t, server6, second6, layers.IPProtocolUDP, data), none},
	} {
		if verdict, _, _ := new(Datapath).try(t, s.objs.WanSplit, wan, c.packet); verdict != c.want {
			t.Errorf("%s: verdict %d, want %d", name, verdict, c.want)
		}
	}
}

// TestPartsOfNetworks: whatever parts networks have one after the other, a packet goes to the network that has the
// longest of those with its destination, as a slow search finds it. Long: one change of parts after the other.
func TestPartsOfNetworks(t *testing.T) {
	s, wan := newSplit(t)
	chance := rand.New(rand.NewPCG(1, 2))
	addr := func(six bool) netip.Addr { // of few networks, so that parts lie within others
		if six {
			a := [16]byte{0x20, 0x01, 0x0d, byte(chance.IntN(2)), byte(chance.IntN(2)), byte(chance.IntN(4)),
				byte(chance.IntN(4)), byte(chance.IntN(256)), 15: 1}
			return netip.AddrFrom16(a)
		}
		return netip.AddrFrom4([4]byte{10, byte(chance.IntN(3)), byte(chance.IntN(8)), byte(chance.IntN(256))})
	}
	parts := map[netip.Prefix]uint32{}
	for range 30 {
		number := uint32(chance.IntN(2))
		maps.DeleteFunc(parts, func(_ netip.Prefix, n uint32) bool { return n == number })
		var own, own6 []netip.Prefix
		for range chance.IntN(12) {
			for _, six := range []bool{false, true} {
				bits := 14 + chance.IntN(19)
				if six {
					bits = 30 + chance.IntN(35)
				}
				p, _ := addr(six).Prefix(bits)
				if _, taken := parts[p]; taken {
					continue
				}
				if parts[p] = number; six {
					own6 = append(own6, p)
				} else {
					own = append(own, p)
				}
			}
		}
		must(t, s.setParts(number, own))
		must(t, s.setParts6(number, own6))
		for i := range 40 {
			a, want, longest := addr(i%2 == 0), uint32(ok), -1
			for p, n := range parts {
				if p.Contains(a) && p.Bits() > longest {
					want, longest = verdictOf(n), p.Bits()
				}
			}
			var packet []byte
			if a.Is4() {
				packet = udp(443, down, to(a))
			} else {
				packet = wan6(t, "fd00::1", a.String(), layers.IPProtocolUDP, make([]byte, 8))
			}
			if verdict, _, _ := new(Datapath).try(t, s.objs.WanSplit, wan, packet); verdict != want {
				t.Fatalf("a packet to %s: verdict %d, want %d of %v", a, verdict, want, parts)
			}
		}
	}
}
