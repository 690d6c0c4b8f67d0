package receive

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Received counts the frames that arrived since Open or Reset.
type Received struct {
	Frames, Bytes uint64 // with duplicates; bytes as frames.Frame counts them
	Duplicates    uint64 // frames with a number that had come before
	Missing       uint64 // numbers that did not arrive, below the highest number of their stream that did
	// Reordered frames arrived after a frame of their stream with a higher number (RFC 4737, 3.3), without duplicates.
	Reordered uint64
	Sizes     map[int]uint64 // frames by bytes, with duplicates
	Delay     Delay          // of all frames but duplicates
	Streams   []Stream       // by number

	// Packets that are in none of the counts above.
	Stray   uint64 // frames of a stream, or with a number, beyond those that Config expects: dropped
	Merged  uint64 // buffers in which the kernel has merged several frames, dropped: aggregation must be off
	Foreign uint64 // all other packets that the interface received: passed on
	Tagged  uint64 // of the Foreign ones, the generator's frames behind a VLAN tag

	// Early frames arrived before they were sent, by the clocks of sender and receiver, which differ. Their delay is 0.
	Early uint64
}

// Stream counts the frames that arrived of one stream.
type Stream struct {
	Frames, Bytes, Duplicates, Missing, Reordered uint64
	// JitterNs is the interarrival jitter at the last frame (RFC 3550, 6.4.1), ns, of frames as they came.
	JitterNs float64
	// MinNs, MaxNs and MeanNs are one-way delays; 0 without frames.
	MinNs, MaxNs uint64
	MeanNs       float64
}

// Distinct is the number of different frame numbers that arrived of the stream.
func (s Stream) Distinct() uint64 { return s.Frames - s.Duplicates }

// Distinct is the number of frames that arrived at least once. These frames were forwarded (RFC 2285).
func (r Received) Distinct() uint64 { return r.Frames - r.Duplicates }

// Lost returns the number of frames that left the sender but did not arrive. Frames after the last arrived one count
// too.
func (r Received) Lost(offered uint64) int64 { return int64(offered - r.Distinct()) }

// Stats reads the counts. If the interface is gone, it returns an error and the counts up to then.
func (r *Receiver) Stats() (Received, error) {
	got, err := r.read()
	if err != nil {
		return got, fmt.Errorf("reading the counts of frames on %s: %w", r.cfg.Interface, err)
	}
	lost, err := r.attachment.Lost()
	if err != nil {
		return got, err
	}
	if lost {
		return got, fmt.Errorf("receiving frames on %s: the interface is gone, the counts end there", r.cfg.Interface)
	}
	return got, nil
}

func (r *Receiver) read() (Received, error) {
	got := Received{Sizes: map[int]uint64{}, Streams: make([]Stream, r.cfg.Streams)}
	if r.attachment == nil {
		return got, errors.New("the receiver is closed")
	}
	if err := r.readStreams(&got); err != nil {
		return got, err
	}
	return got, r.readCPUs(&got)
}

func (r *Receiver) readStreams(got *Received) error {
	keys, values := make([]uint32, r.cfg.Streams), make([]programsStream, r.cfg.Streams)
	var cursor ebpf.MapBatchCursor
	n, err := r.objs.Streams.BatchLookup(&cursor, keys, values, &ebpf.BatchOptions{ElemFlags: uint64(ebpf.LookupLock)})
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // says that these are the last
		return err
	}
	if n != r.cfg.Streams {
		return fmt.Errorf("%d of %d streams were there", n, r.cfg.Streams)
	}
	for i, key := range keys {
		got.add(int(key), &values[i])
	}
	return nil
}

// add takes a stream's state over into the sums.
func (got *Received) add(number int, v *programsStream) {
	s := Stream{
		Frames: v.Frames, Bytes: v.Bytes, Duplicates: v.Duplicates, Reordered: v.Reordered,
		JitterNs: float64(v.Jitter16) / 16, MinNs: v.DelayMin, MaxNs: v.DelayMax,
	}
	s.Missing = v.Next - s.Distinct()
	if n := s.Distinct(); n > 0 {
		s.MeanNs = float64(v.DelaySum) / float64(n)
		got.Delay.include(n, v.DelaySum, v.DelayMin, v.DelayMax)
	}
	got.Streams[number] = s
	got.Frames += s.Frames
	got.Bytes += s.Bytes
	got.Duplicates += s.Duplicates
	got.Missing += s.Missing
	got.Reordered += s.Reordered
}

func (r *Receiver) readCPUs(got *Received) error {
	c := new(programsCpu)
	got.Delay.counts = make([]uint64, buckets)
	for cpu := range r.objs.Cpus.MaxEntries() {
		if err := r.objs.Cpus.Lookup(cpu, c); err != nil {
			return err
		}
		got.Stray += c.Stray
		got.Merged += c.Merged
		got.Foreign += c.Foreign
		got.Tagged += c.Tagged
		got.Early += c.Early
		for bytes, n := range c.Sizes {
			if n > 0 {
				got.Sizes[bytes] += n
			}
		}
		for i, n := range c.Delays {
			got.Delay.counts[i] += n
		}
	}
	return nil
}

// The histogram of sizes has the longest frame.
var _ [frames.MaxBytes + 1]uint64 = programsCpu{}.Sizes
