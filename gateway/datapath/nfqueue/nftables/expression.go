package nftables

import (
	"encoding/binary"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Expr is a step of a rule. A rule ends with the first step that does not match.
type Expr struct {
	name string
	fill func(*netlink.AttributeEncoder)
}

func (x Expr) encode(e *netlink.AttributeEncoder) error {
	e.String(unix.NFTA_EXPR_NAME, x.name)
	e.Nested(unix.NFTA_EXPR_DATA, func(in *netlink.AttributeEncoder) error {
		in.ByteOrder = binary.BigEndian
		if x.fill != nil {
			x.fill(in)
		}
		return nil
	})
	return nil
}

// Register is one of sixteen places of four bytes, 0 to 15; longer values take the
// following ones as well.
type Register uint32

func (r Register) number() uint32 { return unix.NFT_REG32_00 + uint32(r) }

func value(e *netlink.AttributeEncoder, attr uint16, b []byte) {
	e.Nested(attr, func(in *netlink.AttributeEncoder) error {
		in.Bytes(unix.NFTA_DATA_VALUE, b)
		return nil
	})
}

// Base is where a payload's offset counts from.
type Base uint32

// The bases.
const (
	LinkHeader      Base = unix.NFT_PAYLOAD_LL_HEADER
	NetworkHeader   Base = unix.NFT_PAYLOAD_NETWORK_HEADER
	TransportHeader Base = unix.NFT_PAYLOAD_TRANSPORT_HEADER
)

// Payload loads bytes of the packet.
func Payload(to Register, base Base, offset, length uint32) Expr {
	return Expr{"payload", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_PAYLOAD_DREG, to.number())
		e.Uint32(unix.NFTA_PAYLOAD_BASE, uint32(base))
		e.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		e.Uint32(unix.NFTA_PAYLOAD_LEN, length)
	}}
}

// Meta loads what the kernel knows of the packet: key is NFT_META_...
func Meta(to Register, key uint32) Expr {
	return Expr{"meta", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_META_DREG, to.number())
		e.Uint32(unix.NFTA_META_KEY, key)
	}}
}

// SetMark marks the packet.
func SetMark(from Register) Expr {
	return Expr{"meta", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_META_SREG, from.number())
		e.Uint32(unix.NFTA_META_KEY, unix.NFT_META_MARK)
	}}
}

// Load puts bytes into a register.
func Load(to Register, b []byte) Expr {
	return Expr{"immediate", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_IMMEDIATE_DREG, to.number())
		value(e, unix.NFTA_IMMEDIATE_DATA, b)
	}}
}

// Equal goes on where a register holds these bytes.
func Equal(r Register, b []byte) Expr { return compare(unix.NFT_CMP_EQ, r, b) }

// Differs goes on where a register holds other bytes.
func Differs(r Register, b []byte) Expr { return compare(unix.NFT_CMP_NEQ, r, b) }

// Below goes on where a register holds less, its first byte being the highest.
func Below(r Register, b []byte) Expr { return compare(unix.NFT_CMP_LT, r, b) }

func compare(op uint32, r Register, b []byte) Expr {
	return Expr{"cmp", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CMP_SREG, r.number())
		e.Uint32(unix.NFTA_CMP_OP, op)
		value(e, unix.NFTA_CMP_DATA, b)
	}}
}

// And keeps those bits of a register that are in mask.
func And(r Register, mask []byte) Expr {
	return Expr{"bitwise", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_BITWISE_SREG, r.number())
		e.Uint32(unix.NFTA_BITWISE_DREG, r.number())
		e.Uint32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		value(e, unix.NFTA_BITWISE_MASK, mask)
		value(e, unix.NFTA_BITWISE_XOR, make([]byte, len(mask)))
	}}
}

// In goes on where the key that begins in a register is in the set, which counts it.
func In(set string, key Register) Expr { return lookup(set, key, 0) }

