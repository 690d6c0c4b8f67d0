package machine

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Loop is what a fixed amount of CPU work, repeated, measured on one CPU. The work
// touches no memory and makes no system call, so every repetition should take equally
// long: what makes one longer takes as much time from a router.
type Loop struct {
	CPU      int       `json:"cpu"`
	Pieces   []float64 `json:"pieces"`    // wall time of each repetition, ms
	CPUShare float64   `json:"cpu_share"` // of the wall time that the loop had the CPU; other programs had the rest
}

// loopSteps are xorshift steps of one repetition: about a millisecond.
const loopSteps = 400_000

// RunLoops runs the loop for a time on all CPUs at once, as a run loads them.
func RunLoops(cpus []int, length time.Duration) []Loop {
	list := make([]Loop, len(cpus))
	var wg sync.WaitGroup
	for i, cpu := range cpus {
		wg.Go(func() { onCPUs([]int{cpu}, func() { list[i] = spin(cpu, length) }) })
	}
	wg.Wait()
	return list
}

// spin repeats the work until length has passed.
func spin(cpu int, length time.Duration) Loop {
	l := Loop{CPU: cpu}
	state := uint64(88172645463325252)
	start, began := time.Now(), meter.ThreadNs()
	for time.Since(start) < length {
		piece := time.Now()
		for range loopSteps {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
		}
		l.Pieces = append(l.Pieces, float64(time.Since(piece))/float64(time.Millisecond))
	}
	l.CPUShare = float64(meter.ThreadNs()-began) / float64(time.Since(start))
	runtime.KeepAlive(state)
	return l
}

// onCPUs runs f on a thread that is bound to CPUs, as far as that is possible.
func onCPUs(cpus []int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the bound thread ends with the goroutine
		var set unix.CPUSet
		for _, c := range cpus {
			set.Set(c)
		}
		_ = unix.SchedSetaffinity(0, &set)
		f()
	}()
	<-done
}
