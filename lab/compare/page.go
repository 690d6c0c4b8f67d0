// A comparison as text and as Markdown.

package compare

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// page has the texts that the terminal, Markdown and HTML forms of a comparison share, one line each.
type page struct {
	Headline    string
	Mark        string   // about all figures; empty for none
	Sides       []string // one line for each run
	Differences []string
	Scope       string     // the dimensions that all cells of the table share
	Table       [][]string // heads, then rows; empty without cells
	Remarks     []string
	Gate        string // empty without limits
}

const differencesHead = "Not the same in A and B, and so a possible cause of a change:"

var textForm = template.Must(template.New("").Funcs(template.FuncMap{"row": func(cells []string) string {
	return strings.Join(cells, "\t")
}}).Parse(
	`{{with .Mark}}{{.}}

{{end}}{{range .Sides}}{{.}}
{{end}}{{with .Differences}}
` + differencesHead + `
{{range .}}  {{.}}
{{end}}{{end}}{{with .Table}}
{{$.Scope}}
{{range .}}{{row .}}
{{end}}{{end}}
{{range .Remarks}}{{.}}
{{end}}{{with .Gate}}
{{.}}
{{end}}`))

var markdownForm = template.Must(template.New("").Funcs(template.FuncMap{"e": escape}).Parse(
	`### Gateweigh: {{e .Headline}}

{{with .Mark}}**{{e .}}**

{{end}}{{range .Sides}}- {{e .}}
{{end}}{{with .Table}}
{{e $.Scope}}

{{range $n, $row := .}}|{{range $row}} {{e .}} |{{end}}
{{if eq $n 0}}{{range $row}}| --- {{end}}|
{{end}}{{end}}{{end}}{{with .Differences}}
` + differencesHead + `

{{range .}}- {{e .}}
{{end}}{{end}}
{{range .Remarks}}- {{e .}}
{{end}}`))

// Text writes the comparison for a terminal or a job's log.
func Text(w io.Writer, c Comparison) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if err := textForm.Execute(table, c.page()); err != nil {
		return err
	}
	return table.Flush()
}

// Markdown writes the comparison for the summary of a job or a comment, as GitHub and GitLab show it.
func Markdown(w io.Writer, c Comparison) error {
	var b strings.Builder
	err := markdownForm.Execute(&b, c.page())
	if err == nil {
		_, err = io.WriteString(w, result.PrintablePage(b.String()))
	}
	return err
}

