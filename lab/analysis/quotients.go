package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Quotient compares two devices of a run, along the number of clients at one load. The
// devices are in the order of their names.
type Quotient struct {
	DUT  string      `json:"dut"`        // the device that is divided
	Over string      `json:"over"`       // the device it is divided by
	Cell result.Cell `json:"dimensions"` // the fixed dimensions, without a device
	// Levels that both devices have, ascending, two or more.
	Levels []QuotientLevel `json:"levels"`
}

// QuotientLevel is a Quotient with one number of clients. Rounds of the run that
// hold both devices are paired; where fewer than two do, the devices' blocks are
// compared as independent ones (see inference.Welch).
type QuotientLevel struct {
	Clients int      `json:"clients"` // simulated clients
	Ratio   Estimate `json:"ratio"`   // overhead ratio of DUT over the overhead ratio of Over
	// Widening is the factor between the more and the less expensive of the two here over
	// that factor at the first level: below 1 their costs have converged.
	// Absent at the first level.
	Widening Estimate `json:"widening"`
}

// quotients compares every two devices of a run.
func quotients(devices []router, opts Options) (out []Quotient) {
	for i, r := range devices {
		for _, other := range devices[i+1:] {
			for _, a := range rows(r, result.Clients) {
				for _, b := range rows(other, result.Clients) {
					if q := a.over(b, opts); len(q.Levels) > 1 {
						out = append(out, q)
					}
				}
			}
		}
	}
	return out
}

// over divides one row by another of the same load, direction and profile; for any other
// row the result has no levels.
func (r row) over(by row, opts Options) Quotient {
	fixed := func(r row) result.Cell { return r.levels[0][0].cell.Without(result.DUT, r.along) }
	q := Quotient{DUT: r.name, Over: by.name, Cell: fixed(r)}
	if q.Cell != fixed(by) {
		return q
	}
	var first twoLevels
	for _, level := range r.levels {
		for _, beside := range by.levels {
			if r.at(level) != r.at(beside) {
				continue
			}
			here := twoLevels{level, beside, r.moved(level).ratio, by.moved(beside).ratio}
			out := QuotientLevel{Clients: int(r.at(level)), Ratio: here.ratio(opts), Widening: Unknown()}
			if len(q.Levels) == 0 {
				first = here
			} else {
				out.Widening = here.widening(first, opts)
			}
			q.Levels = append(q.Levels, out)
		}
	}
	return q
}

// twoLevels are the blocks of two devices with the same number of clients.
type twoLevels struct {
	of, over       []blockMean
	moved, movedBy span // of their overhead ratios, by noise
}

// terms are the log of their quotient, with a sign.
func (l twoLevels) terms(sign float64) []term {
	return []term{{sign, l.of, l.moved}, {-sign, l.over, l.movedBy}}
}

// estimate is the quotient whose logarithm is a sum.
func (l twoLevels) estimate(sum []term, opts Options) Estimate {
	c := contrast{Sample: sumOf(sum)}
	for _, t := range sum {
		c.moved = c.moved.plus(t.moved.times(t.sign))
	}
	return c.estimate(opts.Confidence).geometric()
}

func (l twoLevels) ratio(opts Options) Estimate {
	return l.estimate(l.terms(1), opts)
}

// widening compares the distances of two quotients from 1, on the logarithm. Which side of
// 1 a quotient lies on is decided by its mean. The mean is on the wrong side only where the
// quotient is within its noise of 1; its distance from 1 is then closer to the true distance
// than the quotient to the true quotient, so the interval is too wide but never too narrow.
func (l twoLevels) widening(from twoLevels, opts Options) Estimate {
	now, then := math.Copysign(1, sumOf(l.terms(1)).Mean), math.Copysign(1, sumOf(from.terms(1)).Mean)
	return l.estimate(append(l.terms(now), from.terms(-then)...), opts)
}

// term is one device's blocks in a sum of log ratios, with a sign.
type term struct {
	sign   float64
	blocks []blockMean
	moved  span
}

// round is when a block was measured: every round of a run has one block a cell.
type round struct{ block, sitting int }

func (b blockMean) round() round { return round{b.id.block, b.id.sitting} }

// sumOf is the sample of a sum of mean log ratios: round by round where at least
// two rounds hold all of them, else of blocks that are independent.
func sumOf(terms []term) inference.Sample {
	sums, held := map[round]float64{}, map[round]int{}
	lone := true
	for _, t := range terms {
		lone = lone && len(t.blocks) == 1
		for _, b := range t.blocks {
			if !math.IsNaN(b.logRatio) {
				sums[b.round()] += t.sign * b.logRatio
				held[b.round()]++
			}
		}
	}
	var paired []float64
	for _, b := range terms[0].blocks { // a map's random order would change the last digit
		if held[b.round()] == len(terms) {
			paired = append(paired, sums[b.round()])
		}
	}
	if len(paired) > 1 || len(paired) == 1 && lone {
		return inference.Of(paired)
	}
	sum := terms[0].sample(1)
	for _, t := range terms[1:] {
		sum = sum.Less(t.sample(-1))
	}
	return sum
}

// sample is the sample of the blocks taken as independent, times the sign.
func (t term) sample(turn float64) inference.Sample {
	return inference.Of(each(t.blocks, func(b blockMean) float64 { return turn * t.sign * b.logRatio }))
}

// Between is the quotient of two devices, in either order, in a setting: a cell without
// device and clients. ok is false where the run does not have both.
func (s Summary) Between(dut, over string, setting result.Cell) (q Quotient, ok bool) {
	for _, q := range s.Quotients {
		if q.Cell != setting {
			continue
		}
		switch {
		case q.DUT == dut && q.Over == over:
			return q, true
		case q.DUT == over && q.Over == dut:
			return q.inverted(), true
		}
	}
	return Quotient{}, false
}

// inverted swaps dividend and divisor; Widening stays the same.
func (q Quotient) inverted() Quotient {
	out := q
	out.DUT, out.Over, out.Levels = q.Over, q.DUT, nil
	for _, l := range q.Levels {
		l.Ratio = Estimate{Mean: 1 / l.Ratio.Mean, Lo: 1 / l.Ratio.Hi, Hi: 1 / l.Ratio.Lo, N: l.Ratio.N}
		out.Levels = append(out.Levels, l)
	}
	return out
}
