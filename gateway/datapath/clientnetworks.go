package datapath

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// ClientNetworks records which client owns an IPv4 network that is routed to it (Framed-Route of a PPPoE client). The
// zero value has none. Its methods may be called at any time from several goroutines. Holder takes no lock while there
// are no networks.
type ClientNetworks[O comparable] struct {
	lengths atomic.Uint64 // bit n: there are networks of n bits

	mu      sync.RWMutex // guards what follows
	owners  map[netip.Prefix]O
	byOwner map[O][]netip.Prefix
	count   [33]int // networks of each length
}

// Fresh returns the networks that Add would enter, or the error that it would return.
func (b *ClientNetworks[O]) Fresh(owner O, networks []netip.Prefix) ([]netip.Prefix, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.fresh(owner, networks)
}

// fresh is Fresh with mu held.
func (b *ClientNetworks[O]) fresh(owner O, networks []netip.Prefix) (fresh []netip.Prefix, err error) {
	for _, n := range networks {
		holder, found := b.owners[n]
		switch {
		case !n.IsValid() || !n.Addr().Is4() || n != n.Masked() || n.Bits() == 0:
			return nil, fmt.Errorf("%s: no network of IPv4", n)
		case found && holder != owner:
			return nil, fmt.Errorf("%w: %s is behind %v", ErrTaken, n, holder)
		case !found && !slices.Contains(fresh, n):
			fresh = append(fresh, n)
		}
	}
	return fresh, nil
}

// Add enters networks of an owner, and returns the new ones among them. It fails with ErrTaken, and enters none, if
// another owner has one of them.
func (b *ClientNetworks[O]) Add(owner O, networks []netip.Prefix) (fresh []netip.Prefix, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fresh, err = b.fresh(owner, networks); err != nil || len(fresh) == 0 {
		return nil, err
	}
	if b.owners == nil {
		b.owners, b.byOwner = map[netip.Prefix]O{}, map[O][]netip.Prefix{}
	}
	for _, n := range fresh {
		b.owners[n] = owner
		b.counted(n.Bits(), 1)
	}
	b.byOwner[owner] = append(b.byOwner[owner], fresh...)
	return fresh, nil
}

// Drop removes networks of an owner, and returns the removed ones. It ignores networks that the owner does not have.
func (b *ClientNetworks[O]) Drop(owner O, networks []netip.Prefix) (removed []netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range networks {
		if holder, found := b.owners[n]; found && holder == owner {
			delete(b.owners, n)
			b.counted(n.Bits(), -1)
			removed = append(removed, n)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	b.byOwner[owner] = slices.DeleteFunc(
		b.byOwner[owner], func(n netip.Prefix) bool { return slices.Contains(removed, n) })
	if len(b.byOwner[owner]) == 0 {
		delete(b.byOwner, owner)
	}
	return removed
}

// counted adds more, 1 or -1, to the number of networks of a length. mu is held.
func (b *ClientNetworks[O]) counted(length, more int) {
	b.count[length] += more
	if set := uint64(1) << length; b.count[length] > 0 {
		b.lengths.Or(set)
	} else {
		b.lengths.And(^set)
	}
}

// Holder returns the owner of the longest network that contains an address.
func (b *ClientNetworks[O]) Holder(addr netip.Addr) (owner O, ok bool) {
	left := b.lengths.Load()
	if left == 0 || !addr.Is4() {
		return owner, false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for left != 0 {
		length := bits.Len64(left) - 1
		n, _ := addr.Prefix(length) // no error: it is of IPv4
		if owner, ok = b.owners[n]; ok {
			return owner, true
		}
		left &^= 1 << length
	}
	return owner, false
}

// Owner returns the owner of exactly this network. Its cost does not depend on the number of networks.
func (b *ClientNetworks[O]) Owner(network netip.Prefix) (owner O, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	owner, ok = b.owners[network]
	return owner, ok
}

// Any returns one of the networks, if there is one.
func (b *ClientNetworks[O]) Any() (network netip.Prefix, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for network := range b.owners {
		return network, true
	}
	return netip.Prefix{}, false
}

// All returns the owners by their networks. It copies all of them.
func (b *ClientNetworks[O]) All() map[netip.Prefix]O {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.owners)
}

// Of returns the networks of an owner.
func (b *ClientNetworks[O]) Of(owner O) []netip.Prefix {
	if b.Empty() {
		return nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Clone(b.byOwner[owner])
}

// Empty reports whether there are no networks.
func (b *ClientNetworks[O]) Empty() bool { return b.lengths.Load() == 0 }
