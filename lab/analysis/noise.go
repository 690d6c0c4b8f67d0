package analysis

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Noise is the CPU time that others took from a machine while it measured, as means over windows. Noise moves ratios.
// So the interval of a judged ratio is widened by the largest possible effect of the noise: it then also
// contains the ratio that a quiet machine would have shown.
type Noise struct {
	StealPct  Number `json:"steal_pct"`  // of the machine's CPU, taken by other virtual machines of its host
	OthersPct Number `json:"others_pct"` // of the routers' CPUs, taken by programs that are not the lab's
	// WidenedPct is by how many percent the interval's bound that is farther from 1 moved outwards. Of a run it is the
	// largest of its cells.
	WidenedPct Number `json:"widened_pct"`
	Windows    int    `json:"windows"` // number of accepted windows
}

// Quiet machines show up to this much noise.
const (
	quietSteal  = 1.0 // %
	quietOthers = 1.0 // %
)

// towards1 is how far the interval's bound nearer to 1 moves, as a share of the move of the other bound. Noise pulls
// ratios towards 1, so the ratio on a quiet machine is farther from 1. This effect is known from a few devices only, so
// the nearer bound moves too.
const towards1 = 0.5

// noiseOf averages the noise of accepted trials.
func noiseOf(trials []Trial) Noise {
	n := Noise{Windows: len(trials)}
	for _, t := range trials {
		steal, others := t.noise()
		n.StealPct += Number(100 * steal / float64(len(trials)))
		n.OthersPct += Number(100 * others / float64(len(trials)))
	}
	return n
}

// noise is the CPU time that others took in one trial, as shares from 0 to 1. Of both sides the larger share counts.
func (t Trial) noise() (steal, others float64) {
	for _, side := range []result.Values{t.Device, t.Clean} {
		for name, x := range side {
			switch {
			case named(name, "machine.steal"):
				steal = max(steal, x/100)
			case named(name, result.OthersShare):
				others = max(others, x)
			}
		}
	}
	return steal, others
}

// named reports whether the name of a figure is want, or ends with it behind a dot, as in "metrics.others_share".
func named(name, want string) bool { return name == want || strings.HasSuffix(name, "."+want) }

// Quiet reports whether there was no more noise than on quiet machines.
func (n Noise) Quiet() bool { return n.StealPct <= quietSteal && n.OthersPct <= quietOthers }

// String is the badge of a noisy run: "noisy: a neighbour took 9 % of the machine's CPU; intervals are up to 12 % wider
// for it".
func (n Noise) String() string {
	var causes []string
	if n.StealPct > quietSteal {
		causes = append(causes, fmt.Sprintf("a neighbour took %.0f %% of the machine's CPU", n.StealPct))
	}
	if n.OthersPct > quietOthers {
		causes = append(causes, fmt.Sprintf("other programs had %.0f %% of the routers' CPU", n.OthersPct))
	}
	if len(causes) == 0 {
		causes = []string{"others had CPU in windows of some cells"}
	}
	text := "noisy: " + words.Listed(causes)
	if n.WidenedPct.Known() && n.WidenedPct >= 0.5 {
		text += fmt.Sprintf("; bounds of intervals are up to %.0f %% farther out for it", n.WidenedPct)
	}
	return text
}

// quietest returns the trials that count, and rejected ones: of several accepted attempts at one window it keeps only
// the one with the least noise. aside is the number of accepted attempts that it leaves out.
func quietest(trials []Trial) (kept []Trial, aside int) {
	counts := Counting(trials)
	for i, t := range trials {
		if !t.Accepted || counts[i] {
			kept = append(kept, t)
		}
	}
	return kept, len(trials) - len(kept)
}

// Counting reports for each trial whether it counts: it is accepted, and of all accepted attempts at its window it has
// the least noise. Of equals the first counts.
func Counting(trials []Trial) []bool {
	type window struct {
		cell                   result.Cell
		aa                     bool
		block, window, sitting int
	}
	level := func(t Trial) float64 { steal, others := t.noise(); return steal + others }
	best, counts := map[window]int{}, make([]bool, len(trials))
	for i, t := range trials {
		if !t.Accepted {
			continue
		}
		key := window{t.Cell, t.AA, t.Block, t.Window, t.Sitting}
		if earlier, seen := best[key]; !seen || level(t) < level(trials[earlier]) {
			best[key] = i
		}
	}
	for _, i := range best {
		counts[i] = true
	}
	return counts
}

