// Package pulse measures for how long packets of clients get lost: an outage. Each client sends a numbered datagram
// (a pulse) every 10 ms to a server, which sends one every 10 ms to each client. Each client also has a TCP connection,
// over which bytes go forth and back. Linux only.
//
// The time without packets is counted in pulses that are missing one after the other, times 10 ms. A host that was busy
// sends its pulses late, but sends all of them: so its delays do not count as an outage. The result says how late the
// latest pulse was sent.
package pulse

import (
	"encoding/binary"
	"time"
)

// Interval is the time between two pulses of a client in one direction.
const Interval = 10 * time.Millisecond

const (
	size       = 100     // payload of a pulse, bytes
	headers    = 20 + 8  // of IPv4 and UDP, bytes
	tcpHeaders = 20 + 32 // of IPv4, and of TCP with time stamps, bytes
)

var magic = [4]byte{'G', 'W', 'P', 'U'}

// put writes pulse number seq of a client into b, which has size bytes.
func put(b []byte, client int, seq uint32) {
	clear(b)
	copy(b, magic[:])
	binary.BigEndian.PutUint32(b[4:], uint32(client))
	binary.BigEndian.PutUint32(b[8:], seq)
}

// read returns the client and the number of a pulse. ok is false for anything else.
func read(b []byte) (client int, seq uint32, ok bool) {
	if len(b) != size || [4]byte(b[:4]) != magic {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(b[4:])), binary.BigEndian.Uint32(b[8:]), true
}

// Track is what arrived of one client's pulses in one direction.
type Track struct {
	Received int64 `json:"received"` // since the beginning
	// Since the mark: the longest run of missing pulses, and the longest time between two arrivals.
	OutageNs  int64 `json:"outage_ns"`
	SilenceNs int64 `json:"silence_ns"`
	// LastNs is when the latest pulse arrived, by the monotonic clock of the machine (CLOCK_MONOTONIC); 0: none did.
	LastNs  int64 `json:"last_ns"`
	FirstNs int64 `json:"first_ns"` // when the first one arrived, by the same clock; 0: none did
	// Back is false when the pulses were still missing at the end: the outage is longer than what is known.
	Back bool `json:"back"`
	next uint32
	from int64 // when the mark was set, ns
}

// arrived takes note of a pulse. One that is older than the latest is none that was missing at the end of a run.
func (t *Track) arrived(seq uint32, now int64) {
	if t.Received++; t.Received == 1 {
		t.FirstNs = now
	}
	if seq < t.next {
		return
	}
	t.OutageNs = max(t.OutageNs, int64(seq-t.next)*int64(Interval))
	if t.LastNs > 0 {
		t.SilenceNs = max(t.SilenceNs, now-max(t.LastNs, t.from))
	}
	t.next, t.LastNs = seq+1, now
}

// mark begins to count outages.
func (t *Track) mark(now int64) { t.OutageNs, t.SilenceNs, t.from = 0, 0, now }

// backWithin is how long ago the latest pulse of a track that is back may have arrived.
const backWithin = 500 * time.Millisecond

// ended returns the track with the run that is open at the end.
func (t *Track) ended(now int64) Track {
	e := *t
	silent := now - max(t.LastNs, t.from)
	e.Back = t.LastNs > 0 && silent < int64(backWithin)
	if !e.Back {
		e.OutageNs, e.SilenceNs = max(e.OutageNs, silent), max(e.SilenceNs, silent)
	}
	return e
}
