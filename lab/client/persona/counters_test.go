package persona

import (
	"fmt"
	"net/netip"
)

// Counters are what one client has done since it got its address.
type Counters struct {
	TxPackets   uint64 // as on the wire
	TxBytes     uint64 // of IP; an aggregate with one header
	RxPackets   uint64
	RxBytes     uint64
	ARPAnswered uint64 // questions for its address
	// Misdirected came for its IP address under another hardware address and were
	// dropped.
	Misdirected uint64
}

// Counters reads those of the client that has ip.
func (l *Link) Counters(ip netip.Addr) (Counters, error) {
	var p programsPersona
	if err := l.objs.Personas.Lookup(mapKey(ip), &p); err != nil {
		return Counters{}, fmt.Errorf("reading the counters of %s: %w", ip, err)
	}
	return Counters{p.TxPackets, p.TxBytes, p.RxPackets, p.RxBytes, p.ArpAnswered, p.Misdirected}, nil
}

// Refusals counts packets that were dropped without being any client's.
type Refusals struct {
	Source      uint64 // left from an address of the LAN that nobody has
	Destination uint64 // came for one
	Question    uint64 // were ARP packets for one
	Malformed   uint64
	Aggregated  uint64 // left on a PPPoE session, several in one
}

// Refusals reads them.
func (l *Link) Refusals() (Refusals, error) {
	var sums [5]uint64
	for i := range sums {
		var each []uint64 // one a CPU
		if err := l.objs.Refusals.Lookup(uint32(i), &each); err != nil {
			return Refusals{}, fmt.Errorf("reading counters: %w", err)
		}
		for _, n := range each {
			sums[i] += n
		}
	}
	return Refusals{sums[0], sums[1], sums[2], sums[3], sums[4]}, nil
}
