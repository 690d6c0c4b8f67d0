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

// blockID names the labs of a block. A block spans the loads of a cell's
// sweep, so the load is not part of its identity; labs end with a sitting, so
// what a resume adds to an interrupted block is a block of its own.
type blockID struct {
	cell    result.Cell // without its load
	aa      bool
	block   int
	sitting int
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

// blockMeans returns every load of every block with accepted windows, in the
// order they were measured. hours has the time of each trial.
func blockMeans(trials []result.Trial, hours []float64) []blockMean {
	type key struct {
		id   blockID
		mbps float64
	}
	groups := map[key][]int{}
	var order []key
	places := map[blockID]int{}
	for i := range trials {
		t := &trials[i]
		if !t.Accepted {
			continue
		}
		k := key{blockID{withoutLoad(t.Cell), t.AA, t.Block, t.Sitting}, t.Cell.Number(result.OfferedMbps)}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	out := make([]blockMean, 0, len(order))
	for _, k := range order {
		b := meanOf(trials, hours, groups[k])
		b.id, b.place = k.id, places[k.id]
		places[k.id]++
		out = append(out, b)
	}
	return out
}

// meanOf averages the trials at the given places, which are of one cell and block.
func meanOf(trials []result.Trial, hours []float64, at []int) blockMean {
	first := &trials[at[0]]
	b := blockMean{cell: first.Cell, lab: first.DUTLab}
	over := func(of func(*result.Trial) float64) float64 {
		values := make([]float64, 0, len(at))
		for _, i := range at {
			values = append(values, of(&trials[i]))
		}
		return mean(values)
	}
	for _, i := range at {
		b.saturated = b.saturated || slices.Contains(trials[i].Flags, result.FlagSaturated)
		b.hours += hours[i] / float64(len(at))
	}
	router := func(side func(*result.Trial) *result.Measurement) routerMean {
		return routerMean{
			cpuPct: over(func(t *result.Trial) float64 { return side(t).CPUCorePct() }),
			normalisedPct: over(func(t *result.Trial) float64 {
				return positive(normalisedPct(*side(t), t.Cell.Number(result.OfferedMbps)))
			}),
			linkMbps:      over(func(t *result.Trial) float64 { return side(t).LinkMbps }),
			deliveredMbps: over(func(t *result.Trial) float64 { return side(t).DeliveredMbps }),
			packets:       over(func(t *result.Trial) float64 { return perSecond(side(t).Packets, side(t).Seconds) / 1e6 }),
			logPerBit:     over(func(t *result.Trial) float64 { return finite(math.Log(positive(nsPerBit(*side(t))))) }),
		}
	}
	b.dut = router(func(t *result.Trial) *result.Measurement { return &t.DUT })
	b.clean = router(func(t *result.Trial) *result.Measurement { return &t.Clean })
	b.logRatio = over(func(t *result.Trial) float64 { return logRatio(*t) })
	rest := make([]float64, 0, len(at))
	for _, i := range at[1:] {
		rest = append(rest, logRatio(trials[i]))
	}
	b.later = mean(rest) - logRatio(*first)
	return b
}

func perSecond(count int64, seconds float64) float64 { return over(float64(count), seconds) }

// fullLoad is the share of the offered load below which a device that was
// marked as being at its limit has really fallen short.
const fullLoad = 0.98

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
	name  string
	means []blockMean
	side  func(blockMean) routerMean
}

// routers lists the clean router, then the devices by name.
func routers(means []blockMean) []router {
	clean := router{name: Clean, side: func(b blockMean) routerMean { return b.clean }}
	list := []router{}
	full := map[result.Cell]bool{} // devices by setting
	for _, of := range grouped(means, blockMean.device, cmp.Compare[string]) {
		r := router{of[0].device(), of, func(b blockMean) routerMean { return b.dut }}
		if r.name == "" {
			continue
		}
		list = append(list, r)
		for _, cell := range byCell(of) {
			full[cell[0].family()] = full[cell[0].family()] || r.saturated(cell)
		}
	}
	for _, of := range grouped(means, setting, compareCells) {
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
	return marked && mean(r.values(means, routerMean.delivered)) < fullLoad*offered
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
	return result.NewCell(result.Direction, b.cell.Text(result.Direction), result.Profile, b.cell.Text(result.Profile))
}

// byCell splits block means by clients and load, whatever the device.
func byCell(means []blockMean) [][]blockMean {
	return grouped(means, func(b blockMean) result.Cell {
		cell := b.cell
		cell = cell.Without(result.DUT)
		return cell
	}, compareCells)
}

// elapsed is the time of each trial since the first, in hours, and how far the
// clock stepped back in between. Records stand in the order they were measured,
// so a start before the one it follows is a step of the clock: the window before
// it then counts with its own length.
func elapsed(trials []result.Trial) (hours []float64, back time.Duration) {
	hours = make([]float64, len(trials))
	for i := 1; i < len(trials); i++ {
		step := trials[i].Start.Sub(trials[i-1].Start)
		if step < 0 {
			back -= step
			step = time.Duration(max(0, min(trials[i-1].DUT.Seconds, 3600)) * float64(time.Second))
		}
		hours[i] = hours[i-1] + step.Hours()
	}
	return hours, back
}
