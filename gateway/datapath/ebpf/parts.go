// The tables by which split.bpf.c finds the network that a packet from a shared WAN is for.

package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

// The parts of several networks at a WAN are what their clients have: prefixes, by which packets are handed to their
// network. Beside each table of parts the programs have the lengths of those in each slot of addresses.

// dividing is held while parts and their lengths change.
var dividing sync.Mutex

// slotsOf is how many slots a family has (SLOTS in split.bpf.c).
const slotsOf = 1 << 16

// setParts sets the IPv4 networks that a network has, its own and those behind its clients.
func (s *split) setParts(number uint32, parts []netip.Prefix) error {
	return setParts(s.objs.Parts, s.objs.PartLengths, number, parts,
		func(p netip.Prefix) splitPart { return splitPart{Bits: uint32(p.Bits()), Addr: networkOrder(p.Addr())} },
		func(k splitPart) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, k.Addr))), int(k.Bits))
		})
}

// setParts6 is setParts for IPv6. None can be longer than /64.
func (s *split) setParts6(number uint32, parts []netip.Prefix) error {
	if i := slices.IndexFunc(parts, func(p netip.Prefix) bool { return p.Bits() > 64 }); i >= 0 {
		return fmt.Errorf("having packets handed to their network: %s is longer than /64", parts[i])
	}
	return setParts(s.objs.Parts6, s.objs.PartLengths, number, parts,
		func(p netip.Prefix) splitPart6 {
			a := p.Addr().As16()
			return splitPart6{Bits: uint32(p.Bits()), High: binary.NativeEndian.Uint64(a[:8])}
		},
		func(k splitPart6) netip.Prefix {
			var a [16]byte
			binary.NativeEndian.PutUint64(a[:8], k.High)
			return netip.PrefixFrom(netip.AddrFrom16(a), int(k.Bits))
		})
}

// setParts has exactly these entries of a table lead to a number, and the programs look for their lengths.
func setParts[K comparable](table, lengths *ebpf.Map, number uint32, parts []netip.Prefix,
	keyOf func(netip.Prefix) K, prefixOf func(K) netip.Prefix) error {
	dividing.Lock()
	defer dividing.Unlock()
	fresh, stay, former, err := compareParts(table, number, parts, keyOf)
	if err != nil {
		return fmt.Errorf("reading which packets are handed to which network: %w", err)
	}
	prefixes := func(lists ...[]K) (out []netip.Prefix) {
		for _, key := range slices.Concat(lists...) {
			out = append(out, prefixOf(key))
		}
		return out
	}
	if err := setLengths(lengths, prefixes(fresh), prefixes(stay, former, fresh)); err != nil {
		return err
	}
	for _, key := range fresh {
		err = errors.Join(err, table.Put(key, number))
	}
	for _, key := range former {
		if e := table.Delete(key); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("having packets handed to their network: %w", err)
	}
	return setLengths(lengths, prefixes(former), prefixes(stay, fresh))
}

// compareParts returns the entries that a table lacks, those that stay in it, and those of the number that do not.
func compareParts[K comparable](table *ebpf.Map, number uint32, parts []netip.Prefix, keyOf func(netip.Prefix) K) (
	fresh, stay, former []K, err error) {
	wanted := map[K]bool{}
	for _, p := range parts {
		wanted[keyOf(p.Masked())] = true
	}
	var key K
	var n uint32
	all := table.Iterate()
	for all.Next(&key, &n) {
		if n == number && !wanted[key] {
			former = append(former, key)
			continue
		}
		if n == number {
			delete(wanted, key)
		}
		stay = append(stay, key)
	}
	return slices.Collect(maps.Keys(wanted)), stay, former, all.Err()
}

// setLengths tells the programs which lengths there are in the slots of changed parts, of all that there are. dividing
// is held.
func setLengths(table *ebpf.Map, changed, all []netip.Prefix) error {
	lengths := map[uint32][]uint8{}
	for _, p := range changed {
		for _, slot := range slotsOfPart(p) {
			lengths[slot] = nil
		}
	}
	if len(lengths) == 0 {
		return nil
	}
	for _, p := range all {
		for _, slot := range slotsOfPart(p) {
			if known, concerned := lengths[slot]; concerned && !slices.Contains(known, uint8(p.Bits()+1)) {
				lengths[slot] = append(known, uint8(p.Bits()+1))
			}
		}
	}
	for slot, list := range lengths {
		var v splitLengths
		slices.SortFunc(list, func(a, b uint8) int { return int(b) - int(a) })
		if copy(v.List[:], list) < len(list) {
			return fmt.Errorf("networks of more than %d lengths are beside each other", len(v.List))
		}
		if err := table.Put(slot, &v); err != nil {
			return fmt.Errorf("having packets handed to their network: %w", err)
		}
	}
	return nil
}

// slotsOfPart returns the slots of a part's addresses, as owner and owner6 in split.bpf.c look for them.
func slotsOfPart(p netip.Prefix) (slots []uint32) {
	if p.Addr().Is4() {
		first := hostOrder(p.Addr()) >> 16
		for i := range uint32(1) << max(0, 16-p.Bits()) {
			slots = append(slots, first+i)
		}
		return slots
	}
	a := p.Addr().As16()
	first := binary.BigEndian.Uint16(a[0:]) ^ binary.BigEndian.Uint16(a[2:]) ^ binary.BigEndian.Uint16(a[4:])
	for i := range uint32(1) << min(16, max(0, 48-p.Bits())) { // shorter than /32: all
		slots = append(slots, slotsOf+uint32(first^uint16(i)))
	}
	return slots
}
