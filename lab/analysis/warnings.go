package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// warnings say what a careful reader would hold against the result.
func warnings(run result.Run, s Summary, cells map[result.Cell][]result.Trial) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if run.Environment.Interrupted {
		say("The run was interrupted: cells may be missing or have fewer blocks than planned.")
	}
	out = append(out, missingWarnings(run.Missing)...)
	if run.Torn > 0 {
		say("The last record was cut short by a crash (%d bytes) and is left out.", run.Torn)
	}
	if run.Repeated > 0 {
		say("%d records stand twice in the file: the second of each is left out.", run.Repeated)
	}
	if s.Trials.Accepted == 0 {
		say("No %s was accepted: there is nothing to conclude from.", s.noun())
		if len(s.Rejects) > 0 {
			say("The most frequent reason of %d rejected %ss, %d times: %s.", s.Trials.Rejected, s.noun(), s.Rejects[0].Count, s.Rejects[0].Text)
		}
		return out
	}
	if all := s.Trials.Accepted + s.Trials.Rejected; s.Trials.Rejected*4 > all {
		say("%d of %d %ss were rejected by self-tests: the machine or the set-up is not quiet enough.", s.Trials.Rejected, all, s.noun())
	}
	if s.Measure == result.MeasureLogins {
		return append(out, stormWarnings(s.Storms)...)
	}
	return slices.Concat(out, noiseWarnings(run, s), cellWarnings(s, cells), housekeepingWarnings(run.Blocks))
}

// missingWarnings say of each missing file what follows, and what to do.
func missingWarnings(files []string) (out []string) {
	for _, file := range files {
		without := ""
		switch file {
		case result.EnvironmentFile:
			without = "nothing is known of the machine, the versions and whether the run came to its end"
		case result.ExperimentFile:
			without = "what was planned is not known, nor whether all of it was measured, and the run can be neither continued nor repeated"
		}
		out = append(out, fmt.Sprintf("%s is missing from the run's folder: %s. Bring it back from where the run was made, or from a bundle of it.", file, without))
	}
	return out
}

func noiseWarnings(run result.Run, s Summary) []string {
	r := s.AA.Ratio
	switch {
	case s.AA.Pairs == 0 && !slices.ContainsFunc(run.Trials, func(t result.Trial) bool { return t.AA }):
		return []string{"No A/A pair was measured (aa_blocks): the noise floor of this run is not known."}
	case s.AA.Pairs == 0:
		return []string{"No A/A pair was accepted: the noise floor of this run is not known."}
	case !r.HasInterval():
		return []string{"The A/A pairs are of one block: the noise floor has no interval."}
	case r.Lo > 1 || r.Hi < 1:
		return []string{fmt.Sprintf("Two clean routers differ by a ratio of %.3f [%.3f, %.3f]: do not trust differences of that size.",
			r.Mean, r.Lo, r.Hi)}
	}
	return nil
}

// clockWarning says that the clock of the machine cannot be trusted.
func clockWarning(back time.Duration) []string {
	if back <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("The clock of the machine was set back by %s during the run; times since then follow the order of the records.",
		back.Round(time.Millisecond))}
}

// cellsNamed bounds how many cells a warning names.
const cellsNamed = 4

// cellWarnings say each remark once, with the cells it is about.
func cellWarnings(s Summary, cells map[result.Cell][]result.Trial) []string {
	var out []string
	for _, r := range []remark[Cell]{
		{"All trials were rejected", func(c Cell) bool { return c.Pairs == 0 }},
		{"One block only, so no interval", func(c Cell) bool { return c.Blocks == 1 }},
		{"The DUT was in the same lab in every block, so a difference between the labs is not cancelled", func(c Cell) bool {
			return s.Mode == result.ModeDuet && c.Blocks > 1 && c.oneSided(cells)
		}},
		{"Sampled bandwidth is more than 10 % below the limit, so normalised CPU is an extrapolation", func(c Cell) bool { return c.Has(FlagShortfall) }},
		{"Some pairs have no ratio because a side delivered nothing or cost nothing", func(c Cell) bool { return c.Has(FlagNoRatio) }},
	} {
		out = append(out, r.on(s.Cells)...)
	}
	return out
}

// remark is a warning about some of the cells.
type remark[C interface{ label() string }] struct {
	text    string
	applies func(C) bool
}

// on is the remark with the cells it is about; none when it is about none.
func (r remark[C]) on(cells []C) []string {
	var named []string
	more := 0
	for _, c := range cells {
		switch {
		case !r.applies(c):
		case len(named) < cellsNamed:
			named = append(named, c.label())
		default:
			more++
		}
	}
	if more == 1 {
		named = append(named, "and 1 more cell")
	} else if more > 1 {
		named = append(named, fmt.Sprintf("and %d more cells", more))
	}
	if len(named) == 0 {
		return nil
	}
	return []string{r.text + ": " + strings.Join(named, "; ") + "."}
}

// stormWarnings say what a reader of storms must not take for the device's doing.
func stormWarnings(cells []StormCell) []string {
	var out []string
	for _, r := range []remark[StormCell]{
		{"All storms were rejected", func(c StormCell) bool { return c.Storms == 0 }},
		{"One storm only, so no interval", func(c StormCell) bool { return c.Storms == 1 }},
		{"The client host's CPU was full, so these devices may let clients in faster than shown", func(c StormCell) bool {
			return c.Login.limitedBy(result.LimitGenerator)
		}},
		{"The RADIUS server's CPU was full, so these devices may let clients in faster than shown", func(c StormCell) bool {
			return c.Login.limitedBy(result.LimitRadius)
		}},
	} {
		out = append(out, r.on(cells)...)
	}
	return out
}

// oneSided reports whether the crossover is missing: accepted trials of
// several blocks, all with the DUT in the same lab.
func (c Cell) oneSided(cells map[result.Cell][]result.Trial) bool {
	labs := map[string]bool{}
	for _, t := range cells[result.NewCell(result.DUT, c.DUT, result.Clients, c.Clients, result.OfferedMbps, float64(c.OfferedMbps), result.Direction, c.Direction, result.Profile, c.Profile)] {
		if t.Accepted {
			labs[t.DUTLab] = true
		}
	}
	return len(labs) == 1
}
