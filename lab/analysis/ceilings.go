package analysis

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Ceiling is where a router stops to carry what it is offered, as far as the loads of
// the run tell: one for each device, and for the clean router, number of clients,
// direction and profile. A load is carried that is delivered in full with at most
// 1 % of its segments sent again, which is what the clean router is held to, or of its
// datagrams lost.
type Ceiling struct {
	Cell result.Cell `json:"dimensions"` // without the load; the device is Clean for the clean router
	// CarriesMbps is the largest load offered that was carried, with all below it;
	// absent when not even the smallest was.
	CarriesMbps Number `json:"carries_mbps"`
	CPUCorePct  Number `json:"cpu_core_pct"` // there, % of one core
	// CarriesBlocks and FailsBlocks are the blocks behind the two loads.
	CarriesBlocks int `json:"carries_blocks"`
	FailsBlocks   int `json:"fails_blocks"`
	// FailsMbps is the smallest load offered that was not carried, and Why how that
	// showed: result.FlagSaturated or result.FlagLossy. Absent when all were.
	FailsMbps Number `json:"fails_mbps"`
	Why       string `json:"why,omitempty"`
	MostMbps  Number `json:"most_mbps"` // the most that was delivered, whatever was lost on the way
	// CPU is CPUCorePct and Most is MostMbps with their intervals over blocks. Those of
	// the clean router, which stood beside several devices, have none.
	CPU  Estimate `json:"cpu"`
	Most Estimate `json:"most"`
}

// ceilings looks for the ceilings of a run in which sides take turns: beside a clean
// router on the same CPU a device reaches its limit early. It takes two loads to
// have one.
func (in Input) ceilings(cells []Cell, mode string) []Ceiling {
	if mode != result.ModeSolo {
		return nil
	}
	type place struct { // of a cell in a ceiling
		Cell
		in result.Cell
	}
	var places []place
	for _, c := range cells {
		at := c.Without(result.OfferedMbps)
		places = append(places, place{c, at.With(result.DUT, c.DUT())}, place{c, at.With(result.DUT, Clean)})
	}
	var out []Ceiling
	for _, group := range grouped(places, func(p place) result.Cell { return p.in }, in.Compare) {
		of := make([]Cell, len(group))
		for i, p := range group {
			of[i] = p.Cell
		}
		slices.SortStableFunc(of, func(a, b Cell) int { return result.CompareCells(a.Cell, b.Cell, result.OfferedMbps) })
		if of[0].Number(result.OfferedMbps) == of[len(of)-1].Number(result.OfferedMbps) {
			continue
		}
		l := Ceiling{Cell: group[0].in, CarriesMbps: Absent(), CPUCorePct: Absent(), FailsMbps: Absent(), MostMbps: Absent(), CPU: Unknown(), Most: Unknown()}
		of = without(of, func(c Cell) bool { return c.Pairs == 0 }) // loads of which no trial was accepted say nothing
		if l.Cell.Text(result.DUT) == Clean {
			in.ofClean(&l, of)
		} else {
			in.ofDevice(&l, of)
		}
		out = append(out, l)
	}
	return out
}

// ofDevice goes through a device's cells from the smallest load up.
func (in Input) ofDevice(l *Ceiling, cells []Cell) {
	for _, c := range cells {
		offered, delivered, cpu := Number(c.Number(result.OfferedMbps)), c.Device(in.Laws.Delivered), c.Device(in.Laws.CPU)
		if !l.MostMbps.Known() || delivered.Mean > l.MostMbps {
			l.MostMbps, l.Most = delivered.Mean, delivered
		}
		if l.FailsMbps.Known() {
			continue
		}
		if why := c.notCarried(); why != "" {
			l.FailsMbps, l.FailsBlocks, l.Why = offered, c.Blocks, why
			continue
		}
		l.CarriesMbps, l.CarriesBlocks = offered, c.Blocks
		l.CPUCorePct, l.CPU = cpu.Mean, cpu
	}
}

// ofClean has what the clean router carried in the accepted trials beside all
// devices: self-tests reject the others. So there is no load that it is known to
// fail at: it may have been the lab.
func (in Input) ofClean(l *Ceiling, cells []Cell) {
	var cpu []float64 // beside each device
	for _, c := range cells {
		offered := Number(c.Number(result.OfferedMbps))
		if l.CarriesMbps != offered {
			cpu, l.CarriesBlocks = nil, 0
		}
		l.CarriesBlocks += c.Blocks
		cpu = append(cpu, float64(c.Clean(in.Laws.CPU).Mean))
		l.CarriesMbps, l.MostMbps, l.CPUCorePct = offered, offered, Number(mean(cpu))
		l.CPU.Mean, l.Most.Mean = l.CPUCorePct, l.MostMbps
	}
}

// notCarried is the flag that says why a load was not carried, which at least half
// of its trials have: one hiccup of the machine is no limit.
func (c Cell) notCarried() string {
	for _, flag := range []string{result.FlagSaturated, result.FlagLossy} {
		for _, f := range c.Flags {
			if f.Text == flag && 2*f.Count >= c.Pairs {
				return flag
			}
		}
	}
	return ""
}
