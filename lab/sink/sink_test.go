package sink

import (
	"fmt"
	"maps"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Programs as tcpdump -ddd prints them.
const (
	udpOnly = "14,40 0 0 12,21 0 5 34525,48 0 0 20,21 8 0 17,21 0 8 44,48 0 0 54,21 5 6 17,21 0 5 2048,48 0 0 23,21 2 3 " +
		"17,21 0 2 2054,6 0 0 0,6 0 0 68,6 0 0 0"
	arpOnly = "4\n40 0 0 12\n21 0 1 2054\n6 0 0 262144\n6 0 0 0\n"
)

// TestSinksCountTheSameFrames has many sinks capture the same frames, which come to one interface and leave by another:
// each counts all of them, by size, whatever it keeps and does.
func TestSinksCountTheSameFrames(t *testing.T) {
	w := newWire(t)
	const plenty = 32 << 10 // KiB: for all frames, on a machine that is busy with others
	type side struct {
		*netnstest.Space
		name string
	}
	var running []*process
	var none []bool
	for _, at := range []side{{w.monitor, "s0"}, {w.bridge, "out0"}} {
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
			cfg.Interface = at.name
			running = append(running, launch(t, at.Space, cfg))
			none = append(none, cfg.Filter == arpOnly)
		}
	}
	for _, p := range running {
		p.ready(t)
	}
	sizes := w.send(t, mixedSizes(t, 5000, 50_000))
	for i, p := range running {
		n := p.endAndCount(t)
		want := sizes
		if none[i] {
			want = map[int]int64{}
		}
		if !maps.Equal(n.Sizes, want) || n.Frames != totalFrames(want) || n.Dropped != 0 {
			t.Errorf("%s counts %+v, want %v", p.name, n, want)
		}
	}
}

// TestXDP: an AF_XDP socket counts all frames that come, and nobody else sees them meanwhile.
func TestXDP(t *testing.T) {
	w := newWire(t)
	for _, cfg := range []Config{{}, {Snap: 68, Work: WorkGzip}} {
		cfg.Kind, cfg.Interface, cfg.BufferKiB = "xdp", "s0", 32<<10
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			p, other := start(t, w.monitor, cfg), start(t, w.monitor, Config{Kind: "ebpf", Interface: "s0"})
			sizes := w.send(t, mixedSizes(t, 2000, 50_000))
			if n := p.endAndCount(t); !maps.Equal(n.Sizes, sizes) || n.Frames != totalFrames(sizes) || n.Dropped != 0 {
				t.Errorf("counts %+v, want %v", n, sizes)
			}
			w.send(t, mixedSizes(t, 10, 0))
			if n := other.endAndCount(t); n.Frames != 10 {
				t.Errorf("beside it %d frames were seen, and 10 came after it", n.Frames)
			}
		})
	}
}

// TestDrops: with little room and much work frames are lost, and those that were counted and those that were lost are
// all.
func TestDrops(t *testing.T) {
	w := newWire(t)
	for _, kinds := range [][]string{{"recv", "mmap"}, {"xdp"}} {
		var running []*process
		for _, kind := range kinds {
			running = append(running, start(t, w.monitor, Config{Kind: kind, Interface: "s0", BufferKiB: 128, Work: WorkGzip}))
		}
		before := counter64(t, w.bridge, "out0", "tx_packets")
		w.send(t, mixedSizes(t, 5000, 0))
		passed := counter64(t, w.bridge, "out0", "tx_packets") - before
		for _, p := range running {
			n := p.endAndCount(t)
			if n.Dropped == 0 || n.Frames == 0 || n.Frames+n.Dropped != passed || totalFrames(n.Sizes) != n.Frames {
				t.Errorf("%s: %d counted, %d lost, of %d", p.name, n.Frames, n.Dropped, passed)
			}
		}
	}
}
