package persona

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

var errNoReply = errors.New("not a DHCP server's reply")

// datagram is the Ethernet frame of a UDP datagram.
func datagram(from, to MAC, src, dst netip.AddrPort, payload []byte) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	return serialize(ethernet(from, to, layers.EthernetTypeIPv4), ip, udp, gopacket.Payload(payload))
}

// question asks for the hardware address of target, as from and src (RFC 826).
func question(from MAC, src, target netip.Addr) ([]byte, error) {
	return serialize(ethernet(from, broadcast, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: layers.ARPRequest, SourceHwAddress: from[:], SourceProtAddress: src.AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
	})
}

func ethernet(from, to MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: kind}
}

func serialize(parts ...gopacket.SerializableLayer) ([]byte, error) {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		return nil, fmt.Errorf("making a frame: %w", err)
	}
	return b.Bytes(), nil
}

// reply is what a DHCP server said, and the hardware address it said it from.
type reply struct {
	*dhcpv4.DHCPv4
	from MAC
}

// parseReply takes a DHCP server's reply out of an Ethernet frame; anything else is
// an error. Checksums are not verified: a sender on this machine leaves them to
// hardware that is not there.
func parseReply(frame []byte) (reply, error) {
	var eth layers.Ethernet
	var ip layers.IPv4
	var udp layers.UDP
	none := gopacket.NilDecodeFeedback
	if eth.DecodeFromBytes(frame, none) != nil || eth.EthernetType != layers.EthernetTypeIPv4 ||
		ip.DecodeFromBytes(eth.Payload, none) != nil || ip.Protocol != layers.IPProtocolUDP || ip.FragOffset != 0 ||
		udp.DecodeFromBytes(ip.Payload, none) != nil || udp.DstPort != dhcpv4.ClientPort {
		return reply{}, errNoReply
	}
	msg, err := dhcpv4.FromBytes(udp.Payload)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNoReply, err)
	}
	if msg.OpCode != dhcpv4.OpcodeBootReply || len(msg.ClientHWAddr) != len(MAC{}) {
		return reply{}, errNoReply
	}
	return reply{msg, MAC(eth.SrcMAC)}, nil
}
