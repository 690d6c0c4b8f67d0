package analysis

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// CostModel is CPU = a + b·Gbit/s + c·clients + d·packets/s, fitted to the block means of one device over all its cells
// of one direction and profile. A term that the cells of the run cannot tell from the others is left out and named in
// Omitted. A device that was at its limit in all cells but one has no terms, only a capacity.
type CostModel struct {
	Cell result.Cell `json:"dimensions"` // device, Clean for the clean router, and what is the same in all cells

	Terms   []Term   `json:"terms"`   // none where the device was at its limit nearly everywhere
	Omitted []string `json:"omitted"` // a sentence each: which term, and why
	R2      Number   `json:"r2"`      // coefficient of determination
	// ResidualPct is the root mean square of the relative residuals, per cent.
	ResidualPct Number `json:"residual_pct"`
	Cells       int    `json:"cells"`  // cells in the fit
	Blocks      int    `json:"blocks"` // blocks in the fit

	MinMbps    Number `json:"min_mbps"` // smallest load delivered in the fit
	MaxMbps    Number `json:"max_mbps"` // largest load delivered in the fit
	MinClients int    `json:"min_clients"`
	MaxClients int    `json:"max_clients"`

	Capacity []Capacity `json:"capacity"` // for each number of clients
}

// Names of terms.
const (
	TermConstant = "constant"  // % of a core
	TermLoad     = "gbit_s"    // % of a core per Gbit/s of delivered payload
	TermClients  = "clients"   // % of a core per client
	TermPackets  = "packets_s" // % of a core per million packets a second
)

// Term is one coefficient with its interval over blocks.
type Term struct {
	Name  string   `json:"name"`  // gbit_s, constant, clients, packets_s
	Value Estimate `json:"value"` // % of a core, per Gbit/s, per client, per million packets a second
}

// Capacity is the payload that this machine carries with a device: the payload at which the model has the router use
// one whole core. If the device reached its limit at a smaller load, it is the largest load delivered.
type Capacity struct {
	Clients int      `json:"clients"` // simulated clients
	Mbps    Estimate `json:"mbps"`    // payload
	// MeasuredMbps is the largest load delivered in the run with this number of clients.
	MeasuredMbps Number `json:"measured_mbps"`
	// Saturated: the device fell short of the offered load in the run, so Mbps
	// is measured, not modelled.
	Saturated bool `json:"saturated"`
	// Extrapolated: Mbps lies beyond the measured range.
	Extrapolated bool   `json:"extrapolated"`
	Note         string `json:"note"` // limits of what the figure says
}

// separable is the largest condition number, with columns of unit length, at which two terms can be told apart.
// Dependences are weak below it, and strong from three times this value on (Belsley, Kuh and Welsch, 1980).
const separable = 10

// model is a cost model with the data that it was fitted to.
type model struct {
	router
	all   []blockMean // block means of one setting
	used  []blockMean // block means below the router's limit
	names []string    // names of the terms; empty without a fit
	fit   inference.Fit
	// noisy has a pair of fits for each cell whose figures noise may have changed: the coefficients with the lowest and
	// with the highest CPU that the cell would have on a quiet machine.
	noisy [][2][]float64
	// proportional is true for a model without a constant, because the loads are too close together.
	proportional bool
	omitted      []string
}

// costModels fits one model for each router, direction and profile.
func costModels(routers []router, mode string, opts Options) []CostModel {
	out := []CostModel{}
	for _, r := range routers {
		for _, means := range grouped(r.means, blockMean.setting, r.compare) {
			if len(r.byCell(means)) > 1 {
				out = append(out, r.model(means).costModel(mode, opts))
			}
		}
	}
	return out
}

// model fits the block means of one setting. It needs at least two cells in which the router was below its limit.
func (r router) model(means []blockMean) model {
	m := model{router: r, all: means, omitted: []string{}}
	atLimit := 0
	for _, cell := range r.byCell(means) {
		if r.saturated(cell) {
			atLimit++
			continue
		}
		m.used = append(m.used, without(cell, func(b blockMean) bool {
			side := r.side(b)
			return !(side[cpu] > 0) || !(side[delivered] > 0) || !(side[packets] > 0)
		})...)
	}
	cells := len(r.byCell(m.used))
	if cells < 2 {
		m.omitted = append(m.omitted, fmt.Sprintf("No model: the router was below its limit in %s of %d.", words.Counted(
			cells, "cell"), cells+atLimit))
		return m
	}
	m.choose(cells)
	var ok bool
	if m.fit, ok = inference.LeastSquares(m.rows(m.names...), m.between()); !ok {
		m.names = nil
		return m
	}
	m.fitNoisy()
	return m
}

