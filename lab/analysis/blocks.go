package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// blockMean is one load of one block: the means of its accepted windows. It is
// what sweeps, cost models and stability are computed from.
type blockMean struct {
	cell      result.Cell
	id        blockID
	lab       string  // that carried the device
	place     int     // of the load among those of its block, from 0
	hours     float64 // since the run began
	saturated bool    // a window says that the device was at its limit
	logRatio  float64 // overhead ratio
	// later is the log ratio of the windows after the first less that of the
	// first, NaN with one window.
	later      float64
	dut, clean routerMean
}

// routerMean is what one router of a block did under one load.
type routerMean struct {
	cpuPct        float64 // % of one core
	normalisedPct float64 // the same by equation 5.1
	linkMbps      float64
	deliveredMbps float64
	packets       float64 // millions a second
	logPerBit     float64 // log of CPU ns per delivered bit
}

// Laws name the metrics of which sweeps, cost models, ceilings and the stability
// of a run are computed, along result.OfferedMbps and result.Clients.
type Laws struct {
	CPU        string // % of one core
	Normalised string // the same, normalised to the offered load
	Link       string // sampled bandwidth, Mbit/s with headers
	Delivered  string // payload, Mbit/s
	// Packets are millions a second.
	Packets func(Reading) float64
}

// fillLaws computes what block means tell, and returns what they say of the run's
// stability.
func (in Input) fillLaws(s *Summary, hours []float64, opts Options) (unstable []string) {
	means := in.blockMeans(hours)
	s.Stability, unstable = stability(means, opts)
	if s.Sides != nil { // the clean router of an A/A block had what the devices have
		means = slices.DeleteFunc(slices.Clone(means), func(b blockMean) bool { return b.id.aa })
	}
	list := in.routers(means)
	s.Sweeps = in.sweeps(list, opts)
	if s.Sides != nil {
		list = list[1:] // nor are its clients and traffic those of the cells
	} else {
		s.Quotients = quotients(list[1:], opts)
	}
	s.CostModels = costModels(list, s.Mode, opts)
	s.Ceilings = in.ceilings(s.Cells, s.Mode)
	return unstable
}

