package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Source describes the origin of the frame sizes, in a form that can be sent to other processes.
type Source struct {
	Name  string   `json:"name"`            // name that Named knows; if Mix or Trace is set, used in messages only
	Mix   []Weight `json:"mix,omitempty"`   // weights of frame sizes
	Trace []byte   `json:"trace,omitempty"` // a capture's frames, as Trace.Encode writes them
}

// Open returns the sizes. For a capture it also returns its frames.
func (s Source) Open() (Sizes, *Trace, error) {
	switch {
	case s.Trace != nil:
		t, err := decodeTrace(s.Name, s.Trace)
		if err != nil {
			return Sizes{}, nil, err
		}
		return t.Sizes(), t, nil
	case s.Mix != nil:
		sizes, err := Histogram(s.Name, s.Mix)
		return sizes, nil, err
	}
	sizes, err := Named(s.Name)
	return sizes, nil, err
}

// Encode writes the trace with a few bytes for each frame. All numbers are written by binary.PutUvarint: first the
// number of the first frame out of order (Trace.outOfOrder), or 0; then for each frame its size, and the ns since the
// frame before it.
func (t *Trace) Encode() []byte {
	b := binary.AppendUvarint(nil, uint64(t.outOfOrder))
	last := int64(0)
	for i, size := range t.sizes {
		b = binary.AppendUvarint(b, uint64(size))
		b = binary.AppendUvarint(b, uint64(t.times[i]-last))
		last = t.times[i]
	}
	return b
}

// decodeTrace reads what Encode wrote.
func decodeTrace(name string, b []byte) (*Trace, error) {
	t := &Trace{Name: name}
	next := func() (v uint64, err error) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, errors.New("it ends in the middle of a frame")
		}
		b = b[n:]
		return v, nil
	}
	bad := func(err error) (*Trace, error) {
		return nil, fmt.Errorf("the frames of %s after %d: %w", name, len(t.sizes), err)
	}
	astray, err := next()
	if err != nil {
		return bad(err)
	}
	last := int64(0)
	for len(b) > 0 {
		size, err1 := next()
		gap, err2 := next()
		if err := errors.Join(err1, err2); err != nil {
			return bad(err)
		}
		if size < MinBytes || size > MaxBytes || gap > uint64(maxTraceTime)-uint64(last) || len(t.sizes) == maxTraceFrames {
			return bad(fmt.Errorf("a frame of %d bytes %d ns after another", size, gap))
		}
		last += int64(gap)
		t.sizes, t.times = append(t.sizes, uint16(size)), append(t.times, last)
	}
	if len(t.sizes) == 0 || astray > uint64(len(t.sizes)) {
		return bad(fmt.Errorf("%d is astray", astray))
	}
	t.outOfOrder = int(astray)
	return t, nil
}

// Each calls fn with each frame's size and its time after the first, ns.
func (t *Trace) Each(fn func(bytes int, ns int64)) {
	for i, size := range t.sizes {
		fn(int(size), t.times[i])
	}
}

// Speed returns the factor by which a trace must be sent faster than it was captured to have the given rate, packets/s.
func (t *Trace) Speed(packetsPerSecond float64) (float64, error) {
	if _, err := t.clock(1); err != nil {
		return 0, err
	}
	return packetsPerSecond / t.packetsPerSecond(1), nil
}

// Most returns the largest number of frames of the trace that are due within a time at a speed.
func (t *Trace) Most(seconds, speed float64) int64 {
	passes := seconds * 1e9 * speed / float64(max(t.passTime(), 1))
	return (int64(passes) + 2) * int64(len(t.sizes))
}