// fitNoisy fits the model to the CPU that each cell may have on a quiet machine, one cell at a time.
func (m *model) fitNoisy() {
	for _, cell := range m.byCell(m.used) {
		effect := m.moved(cell).cpu
		if effect == (span{}) {
			continue
		}
		var betas [2][]float64
		for i, factor := range []float64{math.Exp(-effect.down), math.Exp(effect.up)} {
			rows, index := m.rows(m.names...), 0
			for _, means := range m.byCell(m.used) { // in the order of rows
				for range means {
					if means[0].cell.Without(result.DUT) == cell[0].cell.Without(result.DUT) {
						rows[index].Y *= factor
					}
					index++
				}
			}
			fit, _ := inference.LeastSquares(rows, 0) // the fit exists, because X is the same as before
			betas[i] = fit.Beta
		}
		m.noisy = append(m.noisy, betas)
	}
}

// estimate estimates a function of the coefficients. Its interval allows for the possible effect of noise.
func (m *model) estimate(figure func(beta []float64) float64) contrast {
	c := contrast{Sample: m.fit.Sample(figure)}
	if len(m.noisy) == 0 {
		return c
	}
	c.moved = farthest(len(m.noisy), func(choices []int) float64 {
		beta := slices.Clone(m.fit.Beta) // the coefficients are linear in the measured values
		for i, choice := range choices {
			for j := range beta {
				if choice > 0 {
					beta[j] += m.noisy[i][choice-1][j] - m.fit.Beta[j]
				}
			}
		}
		return figure(beta)
	})
	return c
}

// choose adds every term that the cells can tell from the terms before it. The load comes first. With a single load its
// term includes the constant.
func (m *model) choose(cells int) {
	m.names = []string{TermLoad}
	for _, name := range []string{TermConstant, TermClients, TermPackets} {
		values := each(m.used, func(b blockMean) float64 { return m.regressor(b, name) })
		reason := ""
		switch {
		case name == TermConstant && inference.Condition(m.rows(TermLoad, TermConstant)) > separable:
			reason = "the loads measured lie too close together to tell it from what follows the load, so CPU is taken to be " +
				"proportional to the load"
			m.proportional = true
		case name == TermClients && slices.Min(values) == slices.Max(values):
			reason = fmt.Sprintf(
				"all cells used have %s, whose cost is in the other terms", words.Counted(int(values[0]), "client"))
		case len(m.names) == cells:
			reason = "there are not enough cells to fit one more term"
		case inference.Condition(m.rows(append(slices.Clone(m.names), name)...)) > separable:
			reason = omission[name].inseparable
		default:
			m.names = append(m.names, name)
			continue
		}
		m.omitted = append(m.omitted, omission[name].begin+": "+reason+".")
	}
}

// omission has two texts for a term that is left out: the beginning of the sentence about it, and the reason where it
// cannot be told from the terms before it.
var omission = map[string]struct{ begin, inseparable string }{
	TermConstant: {"No constant", ""},
	TermClients:  {"No term per client", "the number of clients changes together with the load"},
	TermPackets: {"No term per packet",
		"packets are proportional to the load when all are of one size, so their cost is in the load's term"},
}

// regressor returns the value that a term's coefficient is multiplied by.
func (m *model) regressor(b blockMean, name string) float64 {
	switch name {
	case TermLoad:
		return m.side(b)[delivered] / 1000
	case TermClients:
		return b.cell.Number(result.Clients)
	case TermPackets:
		return m.side(b)[packets]
	}
	return 1
}

// rows returns the rows of a fit by relative errors: X and Y are divided by the mean CPU of their cell. A block is one
// cluster, because its start shifts the CPU of all its loads alike.
func (m *model) rows(names ...string) (rows []inference.Row) {
	clusters := map[blockID]int{}
	for _, cell := range m.byCell(m.used) {
		size := m.mean(cell, cpu)
		for _, b := range cell {
			if _, known := clusters[b.id]; !known {
				clusters[b.id] = len(clusters)
			}
			x := each(names, func(name string) float64 { return m.regressor(b, name) / size })
			rows = append(rows, inference.Row{X: x, Y: m.side(b)[cpu] / size, Cluster: clusters[b.id]})
		}
	}
	return rows
}

// between counts the terms whose values do not change within any block.
func (m *model) between() (n int) {
	blocks := grouped(m.used, func(b blockMean) blockID { return b.id }, nil)
	for _, name := range m.names {
		value := func(b blockMean) float64 {
			if name == TermLoad {
				return b.offered() // offered loads, because delivered loads differ by chance
			}
			return m.regressor(b, name)
		}
		changes := func(block []blockMean) bool {
			return slices.ContainsFunc(block, func(b blockMean) bool { return value(b) != value(block[0]) })
		}
		if !slices.ContainsFunc(blocks, changes) {
			n++
		}
	}
	return n
}

