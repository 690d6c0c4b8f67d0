package machine

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Loop is the times of a fixed piece of work that one CPU repeated. The work touches no memory
// and makes no system call, so each piece should take the same time. A piece that takes longer
// was disturbed, and a router on this CPU would have been disturbed as long.
type Loop struct {
	CPU      int       `json:"cpu"`
	Pieces   []float64 `json:"pieces"`    // wall time of each piece, ms
	CPUShare float64   `json:"cpu_share"` // share of the wall time in which the loop had the CPU; others had the rest
}

// loopSteps is the number of xorshift steps in a piece, which takes about a millisecond.
const loopSteps = 400_000

// RunLoops runs a loop on each of the CPUs at the same time, for the given time. So the CPUs disturb each other as
// they do in a run.
func RunLoops(cpus []int, length time.Duration) []Loop {
	list := make([]Loop, len(cpus))
	var wg sync.WaitGroup
	for i, cpu := range cpus {
		wg.Go(func() { onCPUs([]int{cpu}, func() { list[i] = spin(cpu, length) }) })
	}
	wg.Wait()
	return list
}

// spin repeats the work on the calling thread's CPU until length has passed.
func spin(cpu int, length time.Duration) Loop {
	l := Loop{CPU: cpu}
	state := uint64(88172645463325252)
	start, startNs := time.Now(), meter.ThreadNs()
	for time.Since(start) < length {
		piece := time.Now()
		for range loopSteps {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
		}
		l.Pieces = append(l.Pieces, float64(time.Since(piece))/float64(time.Millisecond))
	}
	l.CPUShare = float64(meter.ThreadNs()-startNs) / float64(time.Since(start))
	runtime.KeepAlive(state)
	return l
}

// onCPUs runs f on a thread that is bound to CPUs. If the kernel refuses to bind it, f runs all the same.
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
