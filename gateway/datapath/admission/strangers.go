package admission

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// strangers bounds what unauthenticated clients have the gateway do (datapath.Budgets), by the
// address's position in the LAN, and what MAC addresses send without one of their own.
type strangers struct {
	used  [][datapath.Works]budget.Clock
	flows flows
	dhcp  budget.Senders[uint64]
	fresh budget.Senders[uint64] // newcomers
}

func newStrangers(size int) *strangers {
	return &strangers{
		used:  make([][datapath.Works]budget.Clock, size),
		flows: flows{seed: maphash.MakeSeed()},
		dhcp:  budget.Senders[uint64]{Rate: datapath.Senders, Size: datapath.MostSenders},
		fresh: budget.Senders[uint64]{Rate: datapath.Senders, Size: datapath.MostSenders},
	}
}

// affords reports whether the client at a place may have work done, and counts that.
func (s *strangers) affords(place uint32, what datapath.Work, now int64) bool {
	return s.used[place][what].Spend(datapath.Budgets[what], now)
}

// mayFlow reports whether a client's packet may pass: of a connection seen before, or of
// another one within the budget. further is the work for packets of a known connection;
// datapath.Works: none.
func (s *strangers) mayFlow(place uint32, h *header, b []byte, first, further datapath.Work, now int64) bool {
	f := s.flows.of(h, b)
	if s.flows.has(f) {
		return further == datapath.Works || s.affords(place, further, now)
	}
	if !s.affords(place, first, now) {
		return false
	}
	s.flows.add(f)
	return true
}

// flows remembers connections of unauthenticated clients by their hashes, in sets of a few
// whose oldest one is replaced. A connection that is no longer remembered costs as much as a
// new one; without a lock, one that threads add at once may be lost too.
type flows struct {
	seed maphash.Seed
	sets [flowSets][flowSet]atomic.Uint64
}

const flowSets, flowSet = 16_384, 4

// of describes a packet as connection tracking would: ICMP by its type and identifier, other
// protocols by what are ports in most of them. What a packet does not have, such as a later
// fragment, is 0.
func (f *flows) of(h *header, b []byte) uint64 {
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
