package studies

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// scenario is one of the study's three routers.
type scenario struct {
	Published string // its name in the published files
	DUT       string // the device it is here
	Heading   string // in the study's tables
	Name      string // in sentences
}

// scenarios are in the order of the study's columns. The proprietary portal
// hands every packet to user space by NFQUEUE; it cannot be had, so a gateway
// that does the same stands in for it where a run has one.
var scenarios = []scenario{
	{"clean", analysis.Clean, "Clean", "the clean router"},
	{"coovachilli", "coovachilli", "Chilli", "CoovaChilli"},
	{"proprietary-nfqueue", "gateway-nfqueue", "Company", "the company's portal (NFQUEUE)"},
}

// design is one of the study's two experiments: what it held fixed, and where
// it printed what.
type design struct {
	Along   string
	Clients int       // held fixed when it goes along the load
	Load    float64   // Mbit/s, held fixed when it goes along the clients
	File    string    // of published values
	Run     string    // the shipped experiment that repeats it
	Level   string    // heading of the level
	Compare string    // number of the table that compares the scenarios
	Steps   [3]string // tables of increments, by scenario
	Sampled [3]string // tables of sampled and normalised values, by scenario
	Figures [2]string // normalised, sampled
	Place   string    // what was held fixed, in words
}

// The study measured uploads: its clients ran iperf3 -c without -R.
const upload = "up"

var designs = [2]design{
	{
		Along: analysis.AlongLoad, Clients: 100, File: "portal-bandwidth.csv", Run: "portal-bandwidth",
		Level: "Bandwidth limit", Compare: "5.1", Steps: [3]string{"5.2", "5.3", "5.4"}, Sampled: [3]string{"A.1", "A.2", "A.3"},
		Figures: [2]string{"5.5", "A.1"}, Place: "100 clients",
	},
	{
		Along: analysis.AlongClients, Load: 1000, File: "portal-clients.csv", Run: "portal-clients",
		Level: "Clients", Compare: "5.5", Steps: [3]string{"5.6", "5.7", "5.8"}, Sampled: [3]string{"A.4", "A.5", "A.6"},
		Figures: [2]string{"5.6", "A.2"}, Place: "1 Gbit/s in total",
	},
}

// study1 is study 1 with what the runs hold of it.
type study1 struct {
	load, clients experiment
	places        []experiment // see places
	runs          int
}

// experiment is one experiment of the study beside its repetition here.
type experiment struct {
	design
	Levels []float64 // the study's, ascending
	// Routers are the study's scenarios, measured here or not, then the other
	// devices that were, by name.
	Routers []router
	CPUs    int // of the machine of the first run that has it; 0: not known
	Runs    int // given, whether they hold the experiment or not
	// of is the run that all of it is from, where it is from one; see places.
	of analysis.Summary
}

// router is the clean router or one with a device, over the levels of an experiment.
type router struct {
	DUT, Heading, Name string
	Published          []publishedRow // none: not in the study
	Run                string         // label of the run it was measured in; empty: it was not
	Profile            string
	Delta              float64   // relative difference that does not matter, of that run
	Extra              []float64 // levels measured that the study does not have
	levels             map[float64]level
	increments         []analysis.Increment
	spans              []analysis.Span
	linearity          *analysis.Linearity
}

// level is what a router cost at one level of the study.
type level struct {
	analysis.Level
	Ratio analysis.Estimate // overhead ratio; absent for the clean router
	Flags []string          // see Value.Flags
}

func newStudy1(runs []analysis.Summary) study1 {
	of := named(runs)
	return study1{load: newExperiment(designs[0], of), clients: newExperiment(designs[1], of), places: places(designs[1], of), runs: len(runs)}
}

// namedRun is a run with the name that sentences call it by.
type namedRun struct {
	analysis.Summary
	Label string
}

func named(runs []analysis.Summary) []namedRun {
	var out []namedRun
	for i, run := range runs {
		out = append(out, namedRun{run, runLabel(runs, i)})
	}
	return out
}

func newExperiment(d design, runs []namedRun) experiment {
	x := experiment{design: d, Runs: len(runs)}
	published := readPublished(d.File)
	for _, row := range published.Rows[scenarios[0].Published] {
		x.Levels = append(x.Levels, row.Level)
	}
	for _, s := range scenarios {
		x.Routers = append(x.Routers, router{DUT: s.DUT, Heading: s.Heading, Name: s.Name, Published: published.Rows[s.Published]})
	}
	for _, name := range otherDevices(d, runs) {
		x.Routers = append(x.Routers, router{DUT: name, Heading: name, Name: name})
	}
	for _, run := range runs {
		for j := range x.Routers {
			if r := &x.Routers[j]; !r.measured() {
				r.fill(x, run)
			}
		}
		if x.CPUs == 0 && x.measured() {
			x.CPUs = machineCPUs(run.Summary)
		}
	}
	return x
}