// escape makes a text of unknown origin plain in Markdown: it has no effect as markup, table cell or HTML.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_[]|#~!@", r) {
			b.WriteByte('\\')
		}
		switch r {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// page makes the texts of the comparison.
func (c *Comparison) page() (p page) {
	p.Headline, p.Mark = c.headline()+c.markInBrackets(), c.marked()
	if c.A == nil {
		p.Sides = []string{"Run: " + c.B.line()}
	} else {
		p.Sides = []string{"A: " + c.A.line(), "B: " + c.B.line()}
	}
	for _, d := range c.Differences {
		p.Differences = append(p.Differences, d.String())
	}
	if len(c.Cells) > 0 {
		p.Scope, p.Table = c.scope(), [][]string{c.row(nil)}
	}
	for i := range c.Cells {
		p.Table = append(p.Table, c.row(&c.Cells[i]))
	}
	for _, line := range c.remarks() {
		p.Remarks = append(p.Remarks, result.OneLine(line))
	}
	if c.Gate != nil {
		p.Gate = words.Capitalised(c.Gate.Sentence) + "."
	}
	return p
}

// headline returns the gate's outcome, or counts the verdicts.
func (c *Comparison) headline() string {
	if c.Gate != nil {
		return strings.TrimSuffix(c.Gate.Sentence, c.markInBrackets())
	}
	count := map[string]int{}
	for _, cell := range c.Cells {
		count[cell.Verdict]++
	}
	var parts []string
	for _, word := range []string{Worse, Better, Equivalent, Inconclusive} {
		if count[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[word], word))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing to compare")
}

// line describes the run in one line: its name and its facts.
func (s Side) line() string { return result.OneLine(s.Name) + " · " + s.facts() }

// facts returns the properties of the run that stand behind its name.
func (s Side) facts() string {
	parts := []string{
		s.Experiment, s.Start, "gateweigh " + s.GateweighVersion,
		fmt.Sprintf("%s accepted, %d rejected", words.Counted(s.Trials.Accepted, "trial"), s.Trials.Rejected),
	}
	if s.VM != nil {
		parts = append(parts, s.VM.String())
	}
	if s.Slowed != nil {
		parts = append(parts, s.Slowed.String())
	}
	return result.OneLine(strings.Join(parts, " · "))
}

// shared reports whether all cells of the table have the value.
func (c *Comparison) shared(v result.Value) bool {
	return !slices.ContainsFunc(c.Cells, func(cell Cell) bool { return cell.Dimensions.Text(v.Dimension) != v.Text })
}

// values returns a cell's dimensions in words, without the device: those that all cells share, or the others.
func (c *Comparison) values(cell result.Cell, shared bool) (list []string) {
	for _, v := range cell.Without(result.DUT).Values() {
		if c.shared(v) != shared {
			continue
		}
		text := c.dimensions.Say(v)
		if v.Dimension == result.Direction {
			text = words.Direction(v.Text)
		}
		list = append(list, result.OneLine(text))
	}
	return list
}

// scope describes the dimensions that all cells of the table share.
func (c *Comparison) scope() string {
	if common := c.values(c.Cells[0].Dimensions, true); len(common) > 0 {
		return "Cells" + c.markInBrackets() + ", all with " + strings.Join(common, ", ") + ":"
	}
	return "Cells" + c.markInBrackets() + ":"
}

// row returns one row of the table. For a nil cell it returns the headings.
func (c *Comparison) row(cell *Cell) (row []string) {
	column := func(head string, text func() string) {
		if cell == nil {
			row = append(row, head)
		} else {
			row = append(row, text())
		}
	}
	a, b := "A ×", "B ×"
	if !c.ratio() {
		a, b = "A, "+c.Metric.Unit+c.markInBrackets(), "B, "+c.Metric.Unit+c.markInBrackets()
	}
	column("cell", func() string {
		return strings.Join(
			append([]string{result.OneLine(cell.Dimensions.Text(result.DUT))}, c.values(cell.Dimensions, false)...), ", ")
	})
	if c.A == nil {
		column(c.figure(), func() string { return ratioText(cell.judgedFigure()) })
		column("gate", func() string { return cell.Overhead.text() })
		return row
	}
	column(a, func() string {
		if cell.A == nil {
			return absentFigure
		}
		return ratioText(cell.A.Judged)
	})
	column(b, func() string { return ratioText(cell.judgedFigure()) })
	column("change", func() string { return changeText(cell.Deciding) })
	column("p", func() string { return pText(cell.PDifferent) })
	for _, m := range c.Beside {
		if c.Mark != "" {
			break // the columns that follow are absolute figures
		}
		column(m.Short, func() string {
			if !c.SameMachine { // the change of an absolute figure means nothing on another machine
				return absentFigure
			}
			return signed(cell.Changes[m.Name].Mean)
		})
	}
	column("verdict", func() string { return cell.Verdict + blocksText(cell.BlocksNeeded) })
	if c.Gate != nil {
		column("gate", func() string { return words.Joined(", ", cell.Regression.withChange(), cell.Overhead.text()) })
	}
	return row
}

// figure names the judged figure of a run.
func (c *Comparison) figure() string {
	if c.ratio() {
		return "overhead ×"
	}
	return strings.ReplaceAll(c.Metric.Name, "_", " ")
}

// judgedFigure returns B's figure. If a limit applies to it, it has the deciding interval.
func (cell *Cell) judgedFigure() analysis.Estimate {
	if cell.Overhead != nil && cell.Overhead.Interval.HasInterval() {
		return cell.Overhead.Interval
	}
	return cell.B.Judged
}

// text returns the decision's word, with what is to be known about it; empty for nil.
func (d *Decision) text() string {
	switch {
	case d == nil:
		return ""
	case d.inNoise:
		return d.Word + ", within the noise floor"
	}
	return d.Word + blocksText(d.BlocksNeeded)
}

// withChange returns the decision's word with its interval.
func (d *Decision) withChange() string {
	if d == nil || !d.Interval.HasInterval() {
		return d.text()
	}
	return strings.Replace(d.text(), d.Word, d.Word+" "+changeBounds(d.Interval), 1)
}

// remarks returns the lines under the table.
func (c *Comparison) remarks() []string {
	var out []string
	for _, cell := range c.OnlyA {
		out = append(out, "Only in A: "+c.dimensions.Label(cell))
	}
	for _, cell := range c.OnlyB {
		out = append(out, "Only in B: "+c.dimensions.Label(cell))
	}
	var notes remarks
	for _, cell := range c.Cells {
		// otherwise unanswered tells it
		answered := c.Gate == nil || cell.Regression == nil || cell.Regression.Word != CannotTell
		if cell.A != nil && cell.Verdict == Inconclusive && answered {
			notes.add(c.dimensions.Label(cell.Dimensions), cell.VerdictNote)
		}
	}
	out = append(out, notes.lines("")...)
	if c.NoiseFloorPct.Known() {
		out = append(out, fmt.Sprintf(
			"Noise floor: two clean routers differed by up to %.2f %%; no smaller change is called.", float64(c.NoiseFloorPct)))
	}
	if !c.SameMachine && c.Mark == "" {
		var heads []string
		for _, m := range c.Beside {
			heads = append(heads, m.Short)
		}
		out = append(out, strings.Join(heads, " and ")+" cannot be compared: the machine is not the same.")
	}
	if c.Gate != nil {
		for _, m := range c.Gate.Fallen {
			out = append(out,
				fmt.Sprintf("Managed in A and not in B: %s: %s.", c.dimensions.Label(m.Cell), strings.TrimSuffix(m.Why, ".")))
		}
	}
	out = append(out, c.unanswered()...)
	for _, w := range c.Warnings {
		out = append(out, "Warning: "+w)
	}
	if len(c.Cells) > 0 {
		out = append(out, c.howToRead())
	}
	return out
}

// remarks collects remarks, each once, with the cells that they apply to.
type remarks struct {
	texts []string
	cells map[string][]string
}

// add adds a remark about a cell.
func (r *remarks) add(cell, text string) {
	if r.cells == nil {
		r.cells = map[string][]string{}
	}
	if len(r.cells[text]) == 0 {
		r.texts = append(r.texts, text)
	}
	r.cells[text] = append(r.cells[text], cell)
}

// lines formats the remarks after a lead: "a cell: the remark.", or "2 cells: the remark: one; another."
func (r *remarks) lines(lead string) (out []string) {
	for _, text := range r.texts {
		line := r.cells[text][0] + ": " + text
		if n := len(r.cells[text]); n > 1 {
			line = words.Counted(n, "cell") + ": " + text + ": " + strings.Join(r.cells[text], "; ")
		}
		out = append(out, lead+line+".")
	}
	return out
}

// unanswered says why cells have no answer to a limit.
func (c *Comparison) unanswered() (out []string) {
	if c.Gate == nil {
		return nil
	}
	var notes remarks
	for i := range c.Cells {
		cell := &c.Cells[i]
		var reasons []string
		for _, l := range c.limits() {
			if d := *l.decision(cell); d.Word == CannotTell {
				reasons = append(reasons, d.Note)
			}
		}
		if slices.Sort(reasons); len(reasons) > 0 {
			notes.add(c.dimensions.Label(cell.Dimensions), strings.Join(slices.Compact(reasons), "; "))
		}
	}
	out = notes.lines("Without an answer: ")
	for _, m := range c.Gate.Missing {
		out = append(out, fmt.Sprintf("Without an answer: %s: %s.", cmp.Or(c.dimensions.Label(m.Cell), "the rest"),
			strings.TrimSuffix(m.Why, ".")))
	}
	return out
}

// howToRead explains the figures of the table.
func (c *Comparison) howToRead() string {
	quantity, figures := c.Metric.Text+" over a clean router's", "A × and B × are %s, change is B × over A ×"
	if !c.ratio() {
		quantity, figures = c.Metric.Unit, "A and B are "+c.figure()+" in %s, change is B over A"
	}
	if c.A == nil {
		return fmt.Sprintf("How to read it: %s is %s, with its %s interval over blocks. %s", c.figure(), quantity, percent(
			c.Confidence), c.readingOfLimits())
	}
	text := fmt.Sprintf("How to read it: "+figures+
		", all with %s intervals over blocks; that of change is the one of the verdict, for %s together, and p is adjusted "+
		"likewise. "+
		"Worse or better: certain to have changed, by more than %s as estimated. Equivalent: certain to have changed by less.",
		quantity, percent(c.Confidence), words.Counted(c.Multiplicity.Verdicts, "cell"), percent(c.Delta))
	return words.Joined(" ", text, c.readingOfLimits())
}

// readingOfLimits says with which intervals limits are compared. It is empty without limits.
func (c *Comparison) readingOfLimits() string {
	if c.Gate == nil {
		return ""
	}
	together, alone := "lower", "upper"
	if c.Gate.MaxRegressionPct.Known() && c.Metric.Better == analysis.More {
		together, alone = alone, together
	}
	return fmt.Sprintf(
		"A limit is held against the interval shown: beyond it, within it, or, where it holds the limit, no answer; "+
			"its %s end is for all cells together, its %s end for the cell by itself.", together, alone)
}
