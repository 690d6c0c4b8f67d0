package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// repeat returns the word for the repetitions of a run: "round" where the labs are interleaved, otherwise "block".
func repeat(s analysis.Summary) string {
	if s.Mode == result.ModeInterleaved {
		return "round"
	}
	return "block"
}

// untilSentence describes the rule by which cells ended, and how many ended in which way. It is empty for runs without
// such a rule.
func untilSentence(s analysis.Summary) string {
	if s.Until == nil {
		return ""
	}
	count, several := map[string]int{}, words.Plural(repeat(s))
	for _, c := range s.Cells {
		if c.Ended == nil {
			count["open"]++
		} else {
			count[c.Ended.Bound]++
		}
	}
	text := fmt.Sprintf("Measured until ±%g %%: %d of %s %s exact enough", s.Until.PrecisionPct, count[""],
		words.Counted(len(s.Cells), "cell"), words.Either(count[""], "is", "are"))
	for _, way := range []struct{ bound, text string }{
		{result.BoundBlocks, "%d had all " + several + " before"}, {result.BoundTime, "%d ended when the time was over"},
		{"open", "%d not decided"},
	} {
		if n := count[way.bound]; n > 0 {
			text += ", " + fmt.Sprintf(way.text, n)
		}
	}
	return text + fmt.Sprintf(". Looked at after %s %s; intervals are computed with %.4g %%, so that %g %% hold.",
		numbersText(s.Until.Looks), several, 100*float64(s.Until.Confidence), 100*s.Confidence)
}

func numbersText(list []int) string {
	var texts []string
	for _, n := range list {
		texts = append(texts, fmt.Sprint(n))
	}
	return words.Or(words.Listed(texts), "no")
}

// endedText says how a cell of a run ended.
func endedText(s analysis.Summary, e *analysis.Ended) string {
	switch {
	case e == nil:
		return "not decided: the run was interrupted, or the cell has no figure"
	case e.Exact():
		return "exact enough"
	case e.Bound == result.BoundTime:
		return "the time was over"
	}
	return "all " + words.Plural(repeat(s)) + " were measured"
}

// endedLines lists, for the terminal, the cells that did not become exact enough.
func endedLines(s analysis.Summary) (out []string) {
	for _, c := range s.Cells {
		if s.Until == nil || c.Ended != nil && c.Ended.Exact() {
			continue
		}
		line := "  " + s.Dimensions.Label(c.Cell) + ": " + endedText(s, c.Ended)
		if c.Ended != nil && c.Ended.WidthPct.Known() {
			line += fmt.Sprintf(" at ±%.2g %%, after %s", float64(c.Ended.WidthPct), words.Counted(c.Ended.Blocks, repeat(s)))
		}
		out = append(out, line)
	}
	return out
}

// endedGrid lists how each cell ended.
func endedGrid(s analysis.Summary) grid {
	if s.Until == nil {
		return grid{}
	}
	g := newGrid("How each cell ended", "<Cell", words.Capitalised(words.Plural(repeat(s))), "Half of the interval|%",
		"<Ended")
	for _, c := range s.Cells {
		name, end := s.Dimensions.Label(c.Cell), c.Ended
		if end == nil {
			end = &analysis.Ended{Blocks: c.Blocks, WidthPct: analysis.Absent()}
		}
		g.add(c.Cell.String(), nameCell(name, name), countCell(end.Blocks), numberCell(end.WidthPct, digits3),
			textCell(endedText(s, c.Ended)))
	}
	return g
}
