package admission

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// buckets are the token buckets of one address or one MAC address, one for each kind of work (datapath.Work).
type buckets [datapath.NumWorks]budget.Clock

// strangers bounds the work that unauthenticated clients cause (datapath.Budgets). It counts work by an address's
// position in the LAN and by MAC address. What a device may cause before it has an address (DHCP messages, probes for
// free addresses, and reports of newcomers) has budgets of its own by MAC address.
type strangers struct {
	spent  []buckets
	flows  flows
	dhcp   budget.Senders[uint64]
	probes budget.Senders[uint64] // by ARP, for a free address
	fresh  budget.Senders[uint64] // newcomers

	mu      sync.Mutex
	devices budget.Recent[uint64, buckets] // by MAC address; guarded by mu
}

func newStrangers(size int) *strangers {
	return &strangers{
		spent:  make([]buckets, size),
		flows:  flows{seed: maphash.MakeSeed()},
		dhcp:   budget.Senders[uint64]{Rate: datapath.Senders, Size: datapath.MostSenders},
		probes: budget.Senders[uint64]{Rate: datapath.Senders, Size: datapath.MostSenders},
		fresh:  budget.Senders[uint64]{Rate: datapath.Senders, Size: datapath.MostSenders},
	}
}

// ownedSlot is a client's place in the LAN, with its MAC address.
type ownedSlot struct {
	slot uint32
	mac  uint64
}

// affords reports whether a client may still cause work of a kind, and counts it. It asks the address's bucket first,
// which needs no lock: a flood ends there.
func (s *strangers) affords(o ownedSlot, work datapath.Work, now int64) bool {
	if !s.spent[o.slot][work].Spend(datapath.Budgets[work], now) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	device := s.devices.Get(o.mac)
	if device == nil {
		device = s.devices.Add(o.mac, datapath.MostStrangers)
	}
	return device[work].Spend(datapath.Budgets[work], now)
}

// mayFlow reports whether a client's packet may pass: of a connection seen before, or of another one within the budget.
// further is the work for packets of a known connection; datapath.NumWorks: none.
func (s *strangers) mayFlow(o ownedSlot, h *header, b []byte, first, further datapath.Work, now int64) bool {
	f := s.flows.hashOf(h, b)
	if s.flows.has(f) {
		return further == datapath.NumWorks || s.affords(o, further, now)
	}
	if !s.affords(o, first, now) {
		return false
	}
	brief := h.protocol == protocolUDP || h.protocol == protocolICMP
	if first == datapath.GardenFlow && !brief && !s.affords(o, datapath.LongTracked, now) {
		return false
	}
	s.flows.add(f)
	return true
}

// flows remembers connections of unauthenticated clients by their hashes, in sets of flowSet, where a new one replaces
// the oldest. A connection that is not remembered any more costs as much as a new one. There is no lock: of connections
// that threads add at the same moment one may be lost.
type flows struct {
	seed maphash.Seed
	sets [flowSets][flowSet]atomic.Uint64
}

const flowSets, flowSet = 16_384, 4

// hashOf returns a hash of what tells a packet's connection from others, as connection tracking does: addresses and
// protocol, and for ICMP type and identifier, for other protocols the four bytes that are the ports in most of them.
// For later fragments, which have no such bytes, these are 0.
func (f *flows) hashOf(h *header, b []byte) uint64 {
	var key [17]byte
	binary.BigEndian.PutUint32(key[:], h.source)
	binary.BigEndian.PutUint32(key[4:], h.dest)
	key[8] = h.protocol
	const offset = 0x1fff
	if l4 := b[h.length:]; binary.BigEndian.Uint16(b[6:])&offset == 0 {
		if h.protocol == protocolICMP {
			copy(key[9:11], l4)
			copy(key[11:13], l4[min(4, len(l4)):])
		} else {
			copy(key[9:13], l4)
		}
	}
	return max(1, maphash.Bytes(f.seed, key[:]))
}

func (f *flows) set(flow uint64) *[flowSet]atomic.Uint64 { return &f.sets[flow%flowSets] }

func (f *flows) has(flow uint64) bool {
	set := f.set(flow)
	for i := range set {
		if set[i].Load() == flow {
			return true
		}
	}
	return false
}

func (f *flows) add(flow uint64) {
	set := f.set(flow)
	for i := flowSet - 1; i > 0; i-- {
		set[i].Store(set[i-1].Load())
	}
	set[0].Store(flow)
}
