// IPv4 networks behind PPPoE clients, in the programs' map and in the kernel's routes.

package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
)

// openNetworks takes over the networks behind a former daemon's clients. Routes that cannot be entered, because the LAN
// is down, are entered when that changes.
func (d *Datapath) openNetworks() error {
	var key gatewayPrefix
	var place uint32
	all := d.objs.Networks.Iterate()
	for all.Next(&key, &place) {
		if _, err := d.clientNetworks.Add(d.addr(place), []netip.Prefix{prefixOf(key)}); err != nil {
			return fmt.Errorf("listing the networks behind clients: %w", err)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("listing the networks behind clients: %w", err)
	}
	var err error
	if d.routes, err = routes.Open(d.lan.Index, true, &d.clientNetworks); err != nil {
		d.cfg.Log.Error("entering routes to the networks behind clients; trying again when links change", "err", err)
	}
	return d.setRouted()
}

// haveMoved reports whether clients of a former daemon with addresses outside the LAN have other places now. behind is
// that daemon's map of the networks behind clients.
func (d *Datapath) haveMoved(behind *ebpf.Map) (bool, error) {
	var key gatewayPrefix
	var place uint32
	same := map[uint32]bool{} // places outside, and whether their address is behind itself
	all := behind.Iterate()
	for all.Next(&key, &place) {
		if place >= d.outside() {
			same[place] = same[place] || place < d.slots() && prefixOf(key) == netip.PrefixFrom(d.addr(place), 32)
		}
	}
	if err := all.Err(); err != nil {
		return false, fmt.Errorf("listing the networks behind clients: %w", err)
	}
	return slices.Contains(slices.Collect(maps.Values(same)), false), nil
}

// setRouted has the programs look up networks behind clients if there are any.
func (d *Datapath) setRouted() error {
	if err := d.objs.Routed.Set(toggle(!d.clientNetworks.Empty())); err != nil {
		return fmt.Errorf("having the programs look up networks behind clients: %w", err)
	}
	return d.enterParts()
}

// enterNetworks lets a client's networks in, as far as its entry allows, and returns those that are new.
func (d *Datapath) enterNetworks(places []uint32, addr netip.Addr, session uint16, networks []netip.Prefix) (
	fresh []netip.Prefix, err error) {
	if len(networks) == 0 {
		return nil, nil
	}
	if session == 0 || len(places) == 0 {
		return nil, errors.New("only clients on PPPoE lines have networks behind them")
	}
	if fresh, err = d.routes.Take(addr, networks); err != nil {
		return nil, err
	}
	for _, network := range fresh {
		if err := d.objs.Networks.Put(keyOf(network), places[0]); err != nil {
			return nil, errors.Join(fmt.Errorf("entering the network %s: %w", network, err), d.dropNetworks(addr, fresh))
		}
	}
	return fresh, d.setRouted()
}

// dropNetworks takes networks of a client out again.
func (d *Datapath) dropNetworks(client netip.Addr, networks []netip.Prefix) error {
	if len(networks) == 0 {
		return nil
	}
	return errors.Join(d.forgetNetworks(networks), d.routes.Drop(client, networks), d.setRouted())
}

// leaveNetworks takes the networks of a client out, except those to keep.
func (d *Datapath) leaveNetworks(client netip.Addr, keep []netip.Prefix) error {
	if d.clientNetworks.Empty() {
		return nil
	}
	old, err := d.routes.Leave(client, keep)
	if len(old) == 0 {
		return err
	}
	return errors.Join(err, d.forgetNetworks(old), d.setRouted())
}

func (d *Datapath) forgetNetworks(networks []netip.Prefix) (err error) {
	for _, network := range networks {
		if e := d.objs.Networks.Delete(keyOf(network)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("removing the network %s: %w", network, e))
		}
	}
	return err
}

func keyOf(p netip.Prefix) gatewayPrefix {
	return gatewayPrefix{Bits: uint32(p.Bits()), Addr: networkOrder(p.Addr())}
}

func prefixOf(k gatewayPrefix) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, k.Addr))), int(k.Bits))
}