// NotIn goes on where it is not.
func NotIn(set string, key Register) Expr { return lookup(set, key, unix.NFT_LOOKUP_F_INV) }

func lookup(set string, key Register, flags uint32) Expr {
	return Expr{"lookup", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_LOOKUP_SET, set)
		e.Uint32(unix.NFTA_LOOKUP_SREG, key.number())
		if flags != 0 {
			e.Uint32(unix.NFTA_LOOKUP_FLAGS, flags)
		}
	}}
}

// Decide follows the verdict a map has for the key.
func Decide(verdicts string, key Register) Expr {
	return Expr{"lookup", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_LOOKUP_SET, verdicts)
		e.Uint32(unix.NFTA_LOOKUP_SREG, key.number())
		e.Uint32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	}}
}

// Find loads what a map has for the key, and goes on where it has it.
func Find(set string, key, to Register) Expr {
	return Expr{"lookup", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_LOOKUP_SET, set)
		e.Uint32(unix.NFTA_LOOKUP_SREG, key.number())
		e.Uint32(unix.NFTA_LOOKUP_DREG, to.number())
	}}
}

// Keep has a map say data for the key, for some time from this packet on.
func Keep(set string, key, data Register, timeout time.Duration) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint32(unix.NFTA_DYNSET_SREG_DATA, data.number())
		e.Uint64(unix.NFTA_DYNSET_TIMEOUT, uint64(timeout.Milliseconds()))
	}}
}

// Forget takes a key out of a map.
func Forget(set string, key Register) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		const remove = 2 // NFT_DYNSET_OP_DELETE
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, remove)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint32(unix.NFTA_DYNSET_SREG_DATA, key.number()) // must be there, and is not looked at
	}}
}

// Sum is a checksum that Write keeps right.
type Sum struct {
	Offset uint32 // of the header's own sum, from its beginning
	Pseudo bool   // the bytes are in the pseudo-header of TCP's and UDP's
}

// Write replaces bytes of the packet.
func Write(from Register, base Base, offset, length uint32, sum Sum) Expr {
	return Expr{"payload", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_PAYLOAD_SREG, from.number())
		e.Uint32(unix.NFTA_PAYLOAD_BASE, uint32(base))
		e.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		e.Uint32(unix.NFTA_PAYLOAD_LEN, length)
		e.Uint32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET)
		e.Uint32(unix.NFTA_PAYLOAD_CSUM_OFFSET, sum.Offset)
		if sum.Pseudo {
			e.Uint32(unix.NFTA_PAYLOAD_CSUM_FLAGS, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR)
		}
	}}
}

// The kernel's numbers of verdicts.
const (
	verdictDrop   = 0
	verdictAccept = 1
	verdictJump   = -3
	verdictGoto   = -4
)

// Accept ends the base chain; the packet goes on.
func Accept() Expr { return verdict(verdictAccept, "") }

// Drop ends the packet.
func Drop() Expr { return verdict(verdictDrop, "") }

// Goto goes on in another chain and does not come back.
func Goto(chain string) Expr { return verdict(verdictGoto, chain) }

func verdict(code int32, chain string) Expr {
	return Expr{"immediate", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		e.Nested(unix.NFTA_IMMEDIATE_DATA, verdictData(code, chain))
	}}
}

func verdictData(code int32, chain string) func(*netlink.AttributeEncoder) error {
	return func(e *netlink.AttributeEncoder) error {
		e.Nested(unix.NFTA_DATA_VERDICT, func(in *netlink.AttributeEncoder) error {
			in.ByteOrder = binary.BigEndian
			in.Uint32(unix.NFTA_VERDICT_CODE, uint32(code))
			if chain != "" {
				in.String(unix.NFTA_VERDICT_CHAIN, chain)
			}
			return nil
		})
		return nil
	}
}

// Reset answers a TCP segment with a reset and drops it.
func Reset() Expr {
	return Expr{"reject", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST)
		e.Uint8(unix.NFTA_REJECT_ICMP_CODE, 0)
	}}
}

