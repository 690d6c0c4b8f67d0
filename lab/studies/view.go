package studies

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// run is a summary with the name that sentences call it by. This file is the only
// one that looks into a summary.
type run struct {
	analysis.Summary
	Label string
	held  []course // of one sweep
}

// labelled names runs by their experiments, and by their place where two are of
// the same experiment.
func labelled(summaries []analysis.Summary) []run {
	var out []run
	for i, s := range summaries {
		label := s.Experiment
		if slices.ContainsFunc(slices.Concat(summaries[:i], summaries[i+1:]), func(other analysis.Summary) bool { return other.Experiment == label }) {
			label = fmt.Sprintf("%s (run %d)", label, i+1)
		}
		if s.Mode == result.ModeSolo {
			label += ", solo"
		}
		out = append(out, run{s, label, nil})
	}
	return out
}

// metrics are what a run has at each level, by name.
var metrics = []string{"link_mbps", "cpu_sampled_pct", "cpu_normalised_pct", "overhead_ratio"}

// courses are what a run has along a sweep's dimension, at whatever value of what
// the sweep holds, in the preferred profile first.
func (r run) courses(s Sweep) []course {
	var out []course
	for _, own := range r.Sweeps {
		at := own.Cell.Without(result.DUT, result.Profile)
		if own.Along != s.Along || at.Without(s.Held) != s.At.Without(s.Held) {
			continue
		}
		c := course{dut: own.Cell.Text(result.DUT), Profile: own.Cell.Text(result.Profile), at: at, fits: fits(own.Linearity), figures: figures{}, flags: map[float64][]string{}, rises: map[step]increase{}}
		for _, l := range own.Levels {
			if l.CPUSampled.Mean.Known() {
				r.add(&c, own.Cell.With(s.Along, float64(l.Level)), l)
			}
		}
		for _, inc := range own.Increments {
			c.rises[step{float64(inc.From), float64(inc.To)}] = increase{inc.NetPct, inc.RelativePct, inc.RatioPct, true}
		}
		for _, span := range own.Spans {
			c.rises[step{float64(span.From), float64(span.To)}] = increase{nothing(), span.RelativePct, span.RatioPct, false}
		}
		out = append(out, c)
	}
	// Less the preferred profile's name, that profile is empty and comes first.
	slices.SortStableFunc(out, func(a, b course) int {
		return cmp.Compare(strings.TrimPrefix(a.Profile, s.Prefer), strings.TrimPrefix(b.Profile, s.Prefer))
	})
	return out
}

// add takes a level of a sweep, with what its cell knows.
func (r run) add(c *course, at result.Cell, l analysis.Level) {
	level, ratio := float64(l.Level), nothing()
	for i := range r.Cells {
		cell := r.Cells[i]
		if cell.Cell != at {
			continue
		}
		ratio = cell.Change(cost.PerBit)
		for _, flag := range cell.Flags {
			if flag.Text == result.FlagSaturated && cost.AtLimit(cell) ||
				flag.Text == result.FlagLossy && 2*flag.Count >= cell.Pairs {
				c.flags[level] = append(c.flags[level], flag.Text)
			}
		}
	}
	if l.Shortfall {
		c.flags[level] = append(c.flags[level], cost.FlagShortfall)
	}
	slices.Sort(c.flags[level])
	c.levels = append(c.levels, level)
	c.figures[level] = map[string]analysis.Estimate{
		"link_mbps": l.LinkMbps, "cpu_sampled_pct": l.CPUSampled, "cpu_normalised_pct": l.CPUNormalised, "overhead_ratio": ratio,
	}
}

// fits says what the fits over all levels found.
func fits(l *analysis.Linearity) string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("; over %d levels, R² of the straight line is %.4f and the exponent of bandwidth %s", l.LevelsUsed, float64(l.R2), bracketed(l.Exponent))
	if l.BendAt.Known() {
		text += fmt.Sprintf("; at %g Mbit/s it departs from the line below by %s %%", float64(l.BendAt), bracketed(l.BendPct))
	}
	return text
}

// between is one device's overhead ratio over another's at a level of a sweep, and
// how the distance of that from 1 changed since the first level. ok is false where
// the run does not have both devices.
func (r run) between(a, b router, s Sweep) (at func(level float64) (ratio, widening analysis.Estimate), ok bool) {
	q, ok := r.Between(a.DUT, b.DUT, s.At.With(result.Profile, a.Profile))
	return func(level float64) (ratio, widening analysis.Estimate) {
		for _, l := range q.Levels {
			if float64(l.Clients) == level {
				return l.Ratio, l.Widening
			}
		}
		return nothing(), nothing()
	}, ok && a.Profile == b.Profile
}

// cpus is how many CPUs the machine of a run has: its router's CPU in per cent of
// a core over the same in per cent of the machine. 0: not known.
func (r run) cpus() int {
	for _, c := range r.Cells {
		if n := float64(c.Device(cost.CPU).Mean / c.Device("cpu_machine_pct").Mean); n >= 0.5 && !math.IsInf(n, 0) {
			return int(math.Round(n))
		}
	}
	return 0
}
