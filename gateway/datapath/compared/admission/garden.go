package admission

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// maxGarden bounds the prefixes of the walled garden.
const maxGarden = 65536

// garden is the prefixes of the walled garden, each with an expiry. An address is in the garden while any prefix that
// contains it is open.
type garden struct {
	lengths atomic.Uint64 // bit n: there are prefixes of n bits

	mu     sync.RWMutex
	expiry map[uint64]int64 // guarded by mu: by length and network; 0: never
	count  [33]int          // guarded by mu: prefixes of each length
}

// slot returns a prefix as a key.
func slot(length int, addr uint32) uint64 {
	return uint64(length)<<32 | uint64(addr)&(0xffffffff<<(32-length)&0xffffffff)
}

// contains reports whether an address is in the garden now.
func (g *garden) contains(addr uint32, now int64) bool {
	left := g.lengths.Load()
	if left == 0 {
		return false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for ; left != 0; left &= left - 1 {
		if ends, open := g.expiry[slot(bits.TrailingZeros64(left), addr)]; open && (ends == 0 || now < ends) {
			return true
		}
	}
	return false
}

// open opens a prefix until ends, 0: without end; or closes it.
func (g *garden) open(length int, addr uint32, ends int64, closes bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := slot(length, addr)
	_, found := g.expiry[key]
	switch {
	case closes:
		g.remove(key)
		return nil
	case !found && len(g.expiry) >= maxGarden:
		g.removeExpired()
		if len(g.expiry) >= maxGarden {
			return fmt.Errorf("it holds %d prefixes already", len(g.expiry))
		}
	}
	if g.expiry == nil {
		g.expiry = map[uint64]int64{}
	}
	if !found {
		g.count[length]++
	}
	g.expiry[key] = ends
	g.lengths.Store(g.lengths.Load() | 1<<length)
	return nil
}

// removeExpired removes expired prefixes. mu is held.
func (g *garden) removeExpired() {
	now := Now()
	for key, ends := range maps.Clone(g.expiry) {
		if ends != 0 && ends <= now {
			g.remove(key)
		}
	}
}

// remove removes a prefix, if it exists. mu is held.
func (g *garden) remove(key uint64) {
	if _, found := g.expiry[key]; !found {
		return
	}
	delete(g.expiry, key)
	length := key >> 32
	if g.count[length]--; g.count[length] == 0 {
		g.lengths.Store(g.lengths.Load() &^ (1 << length))
	}
}

// gardenPorts are single ports of prefixes that are open although the garden has not the prefix, or shut although it
// has. For each protocol and port they are a garden of their own.
type gardenPorts struct {
	nonEmpty atomic.Bool // there is one

	mu         sync.RWMutex
	open, shut map[uint32]*garden // guarded by mu: by protocol and port
}

// portKey is a protocol and a port as a key.
func portKey(protocol uint8, port uint16) uint32 { return uint32(protocol)<<16 | uint32(port) }

// contain reports whether a port of an address is open or shut now.
func (d *gardenPorts) contain(addr uint32, protocol uint8, port uint16, now int64) (open, shut bool) {
	if !d.nonEmpty.Load() {
		return false, false
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	key := portKey(protocol, port)
	if g := d.shut[key]; g != nil && g.contains(addr, now) {
		return false, true
	}
	g := d.open[key]
	return g != nil && g.contains(addr, now), false
}

// gardenOf returns the garden of a port, which it makes if there is none.
func (d *gardenPorts) gardenOf(port datapath.GardenPort) *garden {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open, d.shut = map[uint32]*garden{}, map[uint32]*garden{}
	}
	all, key := d.open, portKey(port.Protocol, port.Port)
	if port.Shut {
		all = d.shut
	}
	if all[key] == nil {
		all[key] = &garden{}
	}
	d.nonEmpty.Store(true)
	return all[key]
}

// OpenPort opens a port of the walled garden, or shuts it, until a time (datapath.Running).
func (t *Table) OpenPort(d datapath.GardenPort, until time.Time) error {
	return t.openIn(t.ports.gardenOf(d), d.Prefix, until)
}

// reaches reports whether a port of an address is in the garden now.
func (t *Table) reaches(addr uint32, protocol uint8, port uint16, now int64) bool {
	open, shut := t.ports.contain(addr, protocol, port, now)
	return open || !shut && t.garden.contains(addr, now)
}

// SetOwn replaces the addresses of this machine. They are outside of the walled garden, whatever prefixes are open.
func (t *Table) SetOwn(addrs []netip.Addr) {
	own := make(map[uint32]bool, len(addrs))
	for _, a := range addrs {
		own[addrNumber(a)] = true
	}
	t.ownAddrs.Store(&own)
}

// inGarden reports whether unauthenticated clients may send a packet to its destination now.
func (t *Table) inGarden(h *header, now int64) bool {
	if !t.reaches(h.dest, h.protocol, h.dstPort, now) {
		return false
	}
	own := t.ownAddrs.Load()
	return own == nil || !(*own)[h.dest]
}

// Open opens the walled garden for a prefix, or closes it.
func (t *Table) Open(prefix netip.Prefix, until time.Time) error {
	return t.openIn(&t.garden, prefix, until)
}

func (t *Table) openIn(g *garden, prefix netip.Prefix, until time.Time) error {
	if !prefix.IsValid() || !prefix.Addr().Is4() {
		return fmt.Errorf("the walled garden cannot hold %s: IPv4 only", prefix)
	}
	var ends int64
	closes := !until.IsZero() && !until.After(time.Now())
	if !until.IsZero() {
		ends = judgeTime(until)
	}
	if err := g.open(prefix.Bits(), addrNumber(prefix.Addr()), ends, closes); err != nil {
		return fmt.Errorf("opening the walled garden for %s: %w", prefix.Masked(), err)
	}
	return nil
}
