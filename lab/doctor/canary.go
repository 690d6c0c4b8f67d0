package doctor

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// The canary is a fixed amount of pure CPU work, repeated: it touches no memory
// and calls nobody, so every repetition should take equally long. What makes
// one longer takes time from a router just so.
const (
	canaryTime  = 2 * time.Second
	canarySteps = 400_000 // xorshift steps a piece: about a millisecond
)

// canary is what the loop saw on one CPU.
type canary struct {
	cpu      int
	pieces   []float64 // wall time of each, ms
	cpuShare float64   // of the wall time that this loop had the CPU; the rest went to other programs
}

// runCanaries runs the loop on all CPUs at the same time, as a run loads them.
func runCanaries(cpus []int, length time.Duration) []canary {
	list := make([]canary, len(cpus))
	var wg sync.WaitGroup
	for i, cpu := range cpus {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the bound thread ends with the goroutine
			bind([]int{cpu})
			list[i] = spin(cpu, length)
		})
	}
	wg.Wait()
	return list
}

// spin repeats the work until length has passed.
func spin(cpu int, length time.Duration) canary {
	c := canary{cpu: cpu}
	state := uint64(88172645463325252)
	start, began := time.Now(), threadTime()
	for time.Since(start) < length {
		piece := time.Now()
		for range canarySteps {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
		}
		c.pieces = append(c.pieces, float64(time.Since(piece))/float64(time.Millisecond))
	}
	c.cpuShare = float64(threadTime()-began) / float64(time.Since(start))
	runtime.KeepAlive(state)
	return c
}

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // this clock always exists on Linux
	}
	return time.Duration(ts.Nano())
}

// What a machine shows that is left alone. Virtual CPUs without neighbours'
// load had tails of 1.2 to 1.4 and lost 2 to 4 %; the A/A pair beside it then
// resolved 1 to 3 %.
const (
	goodTail  = 1.50 // 99th percentile of the pieces over their median
	goodLost  = 0.05 // of the wall time lost against the median piece
	goodShare = 0.97 // of the wall time with the CPU: less is other programs' doing
)

// line judges what the loop saw.
func (c canary) line() Line {
	l := Line{
		Key: fmt.Sprintf("noise.canary.cpu%d", c.cpu), State: OK, What: fmt.Sprintf("fixed loop, CPU %d", c.cpu),
		Means: fmt.Sprintf("good is p99 up to %.1f × the median and less than %.0f %% lost", goodTail, 100*goodLost),
	}
	if len(c.pieces) == 0 {
		l.State, l.Found, l.Means, l.Do = Warn, "the loop did not run once", "", "end what keeps the machine busy"
		return l
	}
	sorted := slices.Sorted(slices.Values(c.pieces))
	median, worst := at(sorted, 0.5), sorted[len(sorted)-1]
	var all float64
	for _, p := range sorted {
		all += p
	}
	// Pieces faster than the median are no loss that could be made up for.
	lost := math.Max(0, 1-median*float64(len(sorted))/all)
	tail := at(sorted, 0.99) / median
	l.Found = fmt.Sprintf("median %.3f ms, p99 %.2f × that, worst %.1f ×; %.1f %% of the time lost, %.1f %% to other programs",
		median, tail, worst/median, 100*lost, 100*math.Max(0, 1-c.cpuShare))
	l.Figures = map[string]analysis.Number{
		"median_ms": analysis.Number(median), "p99_ratio": analysis.Number(tail), "worst_ratio": analysis.Number(worst / median),
		"lost_pct": analysis.Number(100 * lost), "others_pct": analysis.Number(100 * math.Max(0, 1-c.cpuShare)),
	}
	if tail <= goodTail && lost <= goodLost {
		return l
	}
	l.State, l.Means = Warn, ""
	l.Do = "steal or a shifting clock: use a quieter host or dedicated CPUs; until then trust ratios, not single values"
	if c.cpuShare < goodShare {
		l.Do = "end the busiest programs (see other programs); until then trust ratios, not single values"
	}
	return l
}

// at is the value at a share of a sorted list, the lower one between two.
func at(sorted []float64, share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] }
