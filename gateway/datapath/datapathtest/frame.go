package datapathtest

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Frame is a packet under construction. Lengths and checksums are filled in when it is built.
type Frame struct {
	Eth     layers.Ethernet
	IP      layers.IPv4
	L4      gopacket.SerializableLayer // nil: none
	Payload []byte
}

// TCP returns a segment with 100 bytes from port 40000 of 10.1.0.10, Alice, to the server's port, through the gateway,
// changed by edits.
func TCP(port uint16, edits ...func(*Frame)) []byte {
	l4 := &layers.TCP{
		SrcPort: 40000, DstPort: layers.TCPPort(port), Seq: 1000, Ack: 2000, ACK: true, PSH: true, Window: 1000}
	return build(layers.IPProtocolTCP, l4, edits)
}

// SYN returns a TCP connection request without data.
func SYN(port uint16, edits ...func(*Frame)) []byte {
	l4 := &layers.TCP{SrcPort: 40000, DstPort: layers.TCPPort(port), Seq: 1000, SYN: true, Window: 1000}
	return build(layers.IPProtocolTCP, l4, append([]func(*Frame){Carrying(nil)}, edits...))
}

// UDP returns a datagram like TCP's segment.
func UDP(port uint16, edits ...func(*Frame)) []byte {
	return build(layers.IPProtocolUDP, &layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)}, edits)
}

// Echo is an ICMP echo request.
func Echo(edits ...func(*Frame)) []byte {
	return build(layers.IPProtocolICMPv4,
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 7, Seq: 1}, edits)
}

// Protocol returns a packet of another protocol with a meaningless payload.
func Protocol(p layers.IPProtocol, edits ...func(*Frame)) []byte { return build(p, nil, edits) }

// build serialises a frame, changed by edits.
func build(protocol layers.IPProtocol, l4 gopacket.SerializableLayer, edits []func(*Frame)) []byte {
	f := Frame{
		Eth: layers.Ethernet{
			SrcMAC: hw(datapath.MAC{2, 0, 0, 0, 0, 10}), DstMAC: hw(LANMAC), EthernetType: layers.EthernetTypeIPv4},
		IP: layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: []byte{10, 1, 0, 10}, DstIP: Server.AsSlice()},
		L4: l4, Payload: bytes.Repeat([]byte{'x'}, 100),
	}
	for _, edit := range edits {
		edit(&f)
	}
	all := []gopacket.SerializableLayer{&f.Eth, &f.IP}
	switch l := f.L4.(type) {
	case *layers.TCP:
		l.SetNetworkLayerForChecksum(&f.IP)
		all = append(all, l)
	case *layers.UDP:
		l.SetNetworkLayerForChecksum(&f.IP)
		all = append(all, l)
	case *layers.ICMPv4:
		all = append(all, l)
	}
	b := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, opts, append(all, gopacket.Payload(f.Payload))...); err != nil {
		panic(err) // the test itself is wrong
	}
	return b.Bytes()[:14+int(f.IP.Length)] // without padding
}

// Reset returns a TCP segment with a text. It is a reset, so nobody answers it.
func Reset(text string, edits ...func(*Frame)) []byte {
	return TCP(9, append(edits, Carrying([]byte(text)), func(f *Frame) { f.L4.(*layers.TCP).RST = true })...)
}

// From changes the sender.
func From(a netip.Addr, m datapath.MAC) func(*Frame) {
	return func(f *Frame) { f.IP.SrcIP, f.Eth.SrcMAC = a.AsSlice(), hw(m) }
}

// By is From with a station's addresses.
func By(s Station) func(*Frame) { return From(s.Addr, s.MAC) }

// To changes the destination address, but not the next hop.
func To(a netip.Addr) func(*Frame) { return func(f *Frame) { f.IP.DstIP = a.AsSlice() } }

// Via changes the destination MAC address.
func Via(m datapath.MAC) func(*Frame) { return func(f *Frame) { f.Eth.DstMAC = hw(m) } }

// Down makes it a frame from the server to 10.1.0.10, as it arrives at the WAN.
func Down(f *Frame) {
	f.IP.SrcIP, f.IP.DstIP = Server.AsSlice(), []byte{10, 1, 0, 10}
	f.Eth.SrcMAC, f.Eth.DstMAC = hw(ServerMAC), hw(WANMAC)
}

// SourcePort changes the source port.
func SourcePort(port uint16) func(*Frame) {
	return func(f *Frame) {
		switch l := f.L4.(type) {
		case *layers.TCP:
			l.SrcPort = layers.TCPPort(port)
		case *layers.UDP:
			l.SrcPort = layers.UDPPort(port)
		}
	}
}

// Carrying changes the payload.
func Carrying(b []byte) func(*Frame) { return func(f *Frame) { f.Payload = b } }

// TTL changes the time to live.
func TTL(n uint8) func(*Frame) { return func(f *Frame) { f.IP.TTL = n } }

// Fragment makes it a fragment: the first of a packet at offset 0.
func Fragment(offset uint16) func(*Frame) {
	return func(f *Frame) { f.IP.Flags, f.IP.Id, f.IP.FragOffset = layers.IPv4MoreFragments, 7, offset/8 }
}

// Options adds IP options: an empty record route.
func Options(f *Frame) {
	f.IP.Options = []layers.IPv4Option{
		{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}}, {OptionType: 1}}
}

// EtherType changes a built frame's type.
func EtherType(e layers.EthernetType, b []byte) []byte {
	binary.BigEndian.PutUint16(b[12:], uint16(e))
	return b
}

// Tagged inserts VLAN tags into a built frame, the outer one first: pairs of type and VLAN.
func Tagged(b []byte, tags ...uint16) []byte {
	out := bytes.Clone(b[:12])
	for _, t := range tags {
		out = binary.BigEndian.AppendUint16(out, t)
	}
	return append(out, b[12:]...)
}

// IPv6 is a UDP datagram in an IPv6 packet of a client's.
func IPv6(m datapath.MAC) []byte {
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 64,
		SrcIP: netip.MustParseAddr("2001:db8:1::2").AsSlice(), DstIP: netip.MustParseAddr("2001:db8:2::2").AsSlice()}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 443}
	udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: hw(m), DstMAC: hw(LANMAC), EthernetType: layers.EthernetTypeIPv6}, ip, udp,
		gopacket.Payload("leak"))
	if err != nil {
		panic(err) // the test itself is wrong
	}
	return b.Bytes()
}

// ARP returns a broadcast request (operation 1) or reply (2) that claims an address for its sender.
func ARP(operation uint16, a netip.Addr, m datapath.MAC, target netip.Addr) []byte {
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{},
		&layers.Ethernet{SrcMAC: hw(m), DstMAC: hw(everybody), EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
			ProtAddressSize: 4, Operation: operation,
			SourceHwAddress: m[:], SourceProtAddress: a.AsSlice(), DstHwAddress: make([]byte, 6),
			DstProtAddress: target.AsSlice()})
	if err != nil {
		panic(err) // the test itself is wrong
	}
	return append(b.Bytes(), make([]byte, 18)...)
}

// inAnothersFrame changes the Ethernet sender of a built frame, but not the sender that the message names.
func inAnothersFrame(b []byte, m datapath.MAC) []byte {
	copy(b[6:12], m[:])
	return b
}

// everybody is Ethernet's broadcast address.
var everybody = datapath.MAC{255, 255, 255, 255, 255, 255}