// widen moves the bounds of a cell's ratios outwards by the largest possible effect of the noise in its trials. It sets
// the cell's Noise, and returns that effect on the logarithm of the judged ratio; 0 for a quiet cell.
func (input Input) widen(c *Cell, kept []Trial) (bias float64) {
	n := noiseOf(kept)
	if input.Bias == nil || input.Laws == nil || len(kept) == 0 || n.Quiet() && input.noise.OthersPct <= quietOthers {
		return 0
	}
	// A busy device leaves other programs little CPU time, so that its own cells show less noise than there was. The run's
	// noise is the least that is assumed.
	n.WidenedPct, n.OthersPct = Absent(), max(n.OthersPct, input.noise.OthersPct)
	for _, m := range input.Metrics {
		f, known := c.Metrics[m.Name]
		if !known || m.Against != AsRatio || f.Change == nil || !f.Change.Mean.Known() {
			continue
		}
		b := input.Bias(n, math.Log(float64(f.Change.Mean)), input.cleanCores(m, f, *c))
		wide := *f.Change
		outward := outwards(b, math.Log(float64(wide.Mean)))
		wide.Lo, wide.Hi = Number(float64(wide.Lo)*math.Exp(-outward.down)), Number(float64(wide.Hi)*math.Exp(outward.up))
		f.Change = &wide
		c.Metrics[m.Name] = f
		if m.Name == input.primary.Name {
			bias, n.WidenedPct = b, Number(100*math.Expm1(b))
		}
	}
	c.Noise = &n
	return bias
}

// cleanCores returns the CPU of the clean router, in cores. A metric of one of two gateways has the CPU of that
// gateway. It returns 0 when the CPU is not known.
func (input Input) cleanCores(m Metric, f Figure, c Cell) float64 {
	pct := c.Clean(input.Laws.CPU).Mean
	if m.Unit == MetricNamed(input.Metrics, input.Laws.CPU).Unit && f.Clean != nil {
		pct = f.Clean.Mean
	}
	if !pct.Known() {
		return 0
	}
	return float64(pct) / 100
}

// noiseOfRun is the mean noise of all accepted trials. It is nil when they were quiet and no interval was widened.
func noiseOfRun(s Summary, trials []Trial) *Noise {
	n := noiseOf(accepted(trials))
	n.WidenedPct = Absent()
	for _, c := range s.Cells {
		if c.Noise != nil && c.Noise.WidenedPct.Known() && !(n.WidenedPct >= c.Noise.WidenedPct) {
			n.WidenedPct = c.Noise.WidenedPct
		}
	}
	if n.Windows == 0 || n.Quiet() && !n.WidenedPct.Known() {
		return nil
	}
	return &n
}

// pDifferent is the p value of "the device differs from the clean router". The difference must be larger than what
// noise may have caused (c.moved).
func (c contrast) pDifferent() float64 { return c.PBeyond(c.moved.towards0(c.Mean)) }

// pEquivalent is the p value of "the device is equivalent to the clean router". The equivalence must hold even if noise
// has hidden a difference.
func (c contrast) pEquivalent() float64 {
	return c.PEquivalent(c.limit - max(c.moved.down, c.moved.up))
}

// position reports whether the widened interval is inside the limits of equivalence, and whether it excludes 0.
func (c contrast) position(opts Options) (inside, outside bool) {
	lo, hi := c.interval(opts.Confidence)
	return lo >= -c.limit && hi <= c.limit, lo > 0 || hi < 0
}

// interval returns the sample's confidence interval, widened by the possible effect of noise.
func (c contrast) interval(confidence float64) (lo, hi float64) {
	lo, hi = c.Interval(confidence)
	return lo - c.moved.down, hi + c.moved.up
}

// estimate returns the mean with the widened interval.
func (c contrast) estimate(confidence float64) Estimate {
	return estimateOf(c.Sample, confidence).widened(c.moved)
}

// outwards returns how far the bounds of an interval move if noise may have moved its mean by bias. All are logarithms
// of ratios.
func outwards(bias, mean float64) span {
	if mean > 0 {
		return span{bias * towards1, bias}
	}
	return span{bias, bias * towards1}
}

// Outwards returns how far the bounds of the cell's judged ratio were moved because of noise, on its logarithm.
func (c Cell) Outwards(judged string) (down, up float64) {
	if c.Noise == nil || !c.Noise.WidenedPct.Known() {
		return 0, 0
	}
	s := outwards(math.Log1p(float64(c.Noise.WidenedPct)/100), math.Log(float64(c.Change(judged).Mean)))
	return s.down, s.up
}
