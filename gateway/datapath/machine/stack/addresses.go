package stack

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OwnProtocol marks entries of the kernel's tables as gatewayd's ("ip neigh" and "ip route" show "proto
// 103"). No program that is listed in iproute2's rt_protos has the number.
const OwnProtocol = 103

// OwnAddresses returns the IPv4 addresses of this machine, on all interfaces.
func OwnAddresses() ([]netip.Addr, error) {
	all, err := ConsistentList(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, unix.AF_INET) })
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	var ownAddrs []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			ownAddrs = append(ownAddrs, addr)
		}
	}
	return ownAddrs, nil
}
