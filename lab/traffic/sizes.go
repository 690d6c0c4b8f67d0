package traffic

// Sizes of packets, bytes.
const (
	EthernetMTU = 1500

	ipv4Header = 20
	udpHeader  = 8
	tcpHeader  = 32 // with time stamps (RFC 7323)

	MaxDatagram = 1<<16 - 1 - ipv4Header - udpHeader // payload of the longest UDP datagram
)

// DefaultBurst is the number of full TCP segments that fit into the kernel's 64 KB segmentation buffer.
const DefaultBurst = 44

// SegmentBytes returns the payload that fills an IPv4 packet of mtu bytes: that of a TCP segment with time stamps, or
// of a UDP datagram.
func SegmentBytes(mtu int, udp bool) int {
	if udp {
		return mtu - ipv4Header - udpHeader
	}
	return mtu - ipv4Header - tcpHeader
}