// costModel turns the fit into the record of summary.json.
func (m model) costModel(mode string, opts Options) CostModel {
	out := CostModel{
		Cell: m.all[0].setting().With(result.DUT, m.name), Terms: []Term{}, Omitted: m.omitted,
		R2: Absent(), ResidualPct: Absent(), MinMbps: Absent(), MaxMbps: Absent(), Capacity: m.capacities(mode, opts),
	}
	if len(m.names) == 0 {
		return out
	}
	for i, name := range m.names {
		out.Terms = append(
			out.Terms, Term{name, m.estimate(func(beta []float64) float64 { return beta[i] }).estimate(opts.Confidence)})
	}
	fitted := each(m.used, func(b blockMean) float64 {
		return floats.Dot(m.fit.Beta, each(m.names, func(name string) float64 { return m.regressor(b, name) }))
	})
	clients, load := each(m.used, func(b blockMean) float64 { return b.cell.Number(result.Clients) }),
		m.values(m.used, delivered)
	out.MinClients, out.MaxClients = int(slices.Min(clients)), int(slices.Max(clients))
	out.MinMbps, out.MaxMbps = Number(slices.Min(load)), Number(slices.Max(load))
	out.Cells, out.Blocks = len(m.byCell(m.used)), len(grouped(m.used, func(b blockMean) blockID { return b.id }, nil))
	out.R2 = Number(finite(stat.RSquaredFrom(fitted, m.values(m.used, cpu), nil)))
	residuals := each(m.rows(m.names...), func(r inference.Row) float64 { return r.Y - floats.Dot(m.fit.Beta, r.X) })
	out.ResidualPct = Number(100 * floats.Norm(residuals, 2) / math.Sqrt(float64(len(residuals))))
	return out
}

// wholeCore is the CPU, % of a core, at which a router counts as full.
const wholeCore = 100

// capacities returns one entry for each number of clients. It computes the load by the model where the device stayed
// below its limit.
func (m model) capacities(mode string, opts Options) []Capacity {
	out := []Capacity{}
	for _, means := range grouped(m.all, func(b blockMean) result.Cell { return b.cell.Only(result.Clients) }, m.compare) {
		c := Capacity{Clients: means[0].cell.Int(result.Clients), Mbps: Unknown(), MeasuredMbps: Absent()}
		var most []blockMean // block means of the cell with the largest delivered load
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

// limitNote says how a measured capacity was found.
func (m model) limitNote(most []blockMean, mode string) string {
	note := "Measured: the router came to its limit in this run."
	if m.name == Clean || mode != result.ModeDuet {
		return note
	}
	beside := mean(each(most, func(b blockMean) float64 { return b.clean[cpu] }))
	return note + fmt.Sprintf(
		" The clean router beside it took %.0f %% of the same core, so alone it carries more (mode solo shows how much).",
		beside)
}

// sum adds up the coefficients, each multiplied by the factor of its term.
func (m model) sum(beta []float64, factors map[string]float64) (pct float64) {
	for i, name := range m.names {
		pct += beta[i] * factors[name]
	}
	return pct
}

// carryOn solves the model for the load at which the router uses a whole core. The interval is computed on the
// logarithm of the load, with one refit for each block left out, because there the ratio of two estimates is nearly
// symmetric. There is no load if the slope cannot be distinguished from 0. In that case the exact interval of E. C.
// Fieller (J. R. Stat. Soc. B 16, 1954) is unbounded.
func (m model) carryOn(c *Capacity, means []blockMean, opts Options) {
	if len(m.names) == 0 {
		c.Note = "There is no model to tell, and the router did not come to its limit."
		return
	}
	perGbit := mean(each(means, func(b blockMean) float64 { return Over(m.side(b)[packets], m.side(b)[delivered]/1000) }))
	// standing has the factors of the CPU without load, rise those of the CPU for one more Gbit/s of payload.
	standing := map[string]float64{TermConstant: 1, TermClients: float64(c.Clients)}
	rise := map[string]float64{TermLoad: 1, TermPackets: perGbit}
	slope := m.estimate(func(beta []float64) float64 { return m.sum(beta, rise) })
	if lo, _ := slope.interval(opts.Confidence); lo <= 0 || !(slope.Mean > 0) {
		c.Note = "CPU does not rise clearly with the load, so no load follows from it."
		return
	}
	load := m.estimate(func(beta []float64) float64 {
		return math.Log(Over(wholeCore-m.sum(beta, standing), m.sum(beta, rise)))
	})
	c.Mbps = load.estimate(opts.Confidence).geometric().scaled(1000)
	if !c.Mbps.Mean.Known() {
		c.Note = "What the router costs without load comes to a whole core by itself."
		return
	}
	largest := float64(c.MeasuredMbps)
	c.Extrapolated = float64(c.Mbps.Mean) > largest
	c.Note = fmt.Sprintf("By the model, within the loads measured (up to %.0f Mbit/s).", largest)
	if c.Extrapolated {
		c.Note = fmt.Sprintf(
			"By the model carried on to %.1f times the largest load measured (%.0f Mbit/s): nothing was measured there.",
			Over(float64(c.Mbps.Mean), largest), largest)
	}
	if m.proportional {
		c.Note += " CPU is taken to be proportional to the load, as a constant part could not be told."
	}
}
