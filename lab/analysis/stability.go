package analysis

import (
	"fmt"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Stability shows whether the figures depend on the time, the order or the lab of their measurement.
// Each effect is a percentage with its interval over blocks. 0 means no effect.
type Stability struct {
	// DriftPctPerHour is the trend of the overhead ratio over the run.
	DriftPctPerHour Effect `json:"drift_pct_per_hour"`
	// CleanDriftPctPerHour is the trend of the clean router's CPU per bit. It shows the drift of the
	// machine, which a duet cancels.
	CleanDriftPctPerHour Effect `json:"clean_drift_pct_per_hour"`
	// SidePct is the overhead ratio with the device in lab a over that in lab b.
	SidePct Effect `json:"side_pct"`
	// OrderPct is the overhead ratio in a load's later windows over that in its first.
	OrderPct Effect `json:"order_pct"`
	// LoadOrderPct is the overhead ratio at a block's last load over that at its first.
	LoadOrderPct Effect `json:"load_order_pct"`
	// Series are the blocks in the order they were measured, for a chart.
	Series []StabilityPoint `json:"series"`
}

// Effect is one dependence that a stable run does not have.
type Effect struct {
	Value   Estimate `json:"value"`   // per cent
	Verdict string   `json:"verdict"` // Different, Equivalent (within δ) or Inconclusive
	Note    string   `json:"note"`    // one sentence
}

// StabilityPoint is one block: its time and its difference from the means of its cells.
type StabilityPoint struct {
	Hours    Number `json:"hours"`     // since the run began
	DUT      string `json:"dut"`       // name of the device
	AA       bool   `json:"aa"`        // both routers are clean
	DUTLab   string `json:"dut_lab"`   // which lab the device was in
	RatioPct Number `json:"ratio_pct"` // overhead ratio against the cells' means
	CleanPct Number `json:"clean_pct"` // clean router's CPU per bit against the cells' means
}

// deviation is the difference of one load of one block from the mean of its cell over all
// blocks, in logarithms. ratio or perBit is NaN where the load has no overhead ratio or no CPU
// per bit. A block's deviation is the mean over its loads.
type deviation struct {
	blockMean
	ratio, perBit float64
}

// deviations subtracts the cells' means from the block means. The order stays.
func deviations(means []blockMean) []deviation {
	type key struct {
		cell result.Cell
		aa   bool
	}
	cellOf := func(b blockMean) key { return key{b.cell, b.id.aa} }
	ratios, costs := map[key]float64{}, map[key]float64{}
	for _, group := range grouped(means, cellOf, nil) {
		ratios[cellOf(group[0])] = mean(each(group, func(b blockMean) float64 { return b.logRatio }))
		costs[cellOf(group[0])] = mean(each(group, func(b blockMean) float64 { return b.clean[logPerBit] }))
	}
	out := make([]deviation, len(means))
	for i, b := range means {
		out[i] = deviation{b, b.logRatio - ratios[cellOf(b)], b.clean[logPerBit] - costs[cellOf(b)]}
	}
	return out
}

// byBlockDeviation averages over the loads of each block, in the order of measuring.
func byBlockDeviation(list []deviation) (out []deviation) {
	for _, loads := range grouped(list, func(d deviation) blockID { return d.id }, nil) {
		out = append(out, meanDeviation(loads))
	}
	return out
}

// meanDeviation returns the first deviation of a group with the group's mean figures.
func meanDeviation(group []deviation) deviation {
	d := group[0]
	d.hours = mean(each(group, func(d deviation) float64 { return d.hours }))
	d.ratio = mean(each(group, func(d deviation) float64 { return d.ratio }))
	d.perBit = mean(each(group, func(d deviation) float64 { return d.perBit }))
	d.later = mean(each(group, func(d deviation) float64 { return d.later }))
	return d
}

// stability computes the effects of time, lab and order, and returns a warning for each
// effect that is larger than half of δ.
//
// The devices of an interleaved round share one clean router, so a round counts as one value.
func stability(means []blockMean, interleaved bool, opts Options) (Stability, []string) {
	loads := deviations(means)
	blocks := byBlockDeviation(loads)
	s := Stability{Series: []StabilityPoint{}}
	span := 0.0
	for _, b := range blocks {
		span = max(span, b.hours-blocks[0].hours)
		s.Series = append(s.Series, StabilityPoint{
			Hours: Number(b.hours), DUT: b.id.cell.Text(result.DUT), AA: b.id.aa, DUTLab: b.lab,
			RatioPct: Number(100 * math.Expm1(b.ratio)), CleanPct: Number(100 * math.Expm1(b.perBit)),
		})
	}
	if interleaved {
		loads = byRound(loads)
		blocks = byBlockDeviation(loads)
	}
	// Only blocks of devices show how devices behave. A/A blocks too show how the labs and the
	// machine behave.
	ofDevices := without(blocks, func(b deviation) bool { return b.id.aa })
	later := inference.SampleOf(each(ofDevices, func(b deviation) float64 { return b.later }))
	ratio := func(b deviation) float64 { return b.ratio }
	drift, _, _ := trends(ofDevices, ratio)
	_, side, _ := trends(blocks, ratio)
	// The machine's speed is much alike in neighbouring blocks, so its residuals are correlated.
	machine := blocks
	if interleaved { // also of the rounds that are A/A
		machine = without(blocks, func(b deviation) bool { return b.id.aa })
		if len(machine) == 0 {
			machine = blocks
		}
	}
	cleanDrift, _, residuals := trends(machine, func(b deviation) float64 { return b.perBit })
	return s, judgeEffects([]effect{
		{&s.DriftPctPerHour, drift, span, "the ratio", "ratios depend on when they were measured"},
		{&s.CleanDriftPctPerHour, cleanDrift.Serial(residuals), span, "the clean router's CPU per bit",
			"CPU figures depend on when they were measured; ratios do not"},
		{&s.SidePct, side, 0, "the ratio in lab a against lab b",
			"the labs are not alike; the swap from block to block cancels it"},
		{&s.OrderPct, later, 0, "the ratio in a load's later windows against its first",
			"device or traffic had not settled in the first window: a longer warm-up helps"},
		{&s.LoadOrderPct, loadOrder(loads), 0, "the ratio at a block's last load against its first",
			"a ratio depends on what was measured before it"},
	}, opts)
}

// byRound averages over the devices of each round. A/A pairs are averaged apart.
func byRound(loads []deviation) (out []deviation) {
	type key struct {
		cell result.Cell
		aa   bool
		round
	}
	roundOf := func(d deviation) key { return key{d.cell.Without(result.DUT, result.LinkSettings), d.id.aa, d.round()} }
	for _, group := range grouped(loads, roundOf, nil) {
		d := meanDeviation(group)
		d.id.cell = d.id.cell.Without(result.DUT, result.LinkSettings)
		d.cell = d.cell.Without(result.DUT, result.LinkSettings)
		out = append(out, d)
	}
	return out
}

// trends regresses the blocks' deviations on time and on the lab of the device together, so
// that an effect of one is not taken for an effect of the other. It first subtracts the mean of
// each device, number of clients and setting. Otherwise a dear device that is measured late
// would look like a drift.
func trends(blocks []deviation, figure func(deviation) float64) (perHour, side inference.Sample, residuals []float64) {
	var y, hours, inA []float64
	var units []result.Cell
	for _, b := range blocks {
		value := figure(b)
		if math.IsNaN(value) {
			continue
		}
		a := 0.0
		if b.lab == "a" {
			a = 1
		}
		y, hours, inA, units = append(y, value), append(hours, b.hours), append(inA, a), append(units, b.id.cell)
	}
	absorbed := centre(units, y, hours, inA)
	samples, residuals := inference.Trends(y, [][]float64{hours, inA}, absorbed)
	return samples[0], samples[1], residuals
}

// loadOrder regresses the loads' deviations on their place in the block: 0 is the first load,
// 1 the last. The means of cells and of blocks are subtracted first.
func loadOrder(loads []deviation) inference.Sample {
	known := without(loads, func(d deviation) bool { return d.id.aa || math.IsNaN(d.ratio) })
	counts := map[blockID]int{}
	for _, d := range known {
		counts[d.id]++
	}
	known = without(known, func(d deviation) bool { return counts[d.id] < 2 })
	y := each(known, func(d deviation) float64 { return d.ratio })
	place := each(known, func(d deviation) float64 { return float64(d.place) / float64(counts[d.id]-1) })
	// The common mean of cells and blocks is counted twice. So there is one degree of freedom too
	// few, which makes the interval wider.
	var cells []result.Cell
	var blocks []blockID
	for _, d := range known {
		cells, blocks = append(cells, d.cell), append(blocks, d.id)
	}
	absorbed := centre(cells, y, place)
	used := centre(blocks, y, place)
	samples, _ := inference.Trends(y, [][]float64{place}, absorbed+used)
	if samples[0].N > 0 {
		samples[0].N = used
	}
	return samples[0]
}

// centre subtracts the mean of each group from the columns and returns the number of groups.
func centre[K comparable](groups []K, columns ...[]float64) int {
	counts := map[K]float64{}
	for _, g := range groups {
		counts[g]++
	}
	for _, column := range columns {
		sums := map[K]float64{}
		for i, v := range column {
			sums[groups[i]] += v
		}
		for i := range column {
			column[i] -= sums[groups[i]] / counts[groups[i]]
		}
	}
	return len(counts)
}

// effect is one effect that has no verdict yet.
type effect struct {
	into *Effect
	log  inference.Sample // per hour, when hours are given
	// hours is the length of the run. A drift is judged by its change over the whole run.
	hours       float64
	figure      string
	consequence string // of an effect that matters
}

// judgeEffects compares all effects together with δ and returns the warnings.
func judgeEffects(effects []effect, opts Options) (warnings []string) {
	changes := make([]inference.Sample, len(effects))
	for i, e := range effects {
		changes[i] = e.log
		if e.hours > 0 {
			changes[i].Mean, changes[i].SE = e.log.Mean*e.hours, e.log.SE*e.hours
		}
	}
	for i, v := range judgeAll(ratios(changes, opts), opts) {
		e := effects[i]
		*e.into = Effect{
			Value: estimateOf(e.log, opts.Confidence).changePct(), Verdict: v.Word,
			Note: e.note(v.Word, estimateOf(changes[i], opts.Confidence).changePct(), opts),
		}
		if v.Word == Different && math.Abs(changes[i].Mean) > math.Log1p(opts.Delta/2) {
			warnings = append(warnings, fmt.Sprintf("%s So %s.", e.into.Note, e.consequence))
		}
	}
	return warnings
}

// note describes the effect in one sentence, with its verdict.
func (e effect) note(verdict string, change Estimate, opts Options) string {
	if !change.HasInterval() {
		return fmt.Sprintf("Not known: %s needs more blocks, or blocks that differ in this.", e.figure)
	}
	figures := fmt.Sprintf("%s changed by %+.1f %% [%+.1f, %+.1f]", e.figure, change.Mean, change.Lo, change.Hi)
	if e.hours > 0 {
		figures += " over the " + words.Lasting(time.Duration(e.hours*float64(time.Hour))) + " of the run"
	}
	switch verdict {
	case Different:
		return "It matters: " + figures + "."
	case Equivalent:
		return fmt.Sprintf("No effect beyond %g %%: %s.", 100*opts.Delta, figures)
	}
	return "Not settled: " + figures + "."
}
