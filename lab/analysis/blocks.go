package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Laws names the metrics from which sweeps, cost models, ceilings and the stability of a run are computed. The
// computations use result.OfferedMbps and result.Clients as well.
type Laws struct {
	CPU        string // % of one core
	Normalised string // CPU normalised to the offered load
	Link       string // sampled bandwidth, Mbit/s with headers
	Delivered  string // payload, Mbit/s
	// Packets a second, in millions.
	Packets func(MetricInput) float64
	// TrendMetrics are the metrics that sweeps have a Trend of.
	TrendMetrics []string
	// TrendMaxMbps is the highest offered load in a trend, Mbit/s. It is ignored where too few loads are below it.
	TrendMaxMbps float64
}

// law is the index of one figure of a router under one load.
type law int

const (
	cpu        law = iota // % of one core
	normalised            // CPU normalised to the offered load (study 1, equation 5.1)
	link                  // Mbit/s
	delivered             // Mbit/s
	packets               // million packets a second
	logPerBit             // log of the primary metric: CPU ns per delivered bit
	laws
)

// routerMean has the mean figures of one router of a block under one load, by law.
type routerMean [laws]float64

// blockMean is one load of one block: the means of its accepted windows. Sweeps,
// cost models and stability are computed from these.
type blockMean struct {
	cell      result.Cell
	id        blockID
	lab       string  // "a" or "b": the lab with the device
	place     int     // position of the load in its block, from 0
	hours     float64 // since the run began
	saturated bool    // a window has the flag that the device was at its limit
	logRatio  float64 // overhead ratio
	// later is the mean log ratio of the windows after the first, less the first window's log ratio. It is NaN with
	// one window.
	later      float64
	dut, clean routerMean
	trends     trendMeans
	noise      Noise // mean noise of its windows
}

// fillLaws computes sweeps, quotients, cost models and stability from block means, and
// ceilings, and returns warnings about the run's stability.
func (input Input) fillLaws(s *Summary, hours []float64, opts Options) (unstable []string) {
	means := input.blockMeans(hours)
	s.Stability, unstable = stability(means, input.interleaved(), opts)
	if s.Sides != nil { // the clean router of an A/A block had the settings of the devices
		means = without(means, func(b blockMean) bool { return b.id.aa })
	}
	list := input.routers(means)
	s.Sweeps = input.sweeps(list, opts)
	if s.Sides != nil {
		list = list[1:] // the clean router's clients and traffic differ from those of the cells too
	} else {
		s.Quotients = quotients(list[1:], opts)
	}
	s.CostModels = costModels(list, s.Mode, opts)
	for i := range s.CostModels {
		if s.Mark != "" { // an emulated CPU does not say what a box carries
			s.CostModels[i].Capacity = []Capacity{}
		}
	}
	s.Ceilings = input.ceilings(s.Cells, s.Mode)
	return unstable
}

// blockMeans returns every load of every block with accepted windows, in the order of their measurement. hours has the
// time of each trial.
func (input Input) blockMeans(hours []float64) []blockMean {
	type window struct {
		Trial
		hours float64
	}
	type key struct {
		id   blockID
		cell result.Cell
	}
	var windows []window
	for i, t := range input.Trials {
		if t.Accepted {
			windows = append(windows, window{t, hours[i]})
		}
	}
	places := map[blockID]int{}
	var out []blockMean
	for _, group := range grouped(windows, func(w window) key { return key{input.blockOf(w.Trial), w.Cell} }, nil) {
		trials := make([]Trial, len(group))
		for i, w := range group {
			trials[i] = w.Trial
		}
		b := input.meanOf(trials)
		b.place = places[b.id]
		places[b.id]++
		b.hours = mean(each(group, func(w window) float64 { return w.hours }))
		out = append(out, b)
	}
	return out
}

// meanOf averages the windows of one cell and block. It compares the sides by their ratio, also
// where verdicts compare them by their difference.
func (input Input) meanOf(windows []Trial) blockMean {
	perBit := input.primary
	perBit.Against = AsRatio
	logRatios := each(windows, func(t Trial) float64 { return perBit.compare(input.pairOf(t)) })
	named := func(metric string) func(MetricInput) float64 { return MetricNamed(input.Metrics, metric).Value }
	figures := [laws]func(MetricInput) float64{
		named(input.Laws.CPU), named(input.Laws.Normalised), named(input.Laws.Link), named(input.Laws.Delivered),
		input.Laws.Packets,
		func(r MetricInput) float64 { return finite(math.Log(Positive(perBit.Value(r)))) },
	}
	b := blockMean{
		cell: windows[0].Cell, id: input.blockOf(windows[0]), lab: windows[0].DUTLab,
		saturated: slices.ContainsFunc(windows, func(t Trial) bool { return slices.Contains(t.Flags, result.FlagSaturated) }),
		logRatio:  mean(logRatios), later: mean(logRatios[1:]) - logRatios[0],
	}
	b.trends, b.noise = input.trendMeansOf(windows), noiseOf(windows)
	for l, figure := range figures {
		b.dut[l] = mean(each(windows, func(t Trial) float64 { return figure(input.pairOf(t).device) }))
		b.clean[l] = mean(each(windows, func(t Trial) float64 { return figure(input.pairOf(t).clean) }))
	}
	return b
}

