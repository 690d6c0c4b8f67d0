package receive

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// The tests of this file run the receiving eBPF program by hand on single packets, and look at its verdict and counts.

// Verdicts of tc: shot drops the packet, next passes it on to the next program.
const (
	next = 0xffffffff
	shot = 2
)

// bench is a receiver without an interface: its program is run by hand.
func bench(t testing.TB, cfg Config) *Receiver {
	t.Helper()
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	r := &Receiver{cfg: cfg, attachment: nowhere{}}
	if err := r.load(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// nowhere is the attachment of a program that is attached to no interface.
type nowhere struct{}

func (nowhere) Lost() (bool, error) { return false, nil }
func (nowhere) Close() error        { return nil }

// frame returns a frame of the generator over IPv4, with a size in bytes and a stamp.
func frame(size int, s frames.Stamp) []byte {
	b := make([]byte, size)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	binary.BigEndian.PutUint16(b[16:], uint16(size-frames.EthernetBytes))
	b[22], b[23] = 64, 17
	copy(b[26:], []byte{10, 77, 0, 2, 10, 77, 0, 1})
	binary.BigEndian.PutUint16(b[24:], checksum(b[14:34]))
	binary.BigEndian.PutUint16(b[34:], 5000)
	binary.BigEndian.PutUint16(b[36:], frames.Port)
	binary.BigEndian.PutUint16(b[38:], uint16(size-frames.EthernetBytes-frames.IPv4Bytes))
	s.Put(b[frames.PayloadAt:])
	return b
}

// frame6 is frame over IPv6.
func frame6(size int, s frames.Stamp) []byte {
	b := make([]byte, size)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60})
	binary.BigEndian.PutUint16(b[18:], uint16(size-frames.EthernetBytes-frames.IPv6Bytes))
	b[20], b[21] = 17, 64
	b[37], b[53] = 2, 1 // ::2 to ::1
	binary.BigEndian.PutUint16(b[54:], 5000)
	binary.BigEndian.PutUint16(b[56:], frames.Port)
	binary.BigEndian.PutUint16(b[58:], uint16(size-frames.EthernetBytes-frames.IPv6Bytes))
	s.Put(b[frames.PayloadAt6:])
	return b
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum + sum>>16)
}

// run runs the program on a packet and returns its verdict. The packet must stay as it is.
func run(t testing.TB, r *Receiver, packet []byte) uint32 {
	t.Helper()
	opts := runOf(packet)
	verdict, err := r.objs.Receive.Run(opts)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(opts.DataOut, packet) {
		t.Error("the program changed a packet")
	}
	return verdict
}

// runOf returns the options for running the eBPF program on a packet.
func runOf(packet []byte) *ebpf.RunOptions {
	return &ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+64)}
}

