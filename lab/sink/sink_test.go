// Tests of sinks. newWire makes a generator, a bridge and a monitor with links; start runs a sink, a program that
// captures frames and counts them, as a process (main_test.go).

package sink

import (
	"fmt"
	"maps"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Filters as tcpdump -ddd prints them: for all frames that these tests send, and for none of them.
const (
	udpOnly = "14,40 0 0 12,21 0 5 34525,48 0 0 20,21 8 0 17,21 0 8 44,48 0 0 54,21 5 6 17,21 0 5 2048,48 0 0 23,21 2 3 " +
		"17,21 0 2 2054,6 0 0 0,6 0 0 68,6 0 0 0"
	arpOnly = "4\n40 0 0 12\n21 0 1 2054\n6 0 0 262144\n6 0 0 0\n"
)

// TestSinksCountTheSameFrames has many sinks with different settings capture the same frames: at out0, where they leave
// the bridge, and at s0, where they arrive at the monitor (see wire in main_test.go). Each sink counts all frames by
// size.
func TestSinksCountTheSameFrames(t *testing.T) {
	wire := newWire(t)
	const plenty = 32 << 10 // KiB: for all frames, on a machine that is busy with others
	type side struct {
		*netnstest.Space
		name string
	}
	var running []*process
	var none []bool // for each sink, whether its filter lets no frame pass
	for _, interface_ := range []side{{wire.monitor, "s0"}, {wire.bridge, "out0"}} {
		for _, cfg := range []Config{
			{Kind: "recv", BufferKiB: plenty},
			{Kind: "recv", BufferKiB: plenty, Snap: 68, Work: WorkCopy},
			{Kind: "recv", BufferKiB: plenty, Filter: udpOnly},
			{Kind: "recv", BufferKiB: plenty, Filter: arpOnly},
			{Kind: "mmap", BufferKiB: plenty},
			{Kind: "mmap", BufferKiB: plenty, Snap: 68, Work: WorkGzip},
			{Kind: "mmap", BufferKiB: plenty, Snap: 1, Filter: udpOnly},
			{Kind: "mmap", BufferKiB: plenty, Filter: arpOnly, Work: WorkCopy},
			{Kind: "ebpf"},
			{Kind: "ebpf"},
		} {
			cfg.Interface = interface_.name
			running = append(running, launch(t, interface_.Space, cfg))
			none = append(none, cfg.Filter == arpOnly)
		}
	}
	for _, program := range running {
		program.ready(t)
	}
	sizes := wire.send(t, mixedSizes(t, 5000, 50_000))
	for i, program := range running {
		counts := program.endAndCount(t)
		want := sizes
		if none[i] {
			want = map[int]int64{}
		}
		if !maps.Equal(counts.Sizes, want) || counts.Frames != totalFrames(want) || counts.Dropped != 0 {
			t.Errorf("%s counts %+v, want %v", program.name, counts, want)
		}
	}
}

// TestXDP: an AF_XDP socket counts all incoming frames, and no other sink sees them meanwhile.
func TestXDP(t *testing.T) {
	wire := newWire(t)
	for _, cfg := range []Config{{}, {Snap: 68, Work: WorkGzip}} {
		cfg.Kind, cfg.Interface, cfg.BufferKiB = "xdp", "s0", 32<<10
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			running, other := start(t, wire.monitor, cfg), start(t, wire.monitor, Config{Kind: "ebpf", Interface: "s0"})
			sizes := wire.send(t, mixedSizes(t, 2000, 50_000))
			if counts := running.endAndCount(t); !maps.Equal(counts.Sizes, sizes) || counts.Frames != totalFrames(sizes) ||
				counts.Dropped != 0 {
				t.Errorf("counts %+v, want %v", counts, sizes)
			}
			wire.send(t, mixedSizes(t, 10, 0))
			if counts := other.endAndCount(t); counts.Frames != 10 {
				t.Errorf("beside it %d frames were seen, and 10 came after it", counts.Frames)
			}
		})
	}
}

// TestDrops: with a small buffer and much work frames are lost. The counts of taken and lost frames add up to all.
func TestDrops(t *testing.T) {
	wire := newWire(t)
	for _, kinds := range [][]string{{"recv", "mmap"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running,
				start(t, wire.monitor, Config{Kind: kind, Interface: "s0", BufferKiB: 128, Work: WorkGzip}))
		}
		before := counter64(t, wire.bridge, "out0", "tx_packets")
		wire.send(t, mixedSizes(t, 5000, 0))
		passed := counter64(t, wire.bridge, "out0", "tx_packets") - before
		for _, program := range running {
			counts := program.endAndCount(t)
			if counts.Dropped == 0 || counts.Frames == 0 || counts.Frames+counts.Dropped != passed ||
				totalFrames(counts.Sizes) != counts.Frames {
				t.Errorf("%s: %d counted, %d lost, of %d", program.name, counts.Frames, counts.Dropped, passed)
			}
		}
	}
}