// Prohibited answers an IPv4 packet with ICMP "administratively prohibited" (RFC
// 1812, 5.2.7.1) and drops it.
func Prohibited() Expr {
	return Expr{"reject", func(e *netlink.AttributeEncoder) {
		const filtered = 13
		e.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		e.Uint8(unix.NFTA_REJECT_ICMP_CODE, filtered)
	}}
}

// Destination has the packet's connection end at an IPv4 address and port, each in a
// register in network order. It belongs into a chain of type "nat".
func Destination(addr, port Register) Expr {
	return Expr{"nat", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		e.Uint32(unix.NFTA_NAT_FAMILY, unix.NFPROTO_IPV4)
		e.Uint32(unix.NFTA_NAT_REG_ADDR_MIN, addr.number())
		e.Uint32(unix.NFTA_NAT_REG_PROTO_MIN, port.number())
	}}
}

// State loads what the kernel thinks of the packet in its connection: bits, in the
// machine's order, of which Invalid and Untracked are two.
func State(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	}}
}

// Bits of State (linux, include/net/netfilter/nf_conntrack_common.h).
const (
	Invalid   = 1 << 0
	Untracked = 1 << 6
)

// Zone loads the number of its connection's zone, two bytes in the machine's order. It
// goes on where there is a connection.
func Zone(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE)
		e.Uint8(unix.NFTA_CT_DIRECTION, original)
	}}
}

// SetZone has the packet belong to another connection than the same one would of
// another zone; answers are found without. It must come before the kernel looks for
// the connection.
func SetZone(from Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_SREG, from.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE)
		e.Uint8(unix.NFTA_CT_DIRECTION, original)
	}}
}

const original = 0 // IP_CT_DIR_ORIGINAL

// SendTo sends an IPv4 packet, one hop older, out by the interface whose index is in a
// register, to the neighbour whose address is in another. It belongs into chains of
// NetDev.
func SendTo(device, neighbour Register) Expr {
	return Expr{"fwd", func(e *netlink.AttributeEncoder) {
		const dev, addr, family = 1, 2, 3
		e.Uint32(dev, device.number())
		e.Uint32(addr, neighbour.number())
		e.Uint32(family, unix.NFPROTO_IPV4)
	}}
}

// Queues is a span of NFQUEUE's queues.
type Queues struct {
	First, Count uint16
	// PerCPU gives each CPU a queue of its own; otherwise flows are shared out.
	PerCPU bool
}

// Queue asks user space about the packet; without anybody who listens it is
// dropped. Kernels may lack it: see QueueTarget.
func Queue(q Queues) Expr {
	return Expr{"queue", func(e *netlink.AttributeEncoder) {
		const (
			number, total, flags = 1, 2, 3
			fanout               = 1 << 1
		)
		e.Uint16(number, q.First)
		e.Uint16(total, q.Count)
		if q.PerCPU {
			e.Uint16(flags, fanout)
		}
	}}
}

// QueueTarget is Queue by way of iptables' target NFQUEUE.
func QueueTarget(q Queues) Expr {
	return Expr{"target", func(e *netlink.AttributeEncoder) {
		const (
			revision = 3
			fanout   = 1 << 1
		)
		e.String(unix.NFTA_TARGET_NAME, "NFQUEUE")
		e.Uint32(unix.NFTA_TARGET_REV, revision)
		info := binary.NativeEndian.AppendUint16(nil, q.First) // struct xt_NFQ_info_v3
		info = binary.NativeEndian.AppendUint16(info, q.Count)
		var flags uint16
		if q.PerCPU {
			flags = fanout
		}
		info = binary.NativeEndian.AppendUint16(info, flags)
		e.Bytes(unix.NFTA_TARGET_INFO, append(info, 0, 0)) // as xtables aligns it
	}}
}