// otherDevices are the devices of the experiment's sweeps that are not in the
// study, by name.
func otherDevices(d design, runs []namedRun) []string {
	var names []string
	for _, run := range runs {
		for _, sweep := range run.Sweeps {
			if d.is(sweep) && !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.DUT == sweep.DUT }) {
				names = append(names, sweep.DUT)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// is reports whether a sweep was taken under the experiment's conditions.
func (d design) is(s analysis.Sweep) bool {
	if s.Along != d.Along || s.Direction != upload {
		return false
	}
	if d.Along == analysis.AlongLoad {
		return s.Clients == d.Clients
	}
	return float64(s.OfferedMbps) == d.Load
}

// fill takes the router's figures from the first fitting sweep of a run that has
// one of the study's levels. Profile per-packet, which the study's conditions
// resemble most, goes before bulk.
func (r *router) fill(x experiment, run namedRun) {
	sweeps := slices.DeleteFunc(slices.Clone(run.Sweeps), func(s analysis.Sweep) bool { return s.DUT != r.DUT || !x.is(s) })
	slices.SortStableFunc(sweeps, func(a, b analysis.Sweep) int { return rank(a) - rank(b) })
	for _, sweep := range sweeps {
		levels, extra := map[float64]level{}, []float64(nil)
		for _, l := range sweep.Levels {
			at := float64(l.Level)
			switch {
			case !l.CPUSampled.Mean.Known():
			case slices.Contains(x.Levels, at):
				levels[at] = newLevel(run.Summary, sweep, l)
			default:
				extra = append(extra, at)
			}
		}
		if len(levels) > 0 {
			r.Run, r.Profile, r.Delta, r.Extra, r.levels = run.Label, sweep.Profile, run.Delta, extra, levels
			r.increments, r.spans, r.linearity = sweep.Increments, sweep.Spans, sweep.Linearity
			return
		}
	}
}

func rank(s analysis.Sweep) int {
	if s.Profile == perPacket {
		return 0
	}
	return 1
}

const perPacket = "per-packet"

// fullLoad is the share of the offered load a device at its limit falls short
// of, over all windows; single windows at the limit do not make one.
const fullLoad = 0.98

// newLevel completes a level of a sweep with what its cell knows.
func newLevel(run analysis.Summary, sweep analysis.Sweep, l analysis.Level) level {
	out := level{Level: l, Ratio: nothing()}
	clients, offered := sweep.Clients, float64(sweep.OfferedMbps)
	if sweep.Along == analysis.AlongLoad {
		offered = float64(l.Level)
	} else {
		clients = int(l.Level)
	}
	for _, c := range run.Cells {
		if c.DUT != sweep.DUT || c.Clients != clients || float64(c.OfferedMbps) != offered ||
			c.Direction != sweep.Direction || c.Profile != sweep.Profile {
			continue
		}
		out.Ratio = c.OverheadRatio
		for _, flag := range c.Flags {
			if flag.Text == result.FlagSaturated && float64(c.DeliveredMbps) < fullLoad*offered ||
				flag.Text == result.FlagLossy && 2*flag.Count >= c.Pairs {
				out.Flags = append(out.Flags, flag.Text)
			}
		}
	}
	if l.Shortfall {
		out.Flags = append(out.Flags, analysis.FlagShortfall)
	}
	slices.Sort(out.Flags)
	return out
}

// nothing is the estimate of what was not measured.
func nothing() analysis.Estimate {
	return analysis.Estimate{Mean: analysis.Absent(), Lo: analysis.Absent(), Hi: analysis.Absent()}
}

// machineCPUs is how many CPUs the machine of a run has: its router's CPU in per
// cent of a core over the same in per cent of the machine.
func machineCPUs(run analysis.Summary) int {
	for _, c := range run.Cells {
		if n := float64(c.CPUCorePct.Mean / c.Intervals.CPUMachinePct.Mean); n >= 0.5 && !math.IsInf(n, 0) {
			return int(math.Round(n))
		}
	}
	return 0
}

// runLabel names a run by its experiment, and by its place among the runs where
// two are of the same experiment.
func runLabel(runs []analysis.Summary, i int) string {
	label := runs[i].Experiment
	for j, other := range runs {
		if j != i && other.Experiment == label {
			label = fmt.Sprintf("%s (run %d)", label, i+1)
			break
		}
	}
	if runs[i].Mode == result.ModeSolo {
		label += ", solo"
	}
	return label
}

// measured reports whether any router was measured at a level of the study.
func (x experiment) measured() bool { return slices.ContainsFunc(x.Routers, router.measured) }

func (r router) measured() bool { return r.Run != "" }

// published is the study's row at a level.
func (r router) published(at float64) (publishedRow, bool) {
	for _, row := range r.Published {
		if row.Level == at {
			return row, true
		}
	}
	return publishedRow{}, false
}

// atLimit reports whether the device could not carry the load: what it cost at
// this level says nothing of what the whole load would cost.
func (l level) atLimit() bool {
	return slices.Contains(l.Flags, result.FlagSaturated) || slices.Contains(l.Flags, analysis.FlagShortfall)
}

// step is the increment between two neighbouring levels of the study, if the
// run took that step.
func (r router) step(from, to float64) (analysis.Increment, bool) {
	for _, inc := range r.increments {
		if float64(inc.From) == from && float64(inc.To) == to {
			return inc, true
		}
	}
	return analysis.Increment{}, false
}

// rise is the increase between two levels of the study, whether the run has
// levels in between or not.
func (r router) rise(from, to float64) (analysis.Span, bool) {
	if inc, ok := r.step(from, to); ok {
		return analysis.Span{From: inc.From, To: inc.To, RelativePct: inc.RelativePct, RatioPct: inc.RatioPct}, true
	}
	for _, span := range r.spans {
		if float64(span.From) == from && float64(span.To) == to {
			return span, true
		}
	}
	return analysis.Span{}, false
}
