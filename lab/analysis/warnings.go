package analysis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// warnings lists what weakens the result, one sentence each.
func (input Input) warnings(s Summary, cells map[result.Cell][]Trial) (out []string) {
	warn := func(applies bool, format string, args ...any) {
		if applies {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	run, t := input.Run, s.Trials
	warn(run.Environment.Interrupted, "The run was interrupted: cells may be missing or have fewer blocks than planned.")
	for _, file := range run.Missing {
		warn(true, "%s is missing from the run's folder: %s. Bring it back from where the run was made, or from a bundle of "+
			"it.", file, missing[file])
	}
	warn(run.Torn > 0, "%s.", run.TornText())
	warn(run.Repeated > 0, "%s twice in the file: the second of each is left out.",
		words.Agreed(run.Repeated, "record stands", "records stand"))
	warn(run.Unrecorded > 0,
		"%s no record although the run came to its end: %s was cut short, or records were taken out of it.",
		words.Agreed(run.Unrecorded, "planned window has", "planned windows have"), result.TrialsFile)
	if t.Accepted == 0 {
		warn(true, "No %s was accepted: there is nothing to conclude from.", input.Noun)
		for _, r := range s.Rejects[:min(1, len(s.Rejects))] {
			warn(true, "The most frequent reason of %s, %s: %s.", words.Counted(t.Rejected, "rejected "+input.Noun),
				words.Counted(r.Count, "time"), r.Text)
		}
		return append(out, input.further(s)...)
	}
	warn(t.Rejected*4 > t.Accepted+t.Rejected,
		"%d of %s %s rejected by self-tests: the machine or the set-up is not quiet enough.",
		t.Rejected, words.Counted(t.Accepted+t.Rejected, input.Noun), words.Either(t.Rejected, "was", "were"))
	if s.Primary != "" {
		out = append(out, input.noiseWarnings(s.AA)...)
	}
	return slices.Concat(out, input.cellWarnings(s, cells), input.further(s))
}

// further returns the warnings of the measure itself.
func (input Input) further(s Summary) []string {
	if input.Warn == nil {
		return nil
	}
	return input.Warn(s)
}

// missing names the consequence of each missing file of a run.
var missing = map[string]string{
	result.EnvironmentFile: "nothing is known of the machine, the versions and whether the run came to its end",
	result.ExperimentFile: "what was planned is not known, nor whether all of it was measured, and the run can be " +
		"neither continued nor repeated",
}

func (input Input) noiseWarnings(aa AA) []string {
	none := input.primary.unscaled(Estimate{}).Mean

	switch r := aa.Ratio; {
	case aa.Pairs+aa.Rejected == 0:
		return []string{"No A/A pair was measured (aa_blocks): the noise floor of this run is not known."}
	case aa.Pairs == 0:
		return []string{"No A/A pair was accepted: the noise floor of this run is not known."}
	case !r.HasInterval():
		return []string{"The A/A pairs are of one block: the noise floor has no interval."}
	case r.Lo > none || r.Hi < none:
		return []string{fmt.Sprintf(
			"Two clean routers differ by a %s of %.3f [%.3f, %.3f]: do not trust differences of that size.",
			input.primary.Against,
			r.Mean, r.Lo, r.Hi)}
	}
	return nil
}

// cellWarnings returns each remark once, with the cells that it applies to.
func (input Input) cellWarnings(s Summary, cells map[result.Cell][]Trial) []string {
	// Without a crossover the device was in the same lab in all of several blocks.
	oneSided := func(c Cell) bool {
		labs := grouped(accepted(cells[c.Cell]), func(t Trial) string { return t.DUTLab }, nil)
		return s.Mode == result.ModeDuet && c.Blocks > 1 && len(labs) == 1
	}
	return slices.Concat(
		s.Remark(fmt.Sprintf("All %s were rejected", words.Plural(input.Noun)), func(c Cell) bool { return c.Pairs == 0 }),
		s.Remark(fmt.Sprintf("One %s only, so no interval", s.Unit), func(c Cell) bool { return c.Blocks == 1 }),
		s.Remark("The DUT was in the same lab in every block, so a difference between the labs is not cancelled", oneSided),
		s.Remark("Some pairs have no ratio because a side delivered nothing or cost nothing",
			func(c Cell) bool { return c.Flagged(FlagNoRatio) }),
	)
}

// cellsNamed is the largest number of cells that a warning names.
const cellsNamed = 4

// Remark returns a warning with the cells that it applies to. It returns none when it applies to no cell.
func (s Summary) Remark(text string, applies func(Cell) bool) []string {
	var named []string
	for _, c := range s.Cells {
		if applies(c) {
			named = append(named, s.Dimensions.Label(c.Cell))
		}
	}
	if len(named) == 0 {
		return nil
	}
	if more := len(named) - cellsNamed; more > 0 {
		named = append(named[:cellsNamed], "and "+words.Counted(more, "more cell"))
	}
	return []string{text + ": " + strings.Join(named, "; ") + "."}
}
