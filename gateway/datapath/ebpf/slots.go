// Where the programs' tables have a client.

package ebpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// The programs have clients in two kinds of tables:
//
//	address ─▶ place ─▶ clients[place]: MAC, state, line, slot
//	                                                       └─▶ counters, limits, meters, queues [slot]
//
// Addresses are in an array by their places in the network, because no table is cheaper, and a packet must look its
// address up anyway. A slot is a number that this file gives a client. All addresses of the client name it, so they are
// counted and limited together. It stands in the entry that a packet has read by then: an array from addresses to slots
// would cost each packet a further look-up.
//
// The slot is the place of the address that the client was first known by. An entry has it as the distance from its own
// place, which is 0 for that address. Entries of former versions have 0 there, and go on. IPv6 addresses are in a hash
// table (clients6.go), whose entries name slots. A client that has no IPv4 address has one of the slots behind those of
// the network's addresses. Behind these are the places and slots of addresses outside the LAN (datapath.Network): the
// programs find them as networks behind clients, each client behind itself.

// placeOf returns an address's index in the table of addresses.
func (d *Datapath) placeOf(addr netip.Addr) (uint32, error) {
	if err := d.net.Client(addr); err != nil {
		return 0, err
	}
	if at := hostOrder(addr) - hostOrder(d.net.Prefix().Addr()); at < d.net.Size() {
		return at, nil
	}
	place := d.outside()
	for _, p := range d.net.Outside {
		if p.Contains(addr) {
			return place + hostOrder(addr) - hostOrder(p.Masked().Addr()), nil
		}
		place += 1 << (32 - p.Bits())
	}
	return 0, fmt.Errorf("%w: %s has no place", datapath.ErrForeign, addr) // Client accepts no such address
}

// addr is the address at a place.
func (d *Datapath) addr(place uint32) netip.Addr {
	if from := d.outside(); place >= from {
		for _, p := range d.net.Outside {
			n := uint32(1) << (32 - p.Bits())
			if place-from < n {
				return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, hostOrder(p.Masked().Addr())+place-from)))
			}
			from += n
		}
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, hostOrder(d.net.Prefix().Addr())+place)))
}

// slot returns the slot of a client.
func (d *Datapath) slot(id datapath.ID) (uint32, error) {
	n, numbered := id.Number()
	switch {
	case !numbered:
		return d.placeOf(id.Addr())
	case n >= d.outside()-d.net.Size():
		return 0, fmt.Errorf("%w: the data path has no room for the client %s without IPv4", datapath.ErrForeign, id)
	}
	return d.net.Size() + n, nil
}

// Bounds of the slots of clients without IPv4, of which a network has as many as it has addresses.
const leastOnly6, mostOnly6 = 1 << 12, 1 << 16

// slots is how many slots there are.
func (d *Datapath) slots() uint32 { return d.outside() + d.net.OutsideSize() }

// isPlace reports whether a slot is also the place of an address.
func (d *Datapath) isPlace(slot uint32) bool { return slot < d.net.Size() || slot >= d.outside() }

// outside is the first place of addresses outside the LAN.
func (d *Datapath) outside() uint32 {
	if !d.has6() {
		return d.net.Size()
	}
	return d.net.Size() + min(max(d.net.Size(), leastOnly6), mostOnly6)
}

// owner is the client of a slot.
func (d *Datapath) owner(slot uint32) datapath.ID {
	if !d.isPlace(slot) {
		return datapath.Numbered(slot - d.net.Size())
	}
	return datapath.IDOf(d.addr(slot))
}

// slotOf is the slot that the entry of an address at a place names.
func slotOf(place uint32, c gatewayClient) uint32 { return place + c.SlotOffset }

// placesOf returns the places of a client's addresses.
func (d *Datapath) placesOf(addrs []netip.Addr) ([]uint32, error) {
	all := make([]uint32, len(addrs))
	for i, addr := range addrs {
		if !addr.Is4() {
			return nil, fmt.Errorf("the address %s: %w: IPv4 only", addr, datapath.ErrNotSupported)
		}
		place, err := d.placeOf(addr)
		if err != nil {
			return nil, err
		}
		all[i] = place
	}
	return all, nil
}

// furtherPlaces records, for clients with several addresses, the places of all addresses but the first. A place is an
// address's index in the table of addresses. The first address's place is the client's slot, by which it is counted.
type furtherPlaces struct {
	mu     sync.Mutex
	bySlot map[uint32][]uint32 // guarded by mu; slices never change
}

// get returns the further places of a client.
func (f *furtherPlaces) get(slot uint32) []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bySlot[slot]
}

// add notes a place of a client.
func (f *furtherPlaces) add(slot, place uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if place == slot || slices.Contains(f.bySlot[slot], place) {
		return
	}
	if f.bySlot == nil {
		f.bySlot = map[uint32][]uint32{}
	}
	f.bySlot[slot] = append(slices.Clone(f.bySlot[slot]), place)
}

// drop forgets a place of a client.
func (f *furtherPlaces) drop(slot, place uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.bySlot[slot]), func(p uint32) bool { return p == place })
	if len(left) > 0 {
		f.bySlot[slot] = left
	} else {
		delete(f.bySlot, slot)
	}
}

// putEntry gives all of a client's places, and its IPv6 addresses and networks, the same entry, and removes the
// client's other places, addresses and networks. If that blocks an admitted client, it waits some 10 ms for programs
// that have seen the old entry and not yet counted the packet.
func (d *Datapath) putEntry(slot uint32, places []uint32, v6 holdings6, entry gatewayClient) error {
	left := slices.DeleteFunc(append([]uint32{slot}, d.furtherPlaces.get(slot)...),
		func(place uint32) bool { return !d.isPlace(place) || slices.Contains(places, place) })
	blocked, err := d.putEntries6(slot, v6, entry)
	if err != nil {
		return err
	}
	for _, place := range places {
		entry.SlotOffset = slot - place
		before, err := d.swap(place, entry)
		if err != nil {
			return err
		}
		blocked = blocked || admits(before) && !admits(entry)
		if former := slotOf(place, before); former != slot {
			d.furtherPlaces.drop(former, place)
		}
		d.furtherPlaces.add(slot, place)
	}
	for _, place := range left {
		before, err := d.vacate(slot, place)
		if err != nil {
			return err
		}
		blocked = blocked || admits(before)
	}
	if blocked {
		stack.AwaitCPUs() // without it, at most one packet of each CPU would be missing from the counts
	}
	return nil
}

// vacate removes a place from a client, if it is the client's.
func (d *Datapath) vacate(slot, place uint32) (before gatewayClient, err error) {
	if err = d.objs.Clients.Lookup(place, &before); err != nil || before.State == uint8(gatewayStateSTATE_NONE) ||
		slotOf(place, before) != slot {
		return gatewayClient{}, err
	}
	if err = d.objs.Clients.Put(place, gatewayClient{}); err == nil {
		d.furtherPlaces.drop(slot, place)
		d.neighbours.Remove(d.addr(place))
	}
	return before, err
}

// swap replaces the entry of a place.
func (d *Datapath) swap(place uint32, entry gatewayClient) (before gatewayClient, err error) {
	if err = d.objs.Clients.Lookup(place, &before); err == nil {
		err = d.objs.Clients.Put(place, entry)
	}
	return before, err
}

func admits(c gatewayClient) bool { return c.State == uint8(gatewayStateSTATE_ADMITTED) }
