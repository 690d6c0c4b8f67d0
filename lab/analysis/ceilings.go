package analysis

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Ceiling is the load above which a router does not carry the offered load, as far as the
// loads of the run show: one for each device or clean router, number of clients, direction
// and profile. A load is carried when it is delivered in full with at most 1 % of segments
// retransmitted or datagrams lost: the clean router's limit in the self-tests.
type Ceiling struct {
	Cell result.Cell `json:"dimensions"` // without the load; the device is Clean for the clean router
	// CarriesMbps is the largest load offered that was carried, with all below it;
	// absent when not even the smallest was.
	CarriesMbps Number `json:"carries_mbps"`
	CPUCorePct  Number `json:"cpu_core_pct"` // there, % of one core
	// CarriesBlocks and FailsBlocks are the blocks behind the two loads.
	CarriesBlocks int `json:"carries_blocks"`
	FailsBlocks   int `json:"fails_blocks"` // behind the load that fails
	// FailsMbps is the smallest offered load that was not carried, absent when all were;
	// Why is the flag that shows this: result.FlagSaturated or result.FlagLossy.
	FailsMbps Number `json:"fails_mbps"`
	Why       string `json:"why,omitempty"` // the flag that at least half of its trials have
	MostMbps  Number `json:"most_mbps"`     // the most that was delivered, whatever was lost on the way
	// CPU is CPUCorePct and Most is MostMbps with their intervals over blocks. The clean
	// router, which is paired with several devices, has no intervals.
	CPU  Estimate `json:"cpu"`
	Most Estimate `json:"most"` // most that was delivered, whatever was lost, Mbit/s
}

// ceilings finds the ceilings of a run that loads one lab at a time: in a duet the device shares its CPU with the
// clean router and reaches its limit early. A ceiling takes at least two loads.
func (input Input) ceilings(cells []Cell, mode string) []Ceiling {
	if mode != result.ModeSolo && mode != result.ModeInterleaved {
		return nil
	}
	type place struct { // of a cell in a ceiling
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
		cells = without(cells, func(c Cell) bool { return c.Pairs == 0 }) // loads of which no trial was accepted say nothing
		if l.Cell.Text(result.DUT) == Clean {
			input.ofClean(&l, cells)
		} else {
			input.ofDevice(&l, cells)
		}
		out = append(out, l)
	}
	return out
}

// ofDevice goes through a device's cells from the smallest load up.
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

// ofClean uses what the clean router carried in the accepted trials with all devices.
// Self-tests reject trials in which it carried less, since the lab may be the cause; so no
// load is known at which it fails.
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

// NotCarried is the flag that says why a load was not carried, which at least half
// of its trials have: one hiccup of the machine is no limit.
func (c Cell) NotCarried() string {
	for _, flag := range []string{result.FlagSaturated, result.FlagLossy} {
		if c.FlaggedShare(flag) >= 0.5 {
			return flag
		}
	}
	return ""
}

// FlaggedShare is the share of the cell's accepted trials that carry a flag, 0 to 1.
func (c Cell) FlaggedShare(flag string) float64 {
	for _, f := range c.Flags {
		if f.Text == flag {
			return float64(f.Count) / float64(max(c.Pairs, 1))
		}
	}
	return 0
}
