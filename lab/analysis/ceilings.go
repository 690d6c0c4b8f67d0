package analysis

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Ceiling is the largest load that a router carries, as far as the loads of the run show it. There is one for each
// device or clean router, number of clients, direction and profile. A load is carried when it is delivered in full and
// at most 1 % of segments are retransmitted or datagrams lost. The self-tests apply the same limit to the clean router.
type Ceiling struct {
	Cell result.Cell `json:"dimensions"` // without the load; the device is Clean for the clean router
	// CarriesMbps is the largest offered load that was carried together with all smaller ones. It is absent when the
	// smallest load was not carried.
	CarriesMbps Number `json:"carries_mbps"`
	CPUCorePct  Number `json:"cpu_core_pct"` // CPU at CarriesMbps, % of one core
	// CarriesBlocks and FailsBlocks are the numbers of blocks measured at the two loads.
	CarriesBlocks int `json:"carries_blocks"`
	FailsBlocks   int `json:"fails_blocks"` // blocks with the load FailsMbps
	// FailsMbps is the smallest offered load that was not carried. It is absent when all were carried. Why is the flag of
	// this load: result.FlagSaturated or result.FlagLossy.
	FailsMbps Number `json:"fails_mbps"`
	Why       string `json:"why,omitempty"` // the flag that at least half of its trials have
	MostMbps  Number `json:"most_mbps"`     // the most that was delivered, whatever was lost on the way
	// CPU is CPUCorePct, and Most is MostMbps, each with its interval over blocks. The clean router has no intervals,
	// because it is paired with several devices.
	CPU  Estimate `json:"cpu"`
	Most Estimate `json:"most"` // most that was delivered, whatever was lost, Mbit/s
}

// ceilings finds the ceilings of a run that loads one lab at a time. A duet has none: there the device shares its CPU
// with the clean router and reaches its limit early. A ceiling needs at least two loads.
func (input Input) ceilings(cells []Cell, mode string) []Ceiling {
	if mode != result.ModeSolo && mode != result.ModeInterleaved {
		return nil
	}
	type place struct { // names the ceiling that a cell belongs to
		Cell
		in result.Cell
	}
	var places []place
	for _, c := range cells {
		cell := c.Without(result.OfferedMbps)
		places = append(places, place{c, cell.With(result.DUT, c.DUT())}, place{c, cell.With(result.DUT, Clean)})
	}
	var out []Ceiling
	for _, group := range grouped(places, func(p place) result.Cell { return p.in }, input.Compare) {
		cells := make([]Cell, len(group))
		for i, p := range group {
			cells[i] = p.Cell
		}
		slices.SortStableFunc(cells, func(a, b Cell) int { return result.CompareCells(a.Cell, b.Cell, result.OfferedMbps) })
		if cells[0].Number(result.OfferedMbps) == cells[len(cells)-1].Number(result.OfferedMbps) {
			continue
		}
		l := Ceiling{Cell: group[0].in, CarriesMbps: Absent(), CPUCorePct: Absent(), FailsMbps: Absent(), MostMbps: Absent(),
			CPU: Unknown(), Most: Unknown()}
		// nothing is known of loads without an accepted trial
		cells = without(cells, func(c Cell) bool { return c.Pairs == 0 })
		if l.Cell.Text(result.DUT) == Clean {
			input.ofClean(&l, cells)
		} else {
			input.ofDevice(&l, cells)
		}
		out = append(out, l)
	}
	return out
}

// ofDevice fills in the ceiling of a device. It takes the cells from the smallest load to the largest.
func (input Input) ofDevice(l *Ceiling, cells []Cell) {
	for _, c := range cells {
		offered, delivered, cpu := Number(c.Number(result.OfferedMbps)), c.Device(input.Laws.Delivered),
			c.Device(input.Laws.CPU)
		if !l.MostMbps.Known() || delivered.Mean > l.MostMbps {
			l.MostMbps, l.Most = delivered.Mean, delivered
		}
		if l.FailsMbps.Known() {
			continue
		}
		if reason := c.NotCarried(); reason != "" {
			l.FailsMbps, l.FailsBlocks, l.Why = offered, c.Blocks, reason
			continue
		}
		l.CarriesMbps, l.CarriesBlocks = offered, c.Blocks
		l.CPUCorePct, l.CPU = cpu.Mean, cpu
	}
}

// ofClean fills in the ceiling of the clean router, from the accepted trials with all devices. It never finds a load
// that fails: self-tests reject trials in which the clean router carried less, because the lab may be the cause.
func (input Input) ofClean(l *Ceiling, cells []Cell) {
	var cpu []float64 // beside each device
	for _, c := range cells {
		offered := Number(c.Number(result.OfferedMbps))
		if l.CarriesMbps != offered {
			cpu, l.CarriesBlocks = nil, 0
		}
		if input.interleaved() { // all devices have the same rounds
			l.CarriesBlocks = max(l.CarriesBlocks, c.Blocks)
		} else {
			l.CarriesBlocks += c.Blocks
		}
		cpu = append(cpu, float64(c.Clean(input.Laws.CPU).Mean))
		l.CarriesMbps, l.MostMbps, l.CPUCorePct = offered, offered, Number(mean(cpu))
		l.CPU.Mean, l.Most.Mean = l.CPUCorePct, l.MostMbps
	}
}

// NotCarried returns the flag that says why the load of the cell was not carried. At least half of the cell's trials
// must have the flag, so that one hiccup of the machine is not taken for a limit.
func (c Cell) NotCarried() string {
	for _, flag := range []string{result.FlagSaturated, result.FlagLossy} {
		if c.FlaggedShare(flag) >= 0.5 {
			return flag
		}
	}
	return ""
}

// FlaggedShare returns the share of the cell's accepted trials with a flag, 0 to 1.
func (c Cell) FlaggedShare(flag string) float64 {
	for _, f := range c.Flags {
		if f.Text == flag {
			return float64(f.Count) / float64(max(c.Pairs, 1))
		}
	}
	return 0
}
