package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Quotient compares two devices of a run at one load, for each number of clients. The devices are in the order of their
// names.
type Quotient struct {
	DUT  string      `json:"dut"`        // the device that is divided
	Over string      `json:"over"`       // the device it is divided by
	Cell result.Cell `json:"dimensions"` // the fixed dimensions, without a device
	// Levels are the numbers of clients that both devices have, ascending. There are two or more.
	Levels []QuotientLevel `json:"levels"`
}

// QuotientLevel compares two devices with one number of clients. Where two or more rounds of the run have both devices,
// the rounds are compared as pairs. Otherwise the devices' blocks are compared as independent ones (see
// inference.Welch).
type QuotientLevel struct {
	Clients int      `json:"clients"` // simulated clients
	Ratio   Estimate `json:"ratio"`   // overhead ratio of DUT over the overhead ratio of Over
	// Widening is the factor between the cost of the more expensive and the less expensive device at this level, divided
	// by the same factor at the first level. Below 1 the costs have converged. It is absent at the first level.
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

// over divides the overhead ratios of one row by those of another row with the same load, direction and profile. For
// any other row the result has no levels.
func (r row) over(divisor row, opts Options) Quotient {
	fixed := func(r row) result.Cell { return r.levels[0][0].cell.Without(result.DUT, r.along) }
	q := Quotient{DUT: r.name, Over: divisor.name, Cell: fixed(r)}
	if q.Cell != fixed(divisor) {
		return q
	}
	var first twoLevels
	for _, level := range r.levels {
		for _, beside := range divisor.levels {
			if r.valueAt(level) != r.valueAt(beside) {
				continue
			}
			both := twoLevels{level, beside, r.moved(level).ratio, divisor.moved(beside).ratio}
			out := QuotientLevel{Clients: int(r.valueAt(level)), Ratio: both.ratio(opts), Widening: Unknown()}
			if len(q.Levels) == 0 {
				first = both
			} else {
				out.Widening = both.widening(first, opts)
			}
			q.Levels = append(q.Levels, out)
		}
	}
	return q
}

// twoLevels has the blocks of two devices with the same number of clients.
type twoLevels struct {
	dividend, over []blockMean
	moved, movedBy span // possible effects of noise on the overhead ratios of the two
}

// terms returns the logarithm of the quotient, multiplied by sign, as a sum of two terms.
func (l twoLevels) terms(sign float64) []term {
	return []term{{sign, l.dividend, l.moved}, {-sign, l.over, l.movedBy}}
}

// estimate returns the quotient whose logarithm is the sum of the terms.
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

// widening divides the distance of this quotient from 1 by the distance of the quotient at the first level, on the
// logarithm. The quotient's mean decides on which side of 1 it is. The mean can be on the wrong side only where the
// quotient differs from 1 by less than its noise. There the interval of the widening is too wide, never too narrow,
// because the distance from 1 is closer to its true value than the quotient is.
func (l twoLevels) widening(from twoLevels, opts Options) Estimate {
	now, first := math.Copysign(1, sumOf(l.terms(1)).Mean), math.Copysign(1, sumOf(from.terms(1)).Mean)
	return l.estimate(append(l.terms(now), from.terms(-first)...), opts)
}

// term is the mean log ratio of one device's blocks in a sum. sign is 1 or -1.
type term struct {
	sign   float64
	blocks []blockMean
	moved  span
}

// round identifies a round. Every round of a run has one block for each cell.
type round struct{ block, sitting int }

func (b blockMean) round() round { return round{b.id.block, b.id.sitting} }

// sumOf estimates a sum of mean log ratios. It adds them up round by round where at least two rounds have all terms.
// Otherwise it takes the blocks of the terms as independent.
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
	for _, b := range terms[0].blocks { // the random order of a map would change the last digit
		if held[b.round()] == len(terms) {
			paired = append(paired, sums[b.round()])
		}
	}
	if len(paired) > 1 || len(paired) == 1 && lone {
		return inference.SampleOf(paired)
	}
	sum := terms[0].sample(1)
	for _, t := range terms[1:] {
		sum = sum.Less(t.sample(-1))
	}
	return sum
}

// sample returns the mean of the term's blocks, taken as independent, multiplied by its sign and by turn.
func (t term) sample(turn float64) inference.Sample {
	return inference.SampleOf(each(t.blocks, func(b blockMean) float64 { return turn * t.sign * b.logRatio }))
}

// Between returns the quotient of two devices, in either order, in a setting. A setting is a cell without device and
// clients. ok is false where the run does not have both devices.
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

// inverted returns the quotient with dividend and divisor swapped. Widening stays the same.
func (q Quotient) inverted() Quotient {
	out := q
	out.DUT, out.Over, out.Levels = q.Over, q.DUT, nil
	for _, l := range q.Levels {
		l.Ratio = Estimate{Mean: 1 / l.Ratio.Mean, Lo: 1 / l.Ratio.Hi, Hi: 1 / l.Ratio.Lo, N: l.Ratio.N}
		out.Levels = append(out.Levels, l)
	}
	return out
}
