package admission

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// networks are those behind clients on lines. Only packets from or to addresses outside the LAN look
// into it, and only while there are some.
type networks struct {
	lengths atomic.Uint64 // bit n: there are networks of n bits

	mu     sync.RWMutex
	places map[uint64]uint32   // guarded by mu: by slot, the client's position in the LAN
	of     map[uint32][]uint64 // guarded by mu: the slots of a position
	count  [33]int             // guarded by mu: networks of each length
}

// holder returns the position of the client behind which an address is: that of the longest network.
func (n *networks) holder(addr uint32) (place uint32, ok bool) {
	left := n.lengths.Load()
	if left == 0 {
		return 0, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for left != 0 {
		length := bits.Len64(left) - 1
		if place, ok = n.places[slot(length, addr)]; ok {
			return place, true
		}
		left &^= 1 << length
	}
	return 0, false
}

// replace makes the networks of a place those given. It changes nothing where another place has one.
func (n *networks) replace(place uint32, to []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range to {
		if !p.IsValid() || !p.Addr().Is4() || p != p.Masked() || p.Bits() == 0 {
			return fmt.Errorf("%s: no network of IPv4", p)
		}
		if has, there := n.places[slot(p.Bits(), number(p.Addr()))]; there && has != place {
			return fmt.Errorf("%w: %s is behind another client", datapath.ErrTaken, p)
		}
	}
	if len(to) == 0 && len(n.places) == 0 {
		return nil
	}
	if n.places == nil {
		n.places, n.of = map[uint64]uint32{}, map[uint32][]uint64{}
	}
	lengths := n.lengths.Load()
	for _, key := range n.of[place] {
		delete(n.places, key)
		if n.count[key>>32]--; n.count[key>>32] == 0 {
			lengths &^= 1 << (key >> 32)
		}
	}
	delete(n.of, place)
	for _, p := range to {
		key := slot(p.Bits(), number(p.Addr()))
		if _, twice := n.places[key]; twice {
			continue
		}
		n.count[p.Bits()]++
		n.places[key] = place
		n.of[place] = append(n.of[place], key)
		lengths |= 1 << p.Bits()
	}
	n.lengths.Store(lengths)
	return nil
}

// owner returns the position of the client that an address is of: its own, or one in a network behind
// it. routed: the latter.
func (t *Table) owner(addr uint32) (place uint32, routed, ok bool) {
	if place = addr - t.base; place < uint32(len(t.entries)) {
		return place, false, true
	}
	place, ok = t.nets.holder(addr)
	return place, ok, ok
}

// errNoLine is returned for networks behind a client that is on no line.
var errNoLine = errors.New("only clients on PPPoE lines have networks behind them")
