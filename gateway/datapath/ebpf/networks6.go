package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
)

// IPv6 networks behind clients, as those that are delegated to them, and the /64s of PPPoE sessions are keys of the
// programs' table networks6, whose values are the entries of the client's addresses. All networks have one next hop:
// the programs give packets the client's MAC address. So the machine has one route for all networks of a pool, and one
// for each of the others.
type networks6 struct {
	prefixes []netip.Prefix // of the LAN
	pools    []netip.Prefix
	of       map[uint32][]netip.Prefix // by slot
	owner    map[netip.Prefix]uint32   // slot
	routes   *routes.Behind6
	onLink   *routes.OnLink6 // to prefixes of the LAN
}

// splitNetworks returns the networks behind a client by their families. It fails for those of IPv6 that no client can
// have.
func (d *Datapath) splitNetworks(networks []netip.Prefix) (v4, v6 []netip.Prefix, err error) {
	for _, n := range networks {
		switch addr := n.Addr(); {
		case addr.Is4():
			v4 = append(v4, n)
		case !d.has6():
			return nil, nil, fmt.Errorf("the network %s: %w: IPv6 is off", n, datapath.ErrNotSupported)
		case !n.IsValid() || n != n.Masked() || addr.Is4In6() || !addr.IsGlobalUnicast() || n.Bits() == 0 ||
			n.Overlaps(d.net.Address6.Masked()):
			return nil, nil, fmt.Errorf("%w: %s is no network behind a client", datapath.ErrForeign, n)
		default:
			v6 = append(v6, n)
		}
	}
	return v4, v6, nil
}

func networkKey6(p netip.Prefix) gatewayGarden6Prefix {
	return gatewayGarden6Prefix{Bits: uint32(p.Bits()), Addr: p.Addr().As16()}
}

// openNetworks6 takes over the networks behind a former daemon's clients, and its routes. Without IPv6 it removes them.
func (d *Datapath) openNetworks6() (err error) {
	d.networks6.of, d.networks6.owner = map[uint32][]netip.Prefix{}, map[netip.Prefix]uint32{}
	var key gatewayGarden6Prefix
	var c gatewayClient
	var left []netip.Prefix
	all := d.objs.Networks6.Iterate()
	for all.Next(&key, &c) {
		network := netip.PrefixFrom(netip.AddrFrom16(key.Addr), int(key.Bits))
		if d.has6() {
			d.networks6.add(c.SlotOffset, network)
		} else {
			left = append(left, network)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("listing the IPv6 networks behind clients: %w", err)
	}
	for _, network := range left {
		err = errors.Join(err, d.deleteNetwork6(network))
	}
	if err != nil {
		return err
	}
	d.networks6.onLink = &routes.OnLink6{Index: d.lan.Index}
	if d.networks6.routes, err = routes.OpenBehind6(d.lan.Index); err != nil {
		return err
	}
	d.neighbours.Set(routes.NextHop6, routes.NextHopMAC6)
	if !d.has6() || len(d.networks6.routes.Has()) == 0 {
		return errors.Join(d.setRoutes6(), d.setRouted6())
	}
	d.neighbours.Flush()
	return d.setRouted6() // routes stay until SetPools6 is called
}

// setRouted6 has the programs look IPv6 networks behind clients up if there are any, and give packets to addresses of
// pools, whose routes name no client, to their clients.
func (d *Datapath) setRouted6() error {
	if err := d.objs.Routed6.Set(toggle(len(d.networks6.owner)+len(d.networks6.pools) > 0)); err != nil {
		return fmt.Errorf("having the programs look up IPv6 networks behind clients: %w", err)
	}
	return d.enterParts6()
}

func (n *networks6) add(slot uint32, network netip.Prefix) {
	if !slices.Contains(n.of[slot], network) {
		n.of[slot] = append(n.of[slot], network)
	}
	n.owner[network] = slot
}

func (n *networks6) drop(slot uint32, network netip.Prefix) {
	n.of[slot] = slices.DeleteFunc(n.of[slot], func(other netip.Prefix) bool { return other == network })
	if len(n.of[slot]) == 0 {
		delete(n.of, slot)
	}
	delete(n.owner, network)
}

// pooled reports whether a network is of a pool, whose route serves it.
func (n *networks6) pooled(network netip.Prefix) bool {
	return slices.ContainsFunc(n.pools, func(p netip.Prefix) bool {
		return p.Bits() <= network.Bits() && p.Overlaps(network)
	})
}

// isOfLAN reports whether a network is part of a prefix of the LAN, as the /64 of a PPPoE session is.
func (n *networks6) isOfLAN(network netip.Prefix) bool {
	return slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool {
		return p.Bits() <= network.Bits() && p.Contains(network.Addr())
	})
}

