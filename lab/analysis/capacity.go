package analysis

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// wholeCore is the CPU, % of a core, at which a router is taken to be full.
const wholeCore = 100

// capacities has one entry a number of clients, by the model where the device
// stayed below its limit.
func (m model) capacities(mode string, opts Options) []Capacity {
	out := []Capacity{}
	for _, means := range grouped(m.all, func(b blockMean) result.Cell { return b.cell.Only(result.Clients) }, m.compare) {
		c := Capacity{Clients: means[0].cell.Int(result.Clients), Mbps: Unknown(), MeasuredMbps: Absent()}
		var most []blockMean // of the cell with the largest delivered load
		for _, cell := range m.byCell(means) {
			c.Saturated = c.Saturated || m.saturated(cell)
			load := Number(m.mean(cell, delivered))
			if !c.MeasuredMbps.Known() || load >= c.MeasuredMbps {
				c.MeasuredMbps, most = load, cell
			}
		}
		if c.Saturated {
			c.Mbps = Amounts.Estimate(m.values(most, delivered), opts.Confidence)
			c.Note = m.limitNote(most, mode)
		} else {
			m.carryOn(&c, means, opts)
		}
		out = append(out, c)
	}
	return out
}

// limitNote says how a measured capacity came about.
func (m model) limitNote(most []blockMean, mode string) string {
	note := "Measured: the router came to its limit in this run."
	if m.name == Clean || mode != result.ModeDuet {
		return note
	}
	beside := mean(each(most, func(b blockMean) float64 { return b.clean[cpu] }))
	return note + fmt.Sprintf(" The clean router beside it took %.0f %% of the same core, so alone it carries more (mode solo shows how much).", beside)
}

// sum adds up coefficients, each times the factor of its term.
func (m model) sum(beta []float64, factors map[string]float64) (pct float64) {
	for i, name := range m.names {
		pct += beta[i] * factors[name]
	}
	return pct
}

// carryOn solves the model for the load at which it comes to a whole core. The
// interval is taken on the logarithm of the load, over refits without one block
// each: there the ratio of two estimates is close to symmetric. A slope that
// cannot be told from 0 gives no load (the case in which the exact interval of
// E. C. Fieller, J. R. Stat. Soc. B 16, 1954, is unbounded).
func (m model) carryOn(c *Capacity, means []blockMean, opts Options) {
	if len(m.names) == 0 {
		c.Note = "There is no model to tell, and the router did not come to its limit."
		return
	}
	perGbit := mean(each(means, func(b blockMean) float64 { return Over(m.side(b)[packets], m.side(b)[delivered]/1000) }))
	// What the router costs without load, and what one more Gbit/s of payload costs.
	standing := map[string]float64{TermConstant: 1, TermClients: float64(c.Clients)}
	rise := map[string]float64{TermLoad: 1, TermPackets: perGbit}
	slope := m.fit.Sample(func(beta []float64) float64 { return m.sum(beta, rise) })
	if lo, _ := slope.Interval(opts.Confidence); lo <= 0 || !(slope.Mean > 0) {
		c.Note = "CPU does not rise clearly with the load, so no load follows from it."
		return
	}
	load := m.fit.Sample(func(beta []float64) float64 {
		return math.Log(Over(wholeCore-m.sum(beta, standing), m.sum(beta, rise)))
	})
	c.Mbps = estimateOf(load, opts.Confidence).geometric().scaled(1000)
	if !c.Mbps.Mean.Known() {
		c.Note = "What the router costs without load comes to a whole core by itself."
		return
	}
	largest := float64(c.MeasuredMbps)
	c.Extrapolated = float64(c.Mbps.Mean) > largest
	c.Note = fmt.Sprintf("By the model, within the loads measured (up to %.0f Mbit/s).", largest)
	if c.Extrapolated {
		c.Note = fmt.Sprintf("By the model carried on to %.1f times the largest load measured (%.0f Mbit/s): nothing was measured there.",
			Over(float64(c.Mbps.Mean), largest), largest)
	}
	if m.proportional {
		c.Note += " CPU is taken to be proportional to the load, as a constant part could not be told."
	}
}
