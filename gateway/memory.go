package gateway

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/gateweigh/gateweigh/gateway/ticker"
)

const (
	// heapEvery is how often the heap is looked at.
	heapEvery = 30 * time.Second
	// heapSpare is what may be unused, bytes, and also a quarter of what is in use.
	heapSpare = 8 << 20
)

// heapStats reads the size of Go's heap, to decide when to give memory back to the kernel.
type heapStats struct {
	samples   [4]metrics.Sample
	allocated uint64 // since the start, bytes
}

func newHeap() *heapStats {
	h := &heapStats{}
	for i, name := range []string{"/gc/heap/allocs:bytes", "/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/free:bytes"} {
		h.samples[i].Name = name
	}
	return h
}

// hasSpare reports whether there is much in the heap that nothing uses, although little has been allocated since the
// last look.
func (h *heapStats) hasSpare() bool {
	metrics.Read(h.samples[:])
	var current [4]uint64
	for i := range h.samples {
		current[i] = h.samples[i].Value.Uint64()
	}
	allocated, live, held := current[0]-h.allocated, current[1], current[2]+current[3]
	h.allocated = current[0]
	return held > live+max(live/4, heapSpare) && allocated < 2*max(live, heapSpare)
}

// giveBack gives memory back to the kernel that clients' logins left. Go keeps as much again as is in use, and a quiet
// network takes hours to allocate that. While much is allocated, nothing is given back.
func giveBack(ctx context.Context) error {
	h, tick := newHeap(), ticker.Every(heapEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if h.hasSpare() {
			debug.FreeOSMemory()
		}
	}
}
