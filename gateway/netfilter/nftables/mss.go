package nftables

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// LowerMSS returns expressions that lower the MSS which a TCP segment offers to what fits into the
// MTU of its route and of the route back to its sender (RFC 9293, 3.7.1), in chains of forwarded and
// sent packets. A rule ends with them where a segment has no MSS. They use the register.
func LowerMSS(r Register) []Expr {
	const (
		mss, place, length = 2, 2, 2 // TCP's option, and where its value is, bytes
		kind, at, size     = unix.NFTA_EXTHDR_TYPE, unix.NFTA_EXTHDR_OFFSET, unix.NFTA_EXTHDR_LEN
	)
	return []Expr{
		{"rt", func(e *netlink.AttributeEncoder) {
			e.Uint32(unix.NFTA_RT_DREG, r.number())
			e.Uint32(unix.NFTA_RT_KEY, unix.NFT_RT_TCPMSS)
		}},
		{"byteorder", func(e *netlink.AttributeEncoder) {
			e.Uint32(unix.NFTA_BYTEORDER_SREG, r.number())
			e.Uint32(unix.NFTA_BYTEORDER_DREG, r.number())
			e.Uint32(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
			e.Uint32(unix.NFTA_BYTEORDER_LEN, length)
			e.Uint32(unix.NFTA_BYTEORDER_SIZE, length)
		}},
		{"exthdr", func(e *netlink.AttributeEncoder) {
			e.Uint32(unix.NFTA_EXTHDR_SREG, r.number())
			e.Uint8(kind, mss)
			e.Uint32(at, place)
			e.Uint32(size, length)
			e.Uint32(unix.NFTA_EXTHDR_OP, unix.NFT_EXTHDR_OP_TCPOPT)
		}},
	}
}
