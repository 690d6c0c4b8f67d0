package nftables

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Span is a range of addresses and ports for a translation, each in a register in network order; nil: any. A
// nil last one is the first. NAT expressions are valid in chains of type "nat", and see the first packet of a
// connection only.
type Span struct {
	Addr, LastAddr *Register
	Port, LastPort *Register
	// Persistent gives all connections of one host the same address, whatever their destination is.
	Persistent bool
}

// RegisterAt is a register for a Span.
func RegisterAt(r Register) *Register { return &r }

// Destination changes the destination of the packet's connection.
func Destination(to Span) Expr { return translate(unix.NFT_NAT_DNAT, to) }

// Source changes the source of the packet's connection.
func Source(to Span) Expr { return translate(unix.NFT_NAT_SNAT, to) }

const persistent = 1 << 3 // NF_NAT_RANGE_PERSISTENT

func translate(kind uint32, to Span) Expr {
	return Expr{"nat", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_NAT_TYPE, kind)
		e.Uint32(unix.NFTA_NAT_FAMILY, unix.NFPROTO_IPV4)
		register(e, unix.NFTA_NAT_REG_ADDR_MIN, to.Addr)
		register(e, unix.NFTA_NAT_REG_ADDR_MAX, to.LastAddr)
		register(e, unix.NFTA_NAT_REG_PROTO_MIN, to.Port)
		register(e, unix.NFTA_NAT_REG_PROTO_MAX, to.LastPort)
		if to.Persistent {
			e.Uint32(unix.NFTA_NAT_FLAGS, persistent)
		}
	}}
}

// Masquerade changes the source to the address of the interface that the packet leaves by, and to a port of
// the span, whose addresses are ignored.
func Masquerade(to Span) Expr {
	return Expr{"masq", func(e *netlink.AttributeEncoder) {
		register(e, unix.NFTA_MASQ_REG_PROTO_MIN, to.Port)
		register(e, unix.NFTA_MASQ_REG_PROTO_MAX, to.LastPort)
	}}
}

func register(e *netlink.AttributeEncoder, attr uint16, r *Register) {
	if r != nil {
		e.Uint32(attr, r.number())
	}
}

// Addressed loads the address that the connection was opened to, before its translation.
func Addressed(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_DST_IP)
		e.Uint8(unix.NFTA_CT_DIRECTION, 0) // of its first packet
	}}
}

// Status loads the connection's status: bits in host byte order, two of which are Redirected and Expected.
func Status(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
	}}
}

// Bits of Status.
const (
	Expected   = 1 << 0 // another connection's helper announced it (IPS_EXPECTED)
	Confirmed  = 1 << 3 // the connection is in the kernel's table: a packet of it has passed (IPS_CONFIRMED)
	Redirected = 1 << 5 // its destination was changed (IPS_DST_NAT)
)

// KindOf loads the kind of the packet's destination address: 4 bytes in host byte order, Local among them.
func KindOf(to Register) Expr {
	return Expr{"fib", func(e *netlink.AttributeEncoder) {
		const (
			dreg, result, flags = 1, 2, 3
			addrType            = 3      // NFT_FIB_RESULT_ADDRTYPE
			daddr               = 1 << 1 // NFTA_FIB_F_DADDR
		)
		e.Uint32(dreg, to.number())
		e.Uint32(result, addrType)
		e.Uint32(flags, daddr)
	}}
}

// Local is KindOf an address of this machine.
var Local = binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)

// AtLeast and AtMost compare a register's bytes in big-endian order.
func AtLeast(r Register, b []byte) Expr { return compare(unix.NFT_CMP_GTE, r, b) }
func AtMost(r Register, b []byte) Expr  { return compare(unix.NFT_CMP_LTE, r, b) }
