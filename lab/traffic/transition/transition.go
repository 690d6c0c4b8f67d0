// Package transition measures how long a packet takes between a program's TCP socket and the wire, and through gateways
// on its way. A sender writes probes to a TCP connection, one every few milliseconds, a receiver reads them, and taps
// at the interfaces between them say when each passed. All times are of the machine's monotonic clock, ns, so all hosts
// must be on one machine.
//
//	 sender host        gateway 1            gateway 2        receiver host
//	write ─► leaves ─► in ─► out ═ tunnel ═ in ─► out ─► arrives ─► read returns
//	  └ kernel stamps   └──── taps ─────┴───── taps ────┴──┘
//
// The kernel stamps a probe where it comes to the interface's queue and where the driver takes it (SO_TIMESTAMPING,
// Documentation/networking/timestamping.rst). A tap is an eBPF program at tc: frames that come are noted when the
// interface's polling hands them to the stack, frames that leave before they enter the queue. Arrival has no stamp of
// the kernel's that could be used: a packet that crosses a veth keeps the time at which TCP had it sent, and one with
// such a time is stamped as late as on its way from IP to TCP (skb_clear_delivery_time in ip_local_deliver), others at
// the interface. A frame inside a tunnel is known by its length, which is a fixed function of the probe's: see Match.
package transition

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a run of probes.
const (
	MinBytes = 64   // of a probe's payload
	MaxBytes = 1200 // with any tunnel's headers still one packet
	MaxCount = 100_000
)

// Run is a run of probes from one host to another.
type Run struct {
	Number uint32         `json:"number"` // tells runs apart at the taps; not 0
	From   netip.Addr     `json:"from,omitzero"`
	To     netip.AddrPort `json:"to"`
	Count  int            `json:"count"`
	Bytes  int            `json:"bytes"` // payload of each
	// Gap is the mean time between two probes. Each gap is up to a quarter shorter or longer, so that probes do not keep
	// step with other traffic.
	Gap  time.Duration `json:"gap"`
	Seed uint64        `json:"seed,omitempty"`
}

func (r Run) check() error {
	switch {
	case r.Number == 0:
		return fmt.Errorf("a run of probes has a number other than 0")
	case r.Count < 1 || r.Count > MaxCount:
		return fmt.Errorf("%d probes: a run has 1 to %d", r.Count, MaxCount)
	case r.Bytes < MinBytes || r.Bytes > MaxBytes:
		return fmt.Errorf("probes of %d bytes: they have %d to %d", r.Bytes, MinBytes, MaxBytes)
	case r.Gap < 100*time.Microsecond || r.Gap > time.Second:
		return fmt.Errorf("a gap of %s between probes: it is 100 µs to 1 s", r.Gap)
	}
	return nil
}

// FrameBytes is the length of a probe's frame in the clear: Ethernet, IPv4, and TCP with its time stamps.
func (r Run) FrameBytes() int { return 14 + 20 + 20 + 12 + r.Bytes }

// Sent is a probe at its sender. Times are ns; 0 where the kernel gave no stamp.
type Sent struct {
	DueNs    int64 `json:"due_ns"`    // when its program was to write it
	WriteNs  int64 `json:"write_ns"`  // before the call
	QueuedNs int64 `json:"queued_ns"` // the packet comes to the interface's queue
	LeftNs   int64 `json:"left_ns"`   // its driver takes it
	// Resent is the number of segments that were retransmitted before the next probe. The times of the probe may belong to
	// the first transmission or to a later one.
	Resent int `json:"resent,omitempty"`
}

// Received is a probe at its receiver. Times are ns.
type Received struct {
	Number uint32 `json:"number"`
	ReadNs int64  `json:"read_ns"` // the call that completed it has returned; one that comes late reads several
}

// Event is a frame that passed a tap.
type Event struct {
	AtNs   int64  `json:"at_ns"`
	Tap    string `json:"tap"`              // name of the tap
	Number uint32 `json:"number,omitempty"` // of the probe, which it has in the clear; 0: not known
	Run    uint32 `json:"run,omitempty"`
	Bytes  int    `json:"bytes"` // with the Ethernet header
}

// monotonic reads the clock of all times.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return ts.Nano()
}

// clocks relates the clock of the kernel's stamps, CLOCK_REALTIME, to the monotonic one.
type clocks struct {
	offsetNs int64 // to be added to the former
	errorNs  int64 // by which that may be off
}

// relateClocks reads both clocks until one reading is close between two of the other.
func relateClocks() (best clocks) {
	best.errorNs = 1 << 62
	for range 10 {
		var real unix.Timespec
		before := monotonic()
		_ = unix.ClockGettime(unix.CLOCK_REALTIME, &real)
		after := monotonic()
		if half := (after - before) / 2; half < best.errorNs {
			best = clocks{offsetNs: before + half - real.Nano(), errorNs: half}
		}
	}
	return best
}

// toMonotonic is a stamp on the monotonic clock; 0 of none.
func (c clocks) toMonotonic(stamp unix.Timespec) int64 {
	if stamp.Nano() == 0 {
		return 0
	}
	return stamp.Nano() + c.offsetNs
}
