package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// warnings say what a careful reader would hold against the result.
func (in Input) warnings(s Summary, cells map[result.Cell][]Trial) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if in.Run.Environment.Interrupted {
		say("The run was interrupted: cells may be missing or have fewer blocks than planned.")
	}
	out = append(out, missingWarnings(in.Run.Missing)...)
	if in.Run.Torn > 0 {
		say("The last record was cut short by a crash (%d bytes) and is left out.", in.Run.Torn)
	}
	if in.Run.Repeated > 0 {
		say("%d records stand twice in the file: the second of each is left out.", in.Run.Repeated)
	}
	if in.Run.Unrecorded > 0 {
		say("%d planned windows have no record although the run came to its end: %s was cut short, or records were taken out of it.", in.Run.Unrecorded, result.TrialsFile)
	}
	if s.Trials.Accepted == 0 {
		say("No %s was accepted: there is nothing to conclude from.", in.Noun)
		if len(s.Rejects) > 0 {
			say("The most frequent reason of %d rejected %ss, %d times: %s.", s.Trials.Rejected, in.Noun, s.Rejects[0].Count, s.Rejects[0].Text)
		}
		return out
	}
	if all := s.Trials.Accepted + s.Trials.Rejected; s.Trials.Rejected*4 > all {
		say("%d of %d %ss were rejected by self-tests: the machine or the set-up is not quiet enough.", s.Trials.Rejected, all, in.Noun)
	}
	if in.Primary != "" {
		out = append(out, in.noiseWarnings(s)...)
	}
	out = append(out, in.cellWarnings(s, cells)...)
	if in.Warn != nil {
		out = append(out, in.Warn(s)...)
	}
	return out
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

func (in Input) noiseWarnings(s Summary) []string {
	r := s.AA.Ratio
	switch {
	case s.AA.Pairs == 0 && !slices.ContainsFunc(in.Trials, func(t Trial) bool { return t.AA }):
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
func (in Input) cellWarnings(s Summary, cells map[result.Cell][]Trial) []string {
	unit := "block"
	if in.Alone {
		unit = in.Noun
	}
	return slices.Concat(
		s.Remark(fmt.Sprintf("All %ss were rejected", in.Noun), func(c Cell) bool { return c.Pairs == 0 }),
		s.Remark(fmt.Sprintf("One %s only, so no interval", unit), func(c Cell) bool { return c.Blocks == 1 }),
		s.Remark("The DUT was in the same lab in every block, so a difference between the labs is not cancelled", func(c Cell) bool {
			return s.Mode == result.ModeDuet && c.Blocks > 1 && oneSided(cells[c.Cell])
		}),
		s.Remark("Some pairs have no ratio because a side delivered nothing or cost nothing", func(c Cell) bool { return c.Flagged(FlagNoRatio) }),
	)
}

// Remark is a warning with the cells it is about; none when it is about none.
func (s Summary) Remark(text string, applies func(Cell) bool) []string {
	var named []string
	more := 0
	for _, c := range s.Cells {
		switch {
		case !applies(c):
		case len(named) < cellsNamed:
			named = append(named, c.label())
		default:
			more++
		}
	}
	if more > 0 {
		named = append(named, "and "+words.Counted(more, "more cell"))
	}
	if len(named) == 0 {
		return nil
	}
	return []string{text + ": " + strings.Join(named, "; ") + "."}
}

// oneSided reports whether the crossover is missing: accepted trials of
// several blocks, all with the DUT in the same lab.
func oneSided(trials []Trial) bool {
	labs := map[string]bool{}
	for _, t := range trials {
		if t.Accepted {
			labs[t.DUTLab] = true
		}
	}
	return len(labs) == 1
}
