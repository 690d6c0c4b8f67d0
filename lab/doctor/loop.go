package doctor

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// loopTime is how long the fixed loop runs.
const loopTime = 2 * time.Second

// What a machine shows that is left alone. Virtual CPUs without neighbours'
// load had tails of 1.2 to 1.4 and lost 2 to 4 %; the A/A pair beside it then
// resolved 1 to 3 %.
const (
	goodTail  = 1.50 // 99th percentile of the pieces over their median
	goodLost  = 0.05 // of the wall time lost against the median piece
	goodShare = 0.97 // of the wall time with the CPU: less is other programs' doing
)

// loopLine judges what the loop saw.
func loopLine(c machine.Loop) Line {
	l := Line{
		Key: fmt.Sprintf("noise.canary.cpu%d", c.CPU), State: OK, What: fmt.Sprintf("fixed loop, CPU %d", c.CPU),
		Means: fmt.Sprintf("good is p99 up to %.1f × the median and less than %.0f %% lost", goodTail, 100*goodLost),
	}
	if len(c.Pieces) == 0 {
		l.State, l.Found, l.Means, l.Do = Warn, "the loop did not run once", "", "end what keeps the machine busy"
		return l
	}
	sorted := slices.Sorted(slices.Values(c.Pieces))
	median, worst := at(sorted, 0.5), sorted[len(sorted)-1]
	var all float64
	for _, p := range sorted {
		all += p
	}
	// Pieces faster than the median are no loss that could be made up for.
	lost := math.Max(0, 1-median*float64(len(sorted))/all)
	tail := at(sorted, 0.99) / median
	l.Found = fmt.Sprintf("median %.3f ms, p99 %.2f × that, worst %.1f ×; %.1f %% of the time lost, %.1f %% to other programs",
		median, tail, worst/median, 100*lost, 100*math.Max(0, 1-c.CPUShare))
	l.Figures = map[string]analysis.Number{
		"median_ms": analysis.Number(median), "p99_ratio": analysis.Number(tail), "worst_ratio": analysis.Number(worst / median),
		"lost_pct": analysis.Number(100 * lost), "others_pct": analysis.Number(100 * math.Max(0, 1-c.CPUShare)),
	}
	if tail <= goodTail && lost <= goodLost {
		return l
	}
	l.State, l.Means = Warn, ""
	l.Do = "steal or a shifting clock: use a quieter host or dedicated CPUs; until then trust ratios, not single values"
	if c.CPUShare < goodShare {
		l.Do = "end the busiest programs (see other programs); until then trust ratios, not single values"
	}
	return l
}

// at is the value at a share of a sorted list, the lower one between two.
func at(sorted []float64, share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] }
