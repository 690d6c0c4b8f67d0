package ident

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Keep sets the networks whose queries the gateway answers beside those for the LAN: networks behind clients, and
// networks of which clients have IPv6 addresses. Queries are connections to port 113 of an address.
func (w *ConnWatch) Keep(networks []netip.Prefix) error {
	wanted := map[netip.Prefix]bool{}
	var errs []error
	for _, network := range networks {
		wanted[network.Masked()] = true
		errs = append(errs, w.Take(network))
	}
	old, err := w.kept()
	errs = append(errs, err)
	for _, network := range old {
		if !wanted[network] {
			errs = append(errs, w.Leave(network))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ident: keeping the networks of clients: %w", err)
	}
	return nil
}

// kept returns the networks whose queries are taken.
func (w *ConnWatch) kept() (all []netip.Prefix, err error) {
	var key identNetwork
	var key6 identNetwork6
	var there uint8
	entries := w.objs.IdentNetworks.Iterate()
	for entries.Next(&key, &there) {
		all = append(all, netip.PrefixFrom(addrOf(key.Addr), int(key.Bits)))
	}
	entries6 := w.objs.IdentNetworks6.Iterate()
	for entries6.Next(&key6, &there) {
		all = append(all, netip.PrefixFrom(addrOf(key6.Addr.Word[:]...), int(key6.Bits)))
	}
	return all, errors.Join(entries.Err(), entries6.Err())
}

// Take adds a network to those whose queries the gateway answers.
func (w *ConnWatch) Take(network netip.Prefix) error {
	networks, key := w.networkKey(network)
	return networks.Put(key, uint8(1))
}

// Leave removes a network. It is no error if there is no such network.
func (w *ConnWatch) Leave(network netip.Prefix) error {
	networks, key := w.networkKey(network)
	if err := networks.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// networkKey returns the map of networks of a family, and a network's key there.
func (w *ConnWatch) networkKey(network netip.Prefix) (*ebpf.Map, any) {
	addr, bits := network.Masked().Addr(), uint32(network.Bits())
	if addr.Is6() {
		return w.objs.IdentNetworks6, identNetwork6{Bits: bits, Addr: words(addr)}
	}
	short, _ := mapAddr(netip.AddrPortFrom(addr, 0))
	return w.objs.IdentNetworks, identNetwork{Bits: bits, Addr: short}
}
