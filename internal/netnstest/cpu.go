package netnstest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnOneCPU keeps the calling goroutine of a test on one CPU until the test ends. So the frames that it sends stay in
// order: a busy kernel puts them off to a queue of each CPU, and queues of two CPUs may be emptied in any order.
func OnOneCPU(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	err := unix.SchedGetaffinity(0, &all)
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err == nil {
		err = unix.SchedSetaffinity(0, &one)
	}
	if err != nil {
		t.Fatalf("keeping to one CPU: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}