// blockMeans returns every load of every block with accepted windows, in the
// order they were measured. hours has the time of each trial.
func (in Input) blockMeans(hours []float64) []blockMean {
	type key struct {
		id   blockID
		cell result.Cell
	}
	groups := map[key][]int{}
	var order []key
	places := map[blockID]int{}
	for i, t := range in.Trials {
		if !t.Accepted {
			continue
		}
		k := key{in.blockOf(t), t.Cell}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	out := make([]blockMean, 0, len(order))
	for _, k := range order {
		b := in.meanOf(hours, groups[k])
		b.id, b.place = k.id, places[k.id]
		places[k.id]++
		out = append(out, b)
	}
	return out
}

// meanOf averages the trials at the given places, which are of one cell and block.
func (in Input) meanOf(hours []float64, at []int) blockMean {
	first := in.Trials[at[0]]
	b := blockMean{cell: first.Cell, lab: first.DUTLab}
	over := func(of func(Trial) float64) float64 {
		values := make([]float64, 0, len(at))
		for _, i := range at {
			values = append(values, of(in.Trials[i]))
		}
		return mean(values)
	}
	for _, i := range at {
		b.saturated = b.saturated || slices.Contains(in.Trials[i].Flags, result.FlagSaturated)
		b.hours += hours[i] / float64(len(at))
	}
	router := func(side func(Trial) result.Values) routerMean {
		of := func(metric string) float64 {
			m := metricNamed(in.Metrics, metric)
			return over(func(t Trial) float64 { return m.Of(in.reading(t.Cell, side(t))) })
		}
		perBit := metricNamed(in.Metrics, in.Primary)
		return routerMean{
			cpuPct: of(in.Laws.CPU), normalisedPct: of(in.Laws.Normalised), linkMbps: of(in.Laws.Link), deliveredMbps: of(in.Laws.Delivered),
			packets:   over(func(t Trial) float64 { return in.Laws.Packets(in.reading(t.Cell, side(t))) }),
			logPerBit: over(func(t Trial) float64 { return finite(math.Log(positive(perBit.Of(in.reading(t.Cell, side(t)))))) }),
		}
	}
	b.dut = router(func(t Trial) result.Values { return t.Device })
	b.clean = router(func(t Trial) result.Values { return t.Clean })
	logRatio := in.ratioOf(metricNamed(in.Metrics, in.Primary))
	b.logRatio = over(logRatio)
	rest := make([]float64, 0, len(at))
	for _, i := range at[1:] {
		rest = append(rest, logRatio(in.Trials[i]))
	}
	b.later = mean(rest) - logRatio(first)
	return b
}

// enoughBandwidth is the share of the limit below which normalised CPU is
// flagged (study 1 normalises by equation 5.1 whatever the shortfall).
const enoughBandwidth = 0.9

// router is one device, or the clean router, and all it was measured in.
//
// The clean router's blocks are those of all devices and the A/A blocks: in each
// of them it is the same router with the same traffic. Beside a device at its
// limit it gets what CPU is left, and what a device asks of the links (offloads)
// shifts its cost. So a device that came to its limit in any cell of a setting
// counts with none of them: every level is then made of the same kinds of block.
type router struct {
	name    string
	compare func(a, b result.Cell) int
	means   []blockMean
	side    func(blockMean) routerMean
}

// routers lists the clean router, then the devices by name.
func (in Input) routers(means []blockMean) []router {
	clean := router{name: Clean, compare: in.Compare, side: func(b blockMean) routerMean { return b.clean }}
	list := []router{}
	full := map[result.Cell]bool{} // devices by setting
	for _, of := range grouped(means, blockMean.device, cmp.Compare[string]) {
		r := router{of[0].device(), in.Compare, of, func(b blockMean) routerMean { return b.dut }}
		if r.name == "" {
			continue
		}
		list = append(list, r)
		for _, cell := range byCell(of, in.Compare) {
			full[cell[0].family()] = full[cell[0].family()] || r.saturated(cell)
		}
	}
	for _, of := range grouped(means, setting, in.Compare) {
		kept := slices.DeleteFunc(slices.Clone(of), func(b blockMean) bool { return full[b.family()] })
		if len(kept) == 0 {
			kept = of
		}
		clean.means = append(clean.means, kept...)
	}
	return slices.Insert(list, 0, clean)
}

// family is the device and its traffic's setting, whatever the load and the
// clients; A/A blocks have one of their own.
func (b blockMean) family() result.Cell {
	cell := setting(b)
	cell = cell.With(result.DUT, b.device())
	return cell
}

// device is the name of the device under test, empty in an A/A block.
func (b blockMean) device() string {
	if b.id.aa {
		return ""
	}
	return b.cell.Text(result.DUT)
}

// values collects a figure of the router, one a block mean.
func (r router) values(means []blockMean, of func(routerMean) float64) []float64 {
	return figures(means, func(b blockMean) float64 { return of(r.side(b)) })
}

// figures collects one value a block mean.
func figures(means []blockMean, of func(blockMean) float64) []float64 {
	out := make([]float64, 0, len(means))
	for _, b := range means {
		out = append(out, of(b))
	}
	return out
}

// saturated reports whether the router was at its limit in means, which are
// the blocks of one cell: marked so and below 98 % of the load, or more than
// 10 % short of bandwidth.
func (r router) saturated(means []blockMean) bool {
	offered := means[0].cell.Number(result.OfferedMbps)
	if r.shortfall(means) {
		return true
	}
	marked := r.name != Clean && slices.ContainsFunc(means, func(b blockMean) bool { return b.saturated })
	return marked && mean(r.values(means, routerMean.delivered)) < result.FullLoad*offered
}

// shortfall reports a sampled bandwidth more than 10 % below the limit.
func (r router) shortfall(means []blockMean) bool {
	return mean(r.values(means, routerMean.link)) < enoughBandwidth*means[0].cell.Number(result.OfferedMbps)
}

func (m routerMean) cpu() float64        { return m.cpuPct }
func (m routerMean) normalised() float64 { return m.normalisedPct }
func (m routerMean) link() float64       { return m.linkMbps }
func (m routerMean) delivered() float64  { return m.deliveredMbps }

// grouped splits block means by a key and returns the groups in the key's order.
func grouped[K comparable](means []blockMean, key func(blockMean) K, compare func(a, b K) int) [][]blockMean {
	groups := map[K][]blockMean{}
	var keys []K
	for _, b := range means {
		k := key(b)
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], b)
	}
	slices.SortFunc(keys, compare)
	out := make([][]blockMean, 0, len(keys))
	for _, k := range keys {
		out = append(out, groups[k])
	}
	return out
}

// setting is the traffic's direction and profile: what differs in one of them
// is never fitted or compared together.
func setting(b blockMean) result.Cell {
	return b.cell.Without(result.DUT, result.Clients, result.OfferedMbps)
}

// byCell splits block means by clients and load, whatever the device.
func byCell(means []blockMean, compare func(a, b result.Cell) int) [][]blockMean {
	return grouped(means, func(b blockMean) result.Cell {
		cell := b.cell
		cell = cell.Without(result.DUT)
		return cell
	}, compare)
}

// elapsed is the time of each trial since the first, in hours, and how far the
// clock stepped back in between. Records stand in the order they were measured,
// so a start before the one it follows is a step of the clock: the window before
// it then counts with its own length.
func elapsed(trials []Trial) (hours []float64, back time.Duration) {
	hours = make([]float64, len(trials))
	for i := 1; i < len(trials); i++ {
		step := trials[i].Start.Sub(trials[i-1].Start)
		if step < 0 {
			back -= step
			step = time.Duration(max(0, min(trials[i-1].Device["seconds"], 3600)) * float64(time.Second))
		}
		hours[i] = hours[i-1] + step.Hours()
	}
	return hours, back
}