// EnoughBandwidth is the share of the limit below which normalised CPU is flagged. Study 1 normalises by equation 5.1
// however large the shortfall is.
const EnoughBandwidth = 0.9

// router is one device, or the clean router, with its block means.
//
// The clean router has the blocks of all devices and the A/A blocks, because it is the same
// router with the same traffic in each of them. Beside a device at its limit it gets only the
// remaining CPU. The link settings of a device (offloads) also change its cost. So a device
// that reached its limit in any cell of a setting is left out of all cells of the setting.
// Every level then consists of the same kinds of block. In an interleaved run the clean router
// has each round once.
type router struct {
	name    string
	compare func(a, b result.Cell) int
	means   []blockMean
	side    func(blockMean) routerMean
	// noise returns the possible effect of noise on a figure at a level. A level is the blocks of one cell.
	noise func(level []blockMean, figure seen) moved
}

// routers lists the clean router, then the devices by name.
func (input Input) routers(means []blockMean) []router {
	list := []router{{name: Clean, compare: input.Compare, side: func(b blockMean) routerMean { return b.clean }}}
	full := map[result.Cell]bool{} // devices by setting
	for _, ofDevice := range grouped(means, blockMean.device, cmp.Compare[string]) {
		r := router{name: ofDevice[0].device(), compare: input.Compare, means: ofDevice,
			side: func(b blockMean) routerMean { return b.dut }}
		if r.name == "" {
			continue
		}
		list = append(list, r)
		for _, cell := range r.byCell(ofDevice) {
			full[cell[0].family()] = full[cell[0].family()] || r.saturated(cell)
		}
	}
	for _, ofSetting := range grouped(means, blockMean.setting, input.Compare) {
		if input.interleaved() { // no device was beside it
			list[0].means = append(list[0].means, oncePerRound(ofSetting)...)
			continue
		}
		kept := without(ofSetting, func(b blockMean) bool { return full[b.family()] })
		if len(kept) == 0 {
			kept = ofSetting
		}
		list[0].means = append(list[0].means, kept...)
	}
	for i := range list {
		ofClean := list[i].name == Clean
		list[i].noise = func(level []blockMean, figure seen) moved { return input.noiseAt(ofClean, level, figure) }
	}
	return list
}

// oncePerRound keeps the first mean of each round, because all means of a round have the same clean router.
func oncePerRound(means []blockMean) (once []blockMean) {
	type key struct {
		cell result.Cell
		round
	}
	roundOf := func(b blockMean) key { return key{b.cell.Without(result.DUT, result.LinkSettings), b.round()} }
	for _, group := range grouped(means, roundOf, nil) {
		once = append(once, group[0])
	}
	return once
}

// setting returns the cell without device, clients and load. Blocks of different settings
// are never fitted or compared together.
func (b blockMean) setting() result.Cell {
	return b.cell.Without(result.DUT, result.Clients, result.OfferedMbps)
}

// family returns the setting with the device. A/A blocks have a family of their own.
func (b blockMean) family() result.Cell { return b.setting().With(result.DUT, b.device()) }

// device returns the name of the device under test. It is empty in an A/A block.
func (b blockMean) device() string {
	if b.id.aa {
		return ""
	}
	return b.cell.Text(result.DUT)
}

// offered returns the offered load, Mbit/s.
func (b blockMean) offered() float64 { return b.cell.Number(result.OfferedMbps) }

// byCell splits block means by clients and load, whatever the device.
func (r router) byCell(means []blockMean) [][]blockMean {
	return grouped(means, func(b blockMean) result.Cell { return b.cell.Without(result.DUT) }, r.compare)
}

// values returns one figure of the router for each block mean.
func (r router) values(means []blockMean, l law) []float64 {
	return each(means, func(b blockMean) float64 { return r.side(b)[l] })
}

// mean averages one figure of the router over block means.
func (r router) mean(means []blockMean, l law) float64 { return mean(r.values(means, l)) }

// saturated reports whether the router was at its limit in the blocks of one cell. It was at
// its limit if a window is flagged so and less than 98 % of the load was delivered, or if the
// bandwidth is more than 10 % below the load.
func (r router) saturated(means []blockMean) bool {
	marked := r.name != Clean && slices.ContainsFunc(means, func(b blockMean) bool { return b.saturated })
	return r.shortfall(means) || marked && r.mean(means, delivered) < result.FullLoad*means[0].offered()
}

// shortfall reports whether the sampled bandwidth is more than 10 % below the offered load.
func (r router) shortfall(means []blockMean) bool {
	return r.mean(means, link) < EnoughBandwidth*means[0].offered()
}