// setRoutes6 makes the machine's routes those to the pools and to networks of no pool. addrs6Lock is held.
func (d *Datapath) setRoutes6() (err error) {
	n := &d.networks6
	wanted := slices.Clone(n.pools)
	for network := range n.owner {
		if !n.pooled(network) {
			wanted = append(wanted, network)
		}
	}
	if len(wanted) > 0 {
		d.neighbours.Set(routes.NextHop6, routes.NextHopMAC6)
	} else {
		d.neighbours.Remove(routes.NextHop6)
	}
	d.neighbours.Flush()
	for _, network := range n.routes.Has() {
		if !slices.Contains(wanted, network) {
			err = errors.Join(err, n.routes.Remove(network))
		}
	}
	for _, network := range wanted {
		err = errors.Join(err, n.routes.Add(network))
	}
	return err
}

// checkNetworks6 fails with datapath.ErrTaken where another client has one of the networks. addrs6Lock is held.
func (d *Datapath) checkNetworks6(slot uint32, networks []netip.Prefix) error {
	for _, network := range networks {
		if holder, taken := d.networks6.owner[network]; taken && holder != slot {
			return fmt.Errorf("%w: %s is behind %s", datapath.ErrTaken, network, d.owner(holder))
		}
	}
	return nil
}

// putNetworks6 makes an entry that of the IPv6 networks behind a client, and takes those that it had besides away. It
// reports whether programs may know the former entries. addrs6Lock is held.
func (d *Datapath) putNetworks6(slot uint32, networks []netip.Prefix, entry gatewayClient) (changed bool, err error) {
	n := &d.networks6
	had, routed := len(n.owner), false
	for _, network := range networks {
		entry := entry
		if n.isOfLAN(network) {
			entry.Flags |= learned
		}
		var before gatewayClient // of the network, or of a larger one that it is of
		err := d.objs.Networks6.Lookup(networkKey6(network), &before)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return changed, fmt.Errorf("reading whose the network %s is: %w", network, err)
		}
		if _, there := n.owner[network]; !there && !n.pooled(network) {
			routed = true
			d.neighbours.Set(routes.NextHop6, routes.NextHopMAC6) // Set flushes
			if err := n.routes.Add(network); err != nil {
				return changed, err
			}
		}
		if err := d.objs.Networks6.Put(networkKey6(network), entry); err != nil {
			return changed, fmt.Errorf("entering the network %s: %w", network, err)
		}
		n.add(slot, network)
		changed = changed || admits(before) && before != entry
	}
	for _, network := range slices.Clone(n.of[slot]) {
		if slices.Contains(networks, network) {
			continue
		}
		changed = true
		if err := d.deleteNetwork6(network); err != nil {
			return changed, err
		}
		n.drop(slot, network)
		if !n.pooled(network) {
			routed = true
			err = errors.Join(err, n.routes.Remove(network))
		}
	}
	if routed || (had == 0) != (len(n.owner) == 0) {
		err = errors.Join(err, d.setRouted6())
	}
	return changed, err
}

func (d *Datapath) deleteNetwork6(network netip.Prefix) error {
	if err := d.objs.Networks6.Delete(networkKey6(network)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("removing the network %s: %w", network, err)
	}
	return nil
}

// SetPools6 tells the programs and the machine's routing of which prefixes clients have networks.
func (d *Datapath) SetPools6(pools []netip.Prefix) error {
	d.addrs6Lock.Lock()
	defer d.addrs6Lock.Unlock()
	before := d.networks6.pools
	d.networks6.pools = slices.Clone(pools)
	err := d.setLAN6()
	if err != nil {
		d.networks6.pools = before
		return err
	}
	return errors.Join(d.setRoutes6(), d.setRouted6())
}
