package admission

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// entry is an address of the LAN: one cache line, so that a packet of a client without limits touches no other.
type entry struct {
	// word holds the owner and its rights: see macBits and the constants after it.
	word atomic.Uint64
	// bounds apply while word has the bit bounded. They contain the word they belong to; if the two differ, bounds are
	// newer.
	bounds atomic.Pointer[bounds]

	upBytes, upPackets     atomic.Uint64
	downBytes, downPackets atomic.Uint64
	seen                   atomic.Int64
	dropped                atomic.Uint64
}

// An entry's word: the MAC address in the lower 48 bits, and the owner's rights.
const (
	macBits    = 1<<48 - 1
	ownerKnown = 1 << 48
	admitted   = 1 << 49
	bounded    = 1 << 50 // there are bounds: end of admission, rates, quotas, a PPPoE session
)

// bounds are what an admitted client may send, and when its admission ends. They are replaced as a whole, except the
// meters.
type bounds struct {
	word                       uint64
	session, mtu               uint16 // PPPoE's; 0: none
	until                      int64  // time of Now; 0: without end
	upBytes, downBytes, total  uint64
	upPsPerByte, downPsPerByte uint64 // picoseconds; 0: any rate
	upBurst, downBurst         int64  // nanoseconds at the full rate that may arrive at once
	meters                     *meters
}

// macOf converts a MAC address to a word's lower bits.
func macOf(m datapath.MAC) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

func macIn(word uint64) datapath.MAC {
	return datapath.MAC{
		byte(word >> 40), byte(word >> 32), byte(word >> 24), byte(word >> 16), byte(word >> 8), byte(word)}
}

// state returns an entry's word and, if the word is bounded, the matching bounds.
func (e *entry) state() (uint64, *bounds) {
	word := e.word.Load()
	if word&bounded == 0 {
		return word, nil
	}
	b := e.bounds.Load()
	return b.word, b
}

// entryOf returns a client's entry.
func (t *Table) entryOf(id datapath.ID) (*entry, error) {
	if err := t.cfg.Network.Client(id.Addr()); err != nil {
		return nil, err
	}
	return &t.entries[addrNumber(id.Addr())-t.base], nil
}

// errClosed is returned by calls after Close.
var errClosed = errors.New("the data path is closed")

// Set replaces a client's entry. A packet is judged by the old entry or by the new one, never by parts of both.
func (t *Table) Set(c datapath.Client) error {
	addr, err := c.Addr()
	if err != nil {
		return err
	}
	e, err := t.entryOf(c.Identity())
	if err != nil {
		return err
	}
	if c.Session != 0 && !t.cfg.PPPoE {
		return fmt.Errorf("setting the client %s: %w: this data path takes no PPPoE headers off", addr,
			datapath.ErrNotSupported)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("setting the client %s: %w", addr, errClosed)
	}
	if len(c.Routes) > 0 && c.Session == 0 {
		return fmt.Errorf("setting the client %s: only clients on PPPoE lines have networks behind them", addr)
	}
	word := macOf(c.MAC) | ownerKnown
	if c.Admitted {
		word |= admitted
	}
	if c.Session != 0 || c.Admitted && (c.Limits != (datapath.Limits{}) || !c.Until.IsZero()) {
		word |= bounded
		e.bounds.Store(newBounds(word, c, e.bounds.Load()))
	}
	e.word.Store(word)
	return nil
}

func newBounds(word uint64, c datapath.Client, old *bounds) *bounds {
	b := &bounds{word: word, upBytes: c.Limits.UpBytes, downBytes: c.Limits.DownBytes, total: c.Limits.TotalBytes}
	if c.Session != 0 {
		b.session, b.mtu = c.Session, cmp.Or(c.MTU, datapath.PPPoEMTU)
	}
	b.upPsPerByte, b.upBurst = rate(c.Limits.UpBps)
	b.downPsPerByte, b.downBurst = rate(c.Limits.DownBps)
	if !c.Until.IsZero() {
		b.until = judgeTime(c.Until)
	}
	if old != nil {
		b.meters = old.meters
	} else {
		b.meters = new(meters)
	}
	return b
}

// rate returns the time for a byte at a rate, picoseconds, and the burst, ns.
func rate(bps uint64) (psPerByte uint64, burstNs int64) {
	if bps == 0 {
		return 0, 0
	}
	psPerByte = 8e12 / bps
	return psPerByte, max(Burst.Nanoseconds(), int64(burstBytes*psPerByte/1000))
}

// Remove removes a client's entry.
func (t *Table) Remove(id datapath.ID) error {
	e, err := t.entryOf(id)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.word.Store(0)
	return nil
}

// Counters returns the traffic of a client since the epoch.
func (t *Table) Counters(id datapath.ID) (datapath.Counters, error) {
	e, err := t.entryOf(id)
	if err != nil {
		return datapath.Counters{}, err
	}
	c := e.counters()
	c.Epoch = t.epoch
	if seen := e.seen.Load(); seen != 0 {
		c.Seen = wall(seen)
	}
	return c, nil
}

func (e *entry) counters() datapath.Counters {
	return datapath.Counters{
		UpBytes: e.upBytes.Load(), UpPackets: e.upPackets.Load(),
		DownBytes: e.downBytes.Load(), DownPackets: e.downPackets.Load(), DroppedPackets: e.dropped.Load(),
	}
}

// Total sums the counters of all addresses.
func (t *Table) Total() (datapath.Counters, error) {
	sum := datapath.Counters{Epoch: t.epoch}
	for i := range t.entries {
		c := t.entries[i].counters()
		sum.UpBytes, sum.UpPackets = sum.UpBytes+c.UpBytes, sum.UpPackets+c.UpPackets
		sum.DownBytes, sum.DownPackets = sum.DownBytes+c.DownBytes, sum.DownPackets+c.DownPackets
		sum.DroppedPackets += c.DroppedPackets
	}
	return sum, nil
}

// Moved calls f for each client that has counted packets since the last call.
func (t *Table) Moved(f func(datapath.ID)) error {
	if t.marks == nil {
		t.marks = make([]uint64, len(t.entries))
	}
	for i := range t.entries {
		c := t.entries[i].counters()
		if n := c.UpPackets + c.DownPackets + c.DroppedPackets; n != t.marks[i] {
			t.marks[i] = n
			f(datapath.ID(t.base + uint32(i)))
		}
	}
	return nil
}

// Clients lists the clients that have an entry.
func (t *Table) Clients() (all []datapath.ID, err error) {
	for i := range t.entries {
		if t.entries[i].word.Load()&ownerKnown != 0 {
			all = append(all, datapath.ID(t.base+uint32(i)))
		}
	}
	return all, nil
}
