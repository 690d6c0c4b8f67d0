package nftables

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Offsets of addresses in the headers of IPv4 and IPv6, bytes.
const (
	SourceAt       = 12
	DestinationAt  = 16
	Source6At      = 8
	Destination6At = 24
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

// FromNetwork continues with packets from a network. They must be of the network's family.
func FromNetwork(p netip.Prefix) []Expr { return inNetwork(p, SourceAt, Source6At) }

// ToNetwork continues with packets to a network. They must be of the network's family.
func ToNetwork(p netip.Prefix) []Expr { return inNetwork(p, DestinationAt, Destination6At) }

func inNetwork(p netip.Prefix, offset, offset6 uint32) []Expr {
	if p.Addr().Is6() {
		offset = offset6
	}
	exprs := []Expr{Payload(0, NetworkHeader, offset, uint32(p.Addr().BitLen()/8))}
	if !p.IsSingleIP() {
		exprs = append(exprs, And(0, Mask(p)))
	}
	return append(exprs, Equal(0, p.Masked().Addr().AsSlice()))
}

// Mask is the mask of a network.
func Mask(p netip.Prefix) []byte { return net.CIDRMask(p.Bits(), p.Addr().BitLen()) }
