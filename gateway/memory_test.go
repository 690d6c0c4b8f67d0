package gateway

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestSpareHeap: memory that a burst of logins left is given back once little is allocated, and not before.
func TestSpareHeap(t *testing.T) {
	debug.FreeOSMemory() // what earlier tests left
	h := newHeap()
	h.hasSpare()
	kept := make([][]byte, 0, 2<<10)
	for range cap(kept) {
		kept = append(kept, make([]byte, 64<<10))
	}
	runtime.GC()
	kept = kept[:1]
	clear(kept[1:cap(kept)])
	if h.hasSpare() {
		t.Error("memory is given back amid a burst")
	}
	runtime.GC()
	if !h.hasSpare() {
		t.Error("what the burst leaves is kept")
	}
	runtime.KeepAlive(kept)
}