// stats returns what the receiver has counted so far.
func stats(t testing.TB, r *Receiver) Received {
	t.Helper()
	got, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestVerdicts: the program drops and counts frames of the generator, and passes all other packets on. The receiver
// expects two streams of 128 frames.
func TestVerdicts(t *testing.T) {
	// with and with6 return a frame with other bytes at a place; tag puts a VLAN tag into it.
	with := func(index int, b ...byte) []byte {
		f := frame(60, frames.Stamp{})
		copy(f[index:], b)
		return f
	}
	with6 := func(index int, b ...byte) []byte {
		f := frame6(80, frames.Stamp{})
		copy(f[index:], b)
		return f
	}
	tag := func(f []byte, tags ...byte) []byte {
		return append(append(append([]byte{}, f[:12]...), tags...), f[12:]...)
	}
	for _, tt := range []struct {
		name    string
		packet  []byte
		verdict uint32
		want    Received
	}{
		{"a frame", frame(60, frames.Stamp{}), shot, Received{Frames: 1}},
		{"a long one", frame(1514, frames.Stamp{}), shot, Received{Frames: 1}},
		{"an unknown stream", frame(60, frames.Stamp{Stream: 2}), shot, Received{Stray: 1}},
		{"the last number", frame(60, frames.Stamp{Stream: 1, Number: 127}), shot, Received{Frames: 1, Missing: 127}},
		{"a number beyond", frame(60, frames.Stamp{Number: 128}), shot, Received{Stray: 1}},
		{"a number far beyond", frame(60, frames.Stamp{Number: 1<<48 - 1}), shot, Received{Stray: 1}},
		{"another port", with(36, 0, 10), next, Received{Foreign: 1}},
		{"another payload", with(42, 0x47, 0x58), next, Received{Foreign: 1}},
		{"TCP", with(23, 6), next, Received{Foreign: 1}},
		{"a fragment", with(20, 0x20), next, Received{Foreign: 1}},
		{"a later fragment", with(20, 0, 1), next, Received{Foreign: 1}},
		{"not to be fragmented", with(20, 0x40), shot, Received{Frames: 1}},
		{"IPv6", frame6(80, frames.Stamp{}), shot, Received{Frames: 1}},
		{"a long one of IPv6", frame6(1514, frames.Stamp{Stream: 1, Number: 1}), shot, Received{Frames: 1, Missing: 1}},
		{"IPv6 to another port", with6(57, 10), next, Received{Foreign: 1}},
		{"another payload of IPv6", with6(62, 0x47, 0x58), next, Received{Foreign: 1}},
		{"an extension header", with6(20, 0), next, Received{Foreign: 1}},
		{"IPv6 in a VLAN", tag(frame6(80, frames.Stamp{}), 0x81, 0, 0, 5), next, Received{Foreign: 1, Tagged: 1}},
		{"IPv6 cut short", frame6(80, frames.Stamp{})[:79], next, Received{Foreign: 1}},
		{"a frame of IPv4 called IPv6", with(12, 0x86, 0xdd), next, Received{Foreign: 1}},
		{"IP options", with(14, 0x46), next, Received{Foreign: 1}},
		{"a VLAN", tag(frame(60, frames.Stamp{}), 0x81, 0, 0, 5), next, Received{Foreign: 1, Tagged: 1}},
		{"a VLAN with another's packet", tag(with(42, 0), 0x81, 0, 0, 5), next, Received{Foreign: 1}},
		{"cut short", frame(60, frames.Stamp{})[:59], next, Received{Foreign: 1}},
		{"very short", make([]byte, 14), next, Received{Foreign: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := bench(t, Config{Streams: 2, FramesPerStream: 128})
			if verdict := run(t, r, tt.packet); verdict != tt.verdict {
				t.Errorf("verdict %d, want %d", int32(verdict), int32(tt.verdict))
			}
			got := stats(t, r)
			if got.Frames != tt.want.Frames || got.Missing != tt.want.Missing || got.Stray != tt.want.Stray ||
				got.Foreign != tt.want.Foreign || got.Tagged != tt.want.Tagged || got.Merged != 0 {
				t.Errorf("counts %+v, want %+v", withoutZeros(got), withoutZeros(tt.want))
			}
			if got.Frames == 1 && (got.Bytes != uint64(len(tt.packet)) || got.Sizes[len(tt.packet)] != 1) {
				t.Errorf("%d bytes, sizes %v, want one frame of %d", got.Bytes, got.Sizes, len(tt.packet))
			}
		})
	}
}

// TestMergedFramesAreNotFrames hands the program a buffer of two segments, as aggregation makes them.
func TestMergedFramesAreNotFrames(t *testing.T) {
	r := bench(t, Config{})
	opts := runOf(frame(200, frames.Stamp{}))
	const sizeofSkBuff, gsoSegs = 192, 164 // struct __sk_buff
	skb := make([]byte, sizeofSkBuff)
	binary.NativeEndian.PutUint32(skb[gsoSegs:], 2)
	opts.Context = skb
	verdict, err := r.objs.Receive.Run(opts)
	if got := stats(t, r); err != nil || verdict != shot || got.Merged != 1 || got.Frames != 0 {
		t.Errorf("verdict %d, %v, counts %+v", verdict, err, withoutZeros(got))
	}
}

// withoutZeros returns counts without delays and streams, which are too long for a message.
func withoutZeros(r Received) Received {
	r.Delay, r.Streams = Delay{}, nil
	return r
}

// TestBuckets: the program counts delays where the scale has them. An hour is in the last bucket, with all from 2⁴¹ ns
// on.
func TestBuckets(t *testing.T) {
	if n := delayScale.Size(41); n != buckets {
		t.Fatalf("the program has %d buckets, the scale %d", buckets, n)
	}
	for _, seconds := range []int64{10, 100, 1000, 3600} {
		r := bench(t, Config{})
		sent := now() - seconds*1e9
		run(t, r, frame(60, frames.Stamp{SentNs: sent}))
		d := stats(t, r).Delay
		index := slices.IndexFunc(d.counts, func(n uint64) bool { return n > 0 })
		if want := min(delayScale.Place(d.MaxNs), buckets-1); index != want {
			t.Errorf("a delay of %d ns is counted at %d, want %d", d.MaxNs, index, want)
		}
	}
}

// TestShift: frames of a sender whose clock is an hour ahead have the delays of one clock with the shift between them.
func TestShift(t *testing.T) {
	const ahead = 3600_000_000_000
	for shift, early := range map[int64]uint64{0: 1, ahead: 0} {
		r := bench(t, Config{ShiftNs: shift})
		sent := now() + ahead - 1000
		run(t, r, frame(60, frames.Stamp{SentNs: sent}))
		got := stats(t, r)
		if got.Early != early || early == 0 && (got.Delay.MaxNs < 1000 || got.Delay.MaxNs > ahead/2) {
			t.Errorf("shift %d: %d early, delay %d ns", shift, got.Early, got.Delay.MaxNs)
		}
	}
}

// BenchmarkReceive measures the program's time for a frame that has come before, for one of an unexpected stream, and
// for another packet, which it passes on.
func BenchmarkReceive(b *testing.B) {
	for name, packet := range map[string][]byte{
		"again": frame(60, frames.Stamp{}), "stray": frame(60, frames.Stamp{Stream: 1}), "foreign": make([]byte, 60),
	} {
		b.Run(name, func(b *testing.B) {
			r := bench(b, Config{})
			_, took, err := r.objs.Receive.Benchmark(packet, b.N, b.ResetTimer)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds()), "ns/frame")
		})
	}
}
