package nat

import (
	"encoding/binary"
	"net/netip"
)

// The outside ports that are shared out among clients are all but the well-known ones.
const (
	firstPort = 1024
	ports     = 65536 - firstPort // number of ports of an address
)

// Assignment gives each client an outside address and ports of it, by the sequential algorithm of RFC 7422 (2.1).
//
// Clients have numbers from 0 on, in ascending order of their addresses. B = 64512 div Each is the number of clients
// that one outside address is enough for. Client i has the outside address number i div B, and Each ports from 1024 +
// (i mod B) × Each on. Fewer than Each ports that remain at the end of an address belong to nobody.
type Assignment struct {
	Sources []netip.Addr // in the configuration's order; none: the WAN's only address
	Each    int          // ports of a client, from 1 on
}

// Of returns the outside address and ports of a client; ok is false where there is no room for it. The address is zero
// without Sources.
func (a Assignment) Of(client int) (source netip.Addr, first, last uint16, ok bool) {
	room := ports / a.Each
	switch index := client / room; {
	case index < len(a.Sources):
		source = a.Sources[index]
	case index > 0 || len(a.Sources) > 0:
		return source, 0, 0, false
	}
	begin := firstPort + client%room*a.Each
	return source, uint16(begin), uint16(begin + a.Each - 1), true
}

// eachAddr calls fn with each address of the ranges, in order.
func eachAddr(ranges []Range, fn func(netip.Addr)) {
	for _, r := range ranges {
		for a := r.First; ; a = a.Next() {
			fn(a)
			if a == r.Last {
				break
			}
		}
	}
}

// size returns the number of addresses in ranges.
func size(ranges []Range) (n int) {
	for _, r := range ranges {
		first, last := r.First.As4(), r.Last.As4()
		n += int(binary.BigEndian.Uint32(last[:])-binary.BigEndian.Uint32(first[:])) + 1
	}
	return n
}
