package realtime

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A CPU that something of higher priority holds is away for the watch.
func TestWatch(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	w, err := StartWatch(t.Context(), cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const held = 20 * time.Millisecond
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		var one unix.CPUSet
		one.Set(cpu)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			err = Give(0, Watcher+1)
		}
		for start := time.Now(); time.Since(start) < held; {
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// The watch tells what it has seen once it has had the CPU again.
	var longest time.Duration
	for longest < held/2 && t.Context().Err() == nil {
		longest = max(longest, w.Longest())
		runtime.Gosched()
	}
}

func TestWatchOfNoCPU(t *testing.T) {
	if _, err := StartWatch(t.Context(), 1000); err == nil {
		t.Error("a CPU that does not exist is watched")
	}
}
