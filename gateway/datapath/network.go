package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// LargestLAN is the shortest prefix of a network, with 262,144 addresses: data paths have an entry for each address in
// their tables, with ebpf about 140 bytes, so 37 MB, and all kinds support the same sizes.
const LargestLAN = 14

// Network is a LAN with clients.
type Network struct {
	Name      string       // in messages; "": the interface's
	Interface string       // Ethernet, without a VLAN tag of its own
	Address   netip.Prefix // the gateway's IPv4 address in it, with the network's length, LargestLAN or longer
	// Outside are further IPv4 networks, apart from Address and each other, of which clients on PPPoE have addresses.
	Outside  []netip.Prefix
	Address6 netip.Prefix // its IPv6 address, with the length of the network's prefix; zero: clients have no IPv6
	// Inbound6 are networks beyond the WAN whose hosts may open connections to clients by IPv6. Other hosts' packets pass
	// only if the client has sent a packet of the same connection.
	Inbound6 []netip.Prefix
}

// Prefix is the network's prefix, with zeros in place of the gateway's own bits.
func (n Network) Prefix() netip.Prefix { return n.Address.Masked() }

// Gateway is the gateway's address.
func (n Network) Gateway() netip.Addr { return n.Address.Addr() }

// Size is how many addresses the network has.
func (n Network) Size() uint32 { return 1 << (32 - n.Address.Bits()) }

// OutsideSize is how many addresses Outside has.
func (n Network) OutsideSize() (size uint32) {
	for _, p := range n.Outside {
		size += 1 << (32 - p.Bits())
	}
	return size
}

// IsOutside reports whether an address is of Outside.
func (n Network) IsOutside(addr netip.Addr) bool {
	return slices.ContainsFunc(n.Outside, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Addrs6 is how many IPv6 addresses there is room for: five for each IPv4 address of the network, a link-local one and
// those of a phone in two prefixes, and 2^18 to 2^20 in all.
func (n Network) Addrs6() uint32 { return min(max(5*n.Size(), 1<<18), 1<<20) }

// String is the network's name.
func (n Network) String() string {
	if n.Name != "" {
		return n.Name
	}
	return n.Interface
}

// Check returns an error if no data path can serve the network, because of its address.
func (n Network) Check() error {
	if !n.Address.IsValid() || !n.Address.Addr().Is4() || n.Address.Bits() < LargestLAN {
		return fmt.Errorf("the LAN must be an IPv4 network of /%d or longer, not %s", LargestLAN, n.Address)
	}
	return nil
}

// Client returns why no client of the network can have an address; nil: one can.
func (n Network) Client(addr netip.Addr) error {
	if !n.Prefix().Contains(addr) && !n.IsOutside(addr) {
		return fmt.Errorf("%w: %s is not in the LAN %s", ErrForeign, addr, n.Prefix())
	}
	if addr == n.Gateway() {
		return fmt.Errorf("%w: %s is the gateway itself", ErrForeign, addr)
	}
	return nil
}

// SingleNetwork returns the only one of some networks, for a data path that cannot serve several: it fails if there are
// more, or none.
func SingleNetwork(all []Network) (Network, error) {
	switch len(all) {
	case 0:
		return Network{}, errors.New("a data path needs a network to serve")
	case 1:
		return all[0], nil
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.String()
	}
	return Network{}, fmt.Errorf("a data path serves one network, not %d: %s", len(all), strings.Join(names, ", "))
}
