package delegation

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Subnet returns a /64 of a delegated prefix, which are counted from 0. It fails where the prefix cannot be used, or
// has fewer.
func Subnet(prefix netip.Prefix, number int) (netip.Prefix, error) {
	if err := checkUsable(prefix); err != nil {
		return netip.Prefix{}, err
	}
	if room := uint64(1) << (longestLength - prefix.Bits()); uint64(number) >= room {
		return netip.Prefix{}, fmt.Errorf("the delegated prefix %v is too small: it has the /64s 0 to %d, and not %d", prefix,
			room-1, number)
	}
	addr := prefix.Masked().Addr().As16()
	binary.BigEndian.PutUint64(addr[:8], binary.BigEndian.Uint64(addr[:8])|uint64(number))
	return netip.PrefixFrom(netip.AddrFrom16(addr), longestLength), nil
}
