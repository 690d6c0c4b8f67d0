package nftables

import (
	"encoding/binary"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Expr is an expression of a rule. A rule ends with the first expression that does not match.
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

// Register is one of sixteen registers of four bytes, 0 to 15; longer values occupy the following ones as well.
type Register uint32

func (r Register) number() uint32 { return unix.NFT_REG32_00 + uint32(r) }

func value(e *netlink.AttributeEncoder, attr uint16, b []byte) {
	e.Nested(attr, func(in *netlink.AttributeEncoder) error {
		in.Bytes(unix.NFTA_DATA_VALUE, b)
		return nil
	})
}

// Base is the origin of a payload's offset.
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

// Meta loads metadata of the packet: key is NFT_META_...
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

// Equal continues if a register holds these bytes.
func Equal(r Register, b []byte) Expr { return compare(unix.NFT_CMP_EQ, r, b) }

// Differs continues if a register holds other bytes.
func Differs(r Register, b []byte) Expr { return compare(unix.NFT_CMP_NEQ, r, b) }

// Less continues if a register holds less, in big-endian order.
func Less(r Register, b []byte) Expr { return compare(unix.NFT_CMP_LT, r, b) }

func compare(op uint32, r Register, b []byte) Expr {
	return Expr{"cmp", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CMP_SREG, r.number())
		e.Uint32(unix.NFTA_CMP_OP, op)
		value(e, unix.NFTA_CMP_DATA, b)
	}}
}

// And clears those bits of a register that are not in mask.
func And(r Register, mask []byte) Expr {
	return Expr{"bitwise", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_BITWISE_SREG, r.number())
		e.Uint32(unix.NFTA_BITWISE_DREG, r.number())
		e.Uint32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		value(e, unix.NFTA_BITWISE_MASK, mask)
		value(e, unix.NFTA_BITWISE_XOR, make([]byte, len(mask)))
	}}
}

// InSet continues if the key that begins in a register is in the set; a set with counters counts the packet.
func InSet(set string, key Register) Expr { return lookup(set, key, 0) }

// NotIn continues if the key is not in the set.
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

// Decide applies the verdict that a map has for the key.
func Decide(verdicts string, key Register) Expr {
	return Expr{"lookup", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_LOOKUP_SET, verdicts)
		e.Uint32(unix.NFTA_LOOKUP_SREG, key.number())
		e.Uint32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	}}
}

// Lookup loads the value that a map has for the key, and continues if there is one.
func Lookup(set string, key, to Register) Expr {
	return Expr{"lookup", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_LOOKUP_SET, set)
		e.Uint32(unix.NFTA_LOOKUP_SREG, key.number())
		e.Uint32(unix.NFTA_LOOKUP_DREG, to.number())
	}}
}

// Store stores data for the key in a map, for a time from this packet on.
func Store(set string, key, data Register, timeout time.Duration) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint32(unix.NFTA_DYNSET_SREG_DATA, data.number())
		e.Uint64(unix.NFTA_DYNSET_TIMEOUT, uint64(timeout.Milliseconds()))
	}}
}

// Limit continues while packets with the key come no more often than each second, and atOnce after a silence. The set,
// which is Dynamic and has Timeouts, remembers a key for a time from its last packet on. Keys for which a full set has
// no room do not continue.
func Limit(set string, key Register, eachSecond uint64, atOnce uint32, timeout time.Duration) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint64(unix.NFTA_DYNSET_TIMEOUT, uint64(timeout.Milliseconds()))
		e.Nested(unix.NFTA_DYNSET_EXPR, Expr{"limit", func(in *netlink.AttributeEncoder) {
			in.Uint64(unix.NFTA_LIMIT_RATE, eachSecond)
			in.Uint64(unix.NFTA_LIMIT_UNIT, 1)
			in.Uint32(unix.NFTA_LIMIT_BURST, atOnce)
			in.Uint32(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
			in.Uint32(unix.NFTA_LIMIT_FLAGS, 0)
		}}.encode)
	}}
}

// Add adds a key to a set, for a time from the first packet on. The set is Dynamic and has Timeouts. Where it is full,
// the rule ends.
func Add(set string, key Register, timeout time.Duration) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_ADD)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint64(unix.NFTA_DYNSET_TIMEOUT, uint64(timeout.Milliseconds()))
	}}
}

// Delete removes a key from a map.
func Delete(set string, key Register) Expr {
	return Expr{"dynset", func(e *netlink.AttributeEncoder) {
		const remove = 2 // NFT_DYNSET_OP_DELETE
		e.String(unix.NFTA_DYNSET_SET_NAME, set)
		e.Uint32(unix.NFTA_DYNSET_OP, remove)
		e.Uint32(unix.NFTA_DYNSET_SREG_KEY, key.number())
		e.Uint32(unix.NFTA_DYNSET_SREG_DATA, key.number()) // required but ignored
	}}
}

