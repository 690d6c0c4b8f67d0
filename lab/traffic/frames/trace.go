package frames

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	maxTraceFrames = 1 << 20 // as for the period of a mix
	maxTraceTime   = 366 * 24 * time.Hour
)

// Trace is the sizes and times of a capture's frames. The zero value has none.
type Trace struct {
	Name string
	// Padded counts frames shorter than Ethernet's shortest, which get its length: Linux captures the frames that it
	// sends before they are padded.
	Padded int
	sizes  []uint16
	times  []int64 // ns since the first frame, ascending
	began  time.Time
	// outOfOrder is the number, from 1, of the first packet that is earlier than the one before it, or more than a year
	// later than the first; 0: none is.
	outOfOrder int
}

// Add appends a captured frame: its bytes on the link, and when it was captured.
func (t *Trace) Add(size int, captured time.Time) error {
	switch {
	case len(t.sizes) == maxTraceFrames:
		return fmt.Errorf("a capture may have %d: cut it with editcap -r", maxTraceFrames)
	case size < EthernetBytes:
		return fmt.Errorf("its %d bytes are no frame", size)
	case size > MaxBytes:
		return fmt.Errorf(
			"its %d bytes are more than a frame's %d: capture where the kernel does not merge packets (ethtool -K LINK gro "+
				"off tso off gso off)", size, MaxBytes)
	case size < MinBytes:
		size = MinBytes
		t.Padded++
	}
	if len(t.sizes) == 0 {
		t.began = captured
	}
	offset := captured.Sub(t.began)
	if n := len(t.times); n > 0 && int64(offset) < t.times[n-1] || offset > maxTraceTime {
		if t.outOfOrder == 0 {
			t.outOfOrder = n + 1
		}
		offset = time.Duration(t.times[max(n, 1)-1])
	}
	t.sizes = append(t.sizes, uint16(size))
	t.times = append(t.times, int64(offset))
	return nil
}

// Frames returns the number of frames in the trace.
func (t *Trace) Frames() int { return len(t.sizes) }

// Sizes are the trace's, in the order in which they came.
func (t *Trace) Sizes() Sizes {
	return Sizes{Name: t.Name, sequence: t.sizes, shares: sharesOf(t.sizes)}
}

// passTime is the time of one pass through the trace, ns. A mean gap separates its last frame from the next pass.
func (t *Trace) passTime() int64 {
	last := len(t.times) - 1
	return t.times[last] + t.times[last]/int64(last)
}

func (t *Trace) packetsPerSecond(speed float64) float64 {
	if speed == 0 {
		speed = 1
	}
	return float64(len(t.times)) * 1e9 / float64(t.passTime()) * speed
}

func (t *Trace) clock(speed float64) (clock, error) {
	if speed == 0 {
		speed = 1
	}
	if !(speed >= 1.0/maxSpeed && speed <= maxSpeed) {
		return nil, fmt.Errorf("gaps of %s at %v times their speed: choose 1/%d to %d", t.Name, speed, maxSpeed, maxSpeed)
	}
	if t.outOfOrder > 0 {
		return nil, fmt.Errorf(
			"gaps of %s: packet %d is earlier than the one before it, or a year later: put them in order with reordercap",
			t.Name, t.outOfOrder)
	}
	if len(t.times) < 2 || t.passTime() <= 0 {
		return nil, fmt.Errorf(
			"gaps of %s: its %d frames have no time between them: choose packets/s or Mbit/s", t.Name, len(t.times))
	}
	r, err := exactDecimal(speed)
	if err != nil {
		return nil, err
	}
	return &capturedGaps{times: t.times, passTime: t.passTime(), num: r.Num().Uint64(), denom: r.Denom().Uint64()}, nil
}

// capturedGaps repeats a trace's times, divided by a speed. It scales each time from the start of sending, so rounding
// errors do not add up.
type capturedGaps struct {
	times      []int64
	next       int
	passed     int64  // of complete passes, ns
	passTime   int64  // of one pass, ns
	num, denom uint64 // the speed, as a fraction
}

func (c *capturedGaps) dues(batch []Frame) {
	for i := range batch {
		hi, lo := bits.Mul64(uint64(c.passed+c.times[c.next]), c.denom)
		batch[i].Due = math.MaxInt64
		if hi < c.num {
			due, _ := bits.Div64(hi, lo, c.num)
			batch[i].Due = int64(due)
		}
		if c.next++; c.next == len(c.times) {
			c.next = 0
			c.passed += c.passTime
		}
	}
}
