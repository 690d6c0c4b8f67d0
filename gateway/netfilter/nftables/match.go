package nftables

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Offsets of addresses in the IPv4 header, bytes.
const (
	SourceAt      = 12
	DestinationAt = 16
)

// CameBy matches packets that arrived at an interface, whose name is no pattern.
func CameBy(dev string) []Expr { return []Expr{Meta(0, unix.NFT_META_IIFNAME), Equal(0, Name(dev))} }

// LeavesBy continues with packets that leave by an interface.
func LeavesBy(dev string) []Expr { return []Expr{Meta(0, unix.NFT_META_OIFNAME), Equal(0, Name(dev))} }

// Name is an interface's name as rules compare it.
func Name(dev string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, dev)
	return name
}

// FromNetwork continues with IPv4 packets from a network.
func FromNetwork(p netip.Prefix) []Expr { return inNetwork(p, SourceAt) }

// ToNetwork continues with IPv4 packets to a network.
func ToNetwork(p netip.Prefix) []Expr { return inNetwork(p, DestinationAt) }

func inNetwork(p netip.Prefix, offset uint32) []Expr {
	exprs := []Expr{Payload(0, NetworkHeader, offset, 4)}
	if p.Bits() < 32 {
		exprs = append(exprs, And(0, Mask(p)))
	}
	return append(exprs, Equal(0, p.Masked().Addr().AsSlice()))
}

// Mask is the mask of an IPv4 network.
func Mask(p netip.Prefix) []byte {
	return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))
}