// Sum is a checksum that Write updates.
type Sum struct {
	Offset uint32 // offset of the checksum in the header
	Pseudo bool   // the bytes belong to the pseudo-header of TCP and UDP
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

// The kernel's numbers for verdicts.
const (
	verdictDrop   = 0
	verdictAccept = 1
	verdictJump   = -3
	verdictGoto   = -4
)

// Accept ends the base chain and accepts the packet.
func Accept() Expr { return verdict(verdictAccept, "") }

// Drop drops the packet.
func Drop() Expr { return verdict(verdictDrop, "") }

// Goto continues in another chain and does not return.
func Goto(chain string) Expr { return verdict(verdictGoto, chain) }

// Jump continues in another chain, and returns where that has no verdict.
func Jump(chain string) Expr { return verdict(verdictJump, chain) }

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

// Prohibited answers an IPv4 packet with ICMP "administratively prohibited" (RFC 1812, 5.2.7.1) and drops it.
func Prohibited() Expr {
	return Expr{"reject", func(e *netlink.AttributeEncoder) {
		const filtered = 13
		e.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		e.Uint8(unix.NFTA_REJECT_ICMP_CODE, filtered)
	}}
}

// ProhibitedInet is Prohibited in a table of the family Inet, for both of its kinds of packets (IPv6: RFC 4443, 3.1).
func ProhibitedInet() Expr {
	return Expr{"reject", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		e.Uint8(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)
	}}
}

// ConnectionsOver continues with the packet of a connection with which there are more than a number at once: those
// whose packets have come to this rule, and that are in the kernel's table. TCP's count until both sides have closed.
func ConnectionsOver(most uint32) Expr {
	return Expr{"connlimit", func(e *netlink.AttributeEncoder) {
		const count, flags, above = 1, 2, 1 // NFTA_CONNLIMIT_..., NFT_CONNLIMIT_F_INV
		e.Uint32(count, most)
		e.Uint32(flags, above)
	}}
}

// Faster continues with packets that come to this rule more often than each second.
func Faster(eachSecond uint32) Expr {
	return Expr{"limit", func(e *netlink.AttributeEncoder) {
		e.Uint64(unix.NFTA_LIMIT_RATE, uint64(eachSecond))
		e.Uint64(unix.NFTA_LIMIT_UNIT, 1)
		e.Uint32(unix.NFTA_LIMIT_BURST, eachSecond)
		e.Uint32(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
		e.Uint32(unix.NFTA_LIMIT_FLAGS, unix.NFT_LIMIT_F_INV)
	}}
}

// State loads the packet's connection state: a bit in host byte order.
func State(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	}}
}

// Bits of State (linux, include/net/netfilter/nf_conntrack_common.h).
const (
	Invalid     = 1 << 0
	Established = 1 << 1
	Related     = 1 << 2
	New         = 1 << 3
	Untracked   = 1 << 6
)

// Zone loads the number of the connection's zone, two bytes in host byte order. It continues if there is a connection.
func Zone(to Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_DREG, to.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE)
		e.Uint8(unix.NFTA_CT_DIRECTION, original)
	}}
}

// SetZone assigns the packet to a connection zone: the same addresses and ports form separate connections in different
// zones. Answers are matched without the zone. It must come before the connection lookup.
func SetZone(from Register) Expr {
	return Expr{"ct", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_CT_SREG, from.number())
		e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE)
		e.Uint8(unix.NFTA_CT_DIRECTION, original)
	}}
}

const original = 0 // IP_CT_DIR_ORIGINAL

// SendTo sends an IPv4 packet, with its TTL decremented, out of the interface whose index is in a register, to the
// neighbour whose address is in another. It is valid in chains of NetDev.
func SendTo(device, neighbour Register) Expr {
	return Expr{"fwd", func(e *netlink.AttributeEncoder) {
		const dev, addr, family = 1, 2, 3
		e.Uint32(dev, device.number())
		e.Uint32(addr, neighbour.number())
		e.Uint32(family, unix.NFPROTO_IPV4)
	}}
}

// Queues is a range of NFQUEUE's queues.
type Queues struct {
	First, Count uint16
	// PerCPU gives each CPU its own queue; otherwise queues are chosen by flow.
	PerCPU bool
}

// Queue sends the packet to user space; without a reader it is dropped. Kernels may lack this expression: see
// QueueTarget.
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

// QueueTarget is Queue by iptables' target NFQUEUE.
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
