package delegation

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// linkLength is the prefix length of a network, and of a client that has a prefix of its own (RFC 4862, RFC 8273).
const linkLength = 64

// Network is a network of the gateway that gets a part of a delegated prefix.
type Network struct {
	Number int // identifies it; the lowest one's part is the first
	// PoolLength is the length of the prefix that holds a /64 for each client, for example 56 for 256 clients; 0: clients
	// have addresses of the network's /64.
	PoolLength int
}

// Part is what a network gets.
type Part struct {
	Number int
	Link   netip.Prefix // a /64
	Pool   netip.Prefix // of PoolLength; the zero value without one
}

// Carve divides a delegated prefix among networks; the result has their order. The place of a network's part depends
// on its number and the lowest one alone, so others may come and go. The /64s lie at the beginning of the prefix.
// Pools lie at its end, each at a multiple of its own length.
//
//	2001:db8::/56    0   1   2  …                      …  f0 – ff : the pool of length 60 of the lowest number
//	                 │   │   └ /64 of the lowest + 2      e0 – ef : of the next
//	                 │   └ /64 of the lowest number + 1
//	                 └ /64 of the lowest number
//
// It fails where the prefix is too small, where two parts overlap, and where two networks have the same number.
func Carve(prefix netip.Prefix, networks []Network) ([]Part, error) {
	if err := checkUsable(prefix); err != nil {
		return nil, err
	}
	if len(networks) == 0 {
		return nil, nil
	}
	seen := map[int]bool{}
	for _, n := range networks {
		if seen[n.Number] {
			return nil, fmt.Errorf("two networks have the number %d", n.Number)
		}
		seen[n.Number] = true
	}
	lowest := slices.MinFunc(networks, func(a, b Network) int { return cmp.Compare(a.Number, b.Number) }).Number
	room := uint64(1) << (linkLength - prefix.Bits())
	var taken []span
	var parts []Part
	for _, n := range networks {
		place := uint64(n.Number - lowest)
		if place >= room {
			return nil, fmt.Errorf("%v is too small: it has room for %d networks, and network %d is the %s",
				prefix, room, n.Number, ordinal(place+1))
		}
		part := Part{Number: n.Number, Link: subnet(prefix, place)}
		taken = append(taken, span{first: place, last: place, number: n.Number, what: part.Link})
		if n.PoolLength != 0 {
			pool, err := poolSpan(prefix, room, place, n)
			if err != nil {
				return nil, err
			}
			part.Pool = pool.what
			taken = append(taken, pool)
		}
		parts = append(parts, part)
	}
	if err := checkApart(prefix, taken); err != nil {
		return nil, err
	}
	return parts, nil
}

// span is a run of /64s of the delegated prefix, counted from its first.
type span struct {
	first, last uint64
	number      int  // of the network
	pool        bool // not a network's own /64
	what        netip.Prefix
}

// poolSpan places a network's pool.
func poolSpan(prefix netip.Prefix, room, place uint64, n Network) (span, error) {
	if n.PoolLength < prefix.Bits() || n.PoolLength > linkLength {
		return span{}, fmt.Errorf("network %d wants a pool of the length %d: of %v it may be %d to %d",
			n.Number, n.PoolLength, prefix, prefix.Bits(), linkLength)
	}
	size := uint64(1) << (linkLength - n.PoolLength)
	if place >= room/size {
		return span{}, fmt.Errorf("%v is too small: it has room for %d pools of the length %d, and network %d's is the %s",
			prefix, room/size, n.PoolLength, n.Number, ordinal(place+1))
	}
	first := room - (place+1)*size
	return span{first: first, last: first + size - 1, number: n.Number, pool: true,
		what: netip.PrefixFrom(subnet(prefix, first).Addr(), n.PoolLength)}, nil
}

// checkApart tells which parts overlap.
func checkApart(prefix netip.Prefix, taken []span) error {
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(taken); i++ {
		a, b := taken[i-1], taken[i]
		switch {
		case b.first > a.last:
		case a.pool && b.pool:
			return fmt.Errorf("in %v the pools %v of network %d and %v of network %d overlap: give them one length",
				prefix, a.what, a.number, b.what, b.number)
		default:
			return fmt.Errorf("%v is too small: %v of network %d and %v of network %d overlap: take smaller pools",
				prefix, a.what, a.number, b.what, b.number)
		}
	}
	return nil
}

// subnet returns a /64 of a prefix, which are counted from 0.
func subnet(prefix netip.Prefix, place uint64) netip.Prefix {
	addr := prefix.Masked().Addr().As16()
	binary.BigEndian.PutUint64(addr[:8], binary.BigEndian.Uint64(addr[:8])|place)
	return netip.PrefixFrom(netip.AddrFrom16(addr), linkLength)
}

func ordinal(n uint64) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
