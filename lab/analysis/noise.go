package analysis

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Noise is what others had of a machine while it measured, as means over windows. What it may have done to a judged
// change is part of the change's interval, so that the interval contains what a quiet machine would have shown.
type Noise struct {
	StealPct  Number `json:"steal_pct"`  // of the machine's CPU, by other guests of its hypervisor
	OthersPct Number `json:"others_pct"` // of the routers' CPUs, by programs that are not of the lab
	// by how much the bound of the judged interval that is farther from 1 moved outwards; of a run the most of its cells
	WidenedPct Number `json:"widened_pct"`
	Windows    int    `json:"windows"` // accepted ones
}

// Less is noise that quiet machines show as well.
const (
	quietSteal  = 1.0 // %
	quietOthers = 1.0 // %
)

// Noise pulls ratios towards 1, so what a quiet machine would show lies farther from 1. How far is known from a few
// devices only: towards 1 an interval grows by half as much.
const towards1 = 0.5

// noiseOf is the noise of accepted trials.
func noiseOf(trials []Trial) Noise {
	n := Noise{Windows: len(trials)}
	for _, t := range trials {
		steal, others := t.noise()
		n.StealPct += Number(100 * steal / float64(len(trials)))
		n.OthersPct += Number(100 * others / float64(len(trials)))
	}
	return n
}

// noise is what others had in one trial, shares of CPU from 0 to 1.
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

// named reports whether a figure's name is that, alone or within another record.
func named(name, what string) bool { return name == what || strings.HasSuffix(name, "."+what) }

// Quiet reports whether there was no noise to speak of.
func (n Noise) Quiet() bool { return n.StealPct <= quietSteal && n.OthersPct <= quietOthers }

// String is the badge of a noisy run: "noisy: a neighbour took 9 % of the machine's CPU; intervals are up to 12 % wider
// for it".
func (n Noise) String() string {
	var who []string
	if n.StealPct > quietSteal {
		who = append(who, fmt.Sprintf("a neighbour took %.0f %% of the machine's CPU", n.StealPct))
	}
	if n.OthersPct > quietOthers {
		who = append(who, fmt.Sprintf("other programs had %.0f %% of the routers' CPU", n.OthersPct))
	}
	if len(who) == 0 {
		who = []string{"others had CPU in windows of some cells"}
	}
	text := "noisy: " + words.Listed(who)
	if n.WidenedPct.Known() && n.WidenedPct >= 0.5 {
		text += fmt.Sprintf("; bounds of intervals are up to %.0f %% farther out for it", n.WidenedPct)
	}
	return text
}

// quietest keeps of several accepted attempts at one window the one during which others had least; the first of equals.
// It also returns how many accepted attempts are left out.
func quietest(trials []Trial) (kept []Trial, aside int) {
	counts := Counting(trials)
	for i, t := range trials {
		if !t.Accepted || counts[i] {
			kept = append(kept, t)
		}
	}
	return kept, len(trials) - len(kept)
}

// Counting says of each trial whether it is the one that counts of its window's accepted attempts: the quietest.
// Rejected ones do not.
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

// widen moves the bounds of a cell's changes outwards by what the noise of its trials may have done, and returns by how
// much it may have moved the judged one, on the scale of its mean.
func (input Input) widen(c *Cell, kept []Trial) (bias float64) {
	n := noiseOf(kept)
	if input.Bias == nil || input.Laws == nil || len(kept) == 0 || n.Quiet() && input.noise.OthersPct <= quietOthers {
		return 0
	}
	// Other programs that a busy device left little to were there all the same, and held its router up.
	n.WidenedPct, n.OthersPct = Absent(), max(n.OthersPct, input.noise.OthersPct)
	for _, m := range input.Metrics {
		f, known := c.Metrics[m.Name]
		if !known || m.Against != AsRatio || f.Change == nil || !f.Change.Mean.Known() {
			continue
		}
		b := input.Bias(n, math.Log(float64(f.Change.Mean)), input.coresOf(m, f, *c))
		wide := *f.Change
		by := outwards(b, math.Log(float64(wide.Mean)))
		wide.Lo, wide.Hi = Number(float64(wide.Lo)*math.Exp(-by.down)), Number(float64(wide.Hi)*math.Exp(by.up))
		f.Change = &wide
		c.Metrics[m.Name] = f
		if m.Name == input.primary.Name {
			bias, n.WidenedPct = b, Number(100*math.Expm1(b))
		}
	}
	c.Noise = &n
	return bias
}

// coresOf is what the clean router used of what a metric is about: of the CPU of one of two gateways that gateway's. 0:
// not known.
func (input Input) coresOf(m Metric, f Figure, c Cell) float64 {
	pct := c.Clean(input.Laws.CPU).Mean
	if m.Unit == MetricNamed(input.Metrics, input.Laws.CPU).Unit && f.Clean != nil {
		pct = f.Clean.Mean
	}
	if !pct.Known() {
		return 0
	}
	return float64(pct) / 100
}

// noiseOfRun is the noise of all accepted trials, nil where they were quiet and no cell's interval is wider for it.
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

// Tests of a contrast whose mean noise may have moved: a difference must show beyond that, and equivalence in spite of
// it.

func (c contrast) pDifferent() float64 { return c.PBeyond(c.moved.towards0(c.Mean)) }
func (c contrast) pEquivalent() float64 {
	return c.PEquivalent(c.limit - max(c.moved.down, c.moved.up))
}

// lies is inference.Sample.Lies of the interval that is shown.
func (c contrast) lies(opts Options) (inside, outside bool) {
	lo, hi := c.interval(opts.Confidence)
	return lo >= -c.limit && hi <= c.limit, lo > 0 || hi < 0
}

// interval is inference.Sample.Interval with what noise may have done.
func (c contrast) interval(confidence float64) (lo, hi float64) {
	lo, hi = c.Interval(confidence)
	return lo - c.moved.down, hi + c.moved.up
}

// estimate is the mean with that interval.
func (c contrast) estimate(confidence float64) Estimate {
	return estimateOf(c.Sample, confidence).widened(c.moved)
}

// outwards is by how much the bounds of an interval move where noise may have moved its mean by bias.
func outwards(bias, mean float64) span {
	if mean > 0 {
		return span{bias * towards1, bias}
	}
	return span{bias, bias * towards1}
}

// Outwards is by how much noise moved the bounds of the cell's judged ratio, on its logarithm.
func (c Cell) Outwards(judged string) (down, up float64) {
	if c.Noise == nil || !c.Noise.WidenedPct.Known() {
		return 0, 0
	}
	s := outwards(math.Log1p(float64(c.Noise.WidenedPct)/100), math.Log(float64(c.Change(judged).Mean)))
	return s.down, s.up
}
