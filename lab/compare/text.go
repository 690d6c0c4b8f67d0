package compare

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Text writes the comparison for a terminal or a job's log.
func Text(w io.Writer, c Comparison) error {
	var b strings.Builder
	for _, line := range c.sides() {
		b.WriteString(line + "\n")
	}
	if len(c.Differences) > 0 {
		b.WriteString("\nNot the same in A and B, and so a possible cause of a change:\n")
		for _, d := range c.Differences {
			fmt.Fprintf(&b, "  %s: %s, then %s\n", result.OneLine(d.What), setting(d.A), setting(d.B))
		}
	}
	if len(c.Cells) > 0 {
		fmt.Fprintf(&b, "\n%s\n", c.scope())
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, strings.Join(c.columns(), "\t"))
		for i := range c.Cells {
			fmt.Fprintln(table, strings.Join(c.row(&c.Cells[i]), "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	b.WriteByte('\n')
	for _, line := range c.remarks() {
		b.WriteString(result.OneLine(line) + "\n")
	}
	if c.Gate != nil {
		b.WriteString("\n" + words.Capitalised(c.Gate.Sentence) + ".\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sides are one line a run.
func (c *Comparison) sides() []string {
	describe := func(s Side) string {
		parts := []string{result.OneLine(s.Name), result.OneLine(s.Experiment), s.Start, "gateweigh " + result.OneLine(s.GateweighVersion)}
		parts = append(parts, fmt.Sprintf("%d trials accepted, %d rejected", s.Trials.Accepted, s.Trials.Rejected))
		return strings.Join(parts, " · ")
	}
	if c.A == nil {
		return []string{"Run: " + describe(c.B)}
	}
	return []string{"A: " + describe(*c.A), "B: " + describe(c.B)}
}

// shared are the dimensions that all cells of the table have in common, the device's
// name left out.
func (c *Comparison) shared() (list []result.Value) {
	for _, v := range c.Cells[0].At.Without(result.DUT).Values() {
		if !slices.ContainsFunc(c.Cells, func(cell Cell) bool { return cell.At.Text(v.Dimension) != v.Text }) {
			list = append(list, v)
		}
	}
	return list
}

// scope is what all cells of the table are, and place what sets one apart.
func (c *Comparison) scope() string {
	var common []string
	for _, v := range c.shared() {
		common = append(common, result.OneLine(inWords(v)))
	}
	if len(common) == 0 {
		return "Cells:"
	}
	return "Cells, all with " + strings.Join(common, ", ") + ":"
}

func (c *Comparison) place(cell result.Cell) string {
	parts := []string{result.OneLine(cell.Text(result.DUT))}
	for _, v := range cell.Without(result.DUT).Values() {
		if !slices.Contains(c.shared(), v) {
			parts = append(parts, result.OneLine(inWords(v)))
		}
	}
	return strings.Join(parts, ", ")
}

// inWords says a dimension with its value as a reader says it.
func inWords(v result.Value) string {
	if v.Dimension == result.Direction {
		return words.Direction(v.Text)
	}
	return analysis.WordsOf(v)
}

// columns are the heads of the table, and row is one of its rows.
func (c *Comparison) columns() []string {
	if c.A == nil {
		return []string{"cell", "overhead ×", "gate"}
	}
	heads := []string{"cell", "A ×", "B ×", "change", "p"}
	if c.Metric.Against == analysis.NotCompared {
		heads[1], heads[2] = "A, "+c.Metric.Unit, "B, "+c.Metric.Unit
	}
	for _, m := range c.Beside {
		heads = append(heads, m.Short)
	}
	heads = append(heads, "verdict")
	if c.Gate != nil {
		heads = append(heads, "gate")
	}
	return heads
}

func (c *Comparison) row(cell *Cell) []string {
	if c.A == nil {
		return []string{c.place(cell.At), ratioText(cell.B.Judged), cell.Overhead.text()}
	}
	row := []string{
		c.place(cell.At), ratioText(cell.A.Judged), ratioText(cell.B.Judged), changeText(cell.Change), pText(cell.PDifferent),
	}
	for _, m := range c.Beside {
		row = append(row, c.absolute(cell.Changes[m.Name]))
	}
	row = append(row, cell.verdictText())
	if c.Gate != nil {
		row = append(row, cell.gateText())
	}
	return row
}

// absolute prints the change of an absolute figure, where it means something.
func (c *Comparison) absolute(e analysis.Estimate) string {
	if !c.SameMachine {
		return none
	}
	return signed(e.Mean)
}

func (cell *Cell) verdictText() string {
	if cell.BlocksNeeded != nil {
		return fmt.Sprintf("%s (+%d blocks)", cell.Verdict, *cell.BlocksNeeded)
	}
	return cell.Verdict
}

func (cell *Cell) gateText() string {
	var parts []string
	for _, d := range []*Decision{cell.Regression, cell.Overhead} {
		if d != nil {
			parts = append(parts, d.text())
		}
	}
	return strings.Join(parts, ", ")
}

func (d *Decision) text() string {
	switch {
	case d == nil:
		return ""
	case d.BlocksNeeded != nil:
		return fmt.Sprintf("%s (+%d blocks)", d.Word, *d.BlocksNeeded)
	}
	return d.Word
}

// remarks are the lines under the table.
func (c *Comparison) remarks() []string {
	var out []string
	for _, cell := range c.OnlyA {
		out = append(out, "Only in A: "+Label(cell))
	}
	for _, cell := range c.OnlyB {
		out = append(out, "Only in B: "+Label(cell))
	}
	for i := range c.Cells {
		if cell := &c.Cells[i]; c.A != nil && cell.Verdict == Inconclusive {
			out = append(out, fmt.Sprintf("%s: %s.", Label(cell.At), cell.VerdictNote))
		}
	}
	if c.NoiseFloorPct.Known() {
		out = append(out, fmt.Sprintf("Noise floor: two clean routers differed by up to %.2f %%; no smaller change is called.", float64(c.NoiseFloorPct)))
	}
	if !c.SameMachine {
		var heads []string
		for _, m := range c.Beside {
			heads = append(heads, m.Short)
		}
		out = append(out, strings.Join(heads, " and ")+" cannot be compared: the machine is not the same.")
	}
	for _, w := range c.Warnings {
		out = append(out, "Warning: "+w)
	}
	return append(out, c.reading())
}

func (c *Comparison) reading() string {
	if c.A == nil {
		return fmt.Sprintf("How to read it: overhead × is router CPU per delivered bit over a clean router's, with its %s interval over blocks.", percent(c.Confidence))
	}
	what := "A × and B × are router CPU per delivered bit over a clean router's, change is B × over A ×"
	if c.Metric.Against == analysis.NotCompared {
		what = fmt.Sprintf("A and B are %s in %s, change is B over A", strings.ReplaceAll(c.Metric.Name, "_", " "), c.Metric.Unit)
	}
	return fmt.Sprintf("How to read it: %s, "+
		"all with %s intervals over blocks; p is adjusted for %s. Worse or better: certain to have changed, by more than %s as estimated. "+
		"Equivalent: certain to have changed by less.", what, percent(c.Confidence), words.Counted(c.Multiplicity.Verdicts, "cell"), percent(c.Delta))
}

// none stands where a figure is absent.
const none = "–"

// percent prints a share without needless digits.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e6)/1e4, 'f', -1, 64) + " %"
}

// signed prints a ratio as a change in per cent.
func signed(ratio analysis.Number) string {
	if !ratio.Known() {
		return none
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(ratio)-1))
}

func changeText(e analysis.Estimate) string {
	if !e.HasInterval() {
		return none
	}
	return fmt.Sprintf("%s [%+.1f, %+.1f]", signed(e.Mean), 100*(float64(e.Lo)-1), 100*(float64(e.Hi)-1))
}

func ratioText(e analysis.Estimate) string {
	switch {
	case !e.Mean.Known():
		return none
	case !e.HasInterval():
		return fmt.Sprintf("%.3f", float64(e.Mean))
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", float64(e.Mean), float64(e.Lo), float64(e.Hi))
}

func pText(p analysis.Number) string {
	switch {
	case !p.Known():
		return none
	case p < 0.001:
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", float64(p))
}

// shown bounds a setting in runes: a device's script would fill the page.
const shown = 160

// setting prints one side of a difference.
func setting(s string) string {
	if s == "" {
		return "none"
	}
	runes := []rune(result.OneLine(s))
	if len(runes) > shown {
		return string(runes[:shown-1]) + "…"
	}
	return string(runes)
}
