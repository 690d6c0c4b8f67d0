package report

import (
	"fmt"
	"html/template"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
	"github.com/gateweigh/gateweigh/lab/words"
)

// claim is one claim of a study with what was found of it: in a line, and
// device by device.
type claim struct {
	Study    int
	ID, Text string
	Line     []foundLine
	Found    []found
}

// foundLine is the devices of which a claim has the same outcome.
type foundLine struct{ Word, Class, Devices string }

// found is what the run says of a claim for one device.
type found struct {
	ID                  string // on the page
	Device, Word, Class string
	Here                template.HTML
	ExpectName          string
	Expect              template.HTML
}

// outcomes are what a claim can come to, in the order a reader looks for them,
// by the class of its badge.
var outcomes = []struct{ class, word string }{
	{"holds", "holds here"}, {"fails", "does not hold here"}, {"open", "left open"}, {"untested", "not tested"},
}

// outcome is what a finding came to: its words and the class of its badge.
func outcome(f analysis.Finding) (word, class string) {
	n := 3
	switch {
	case f.Holds != nil && *f.Holds:
		n = 0
	case f.Holds != nil:
		n = 1
	case f.Open:
		n = 2
	}
	return outcomes[n].word, outcomes[n].class
}

// claims groups the findings that share a claim. Those of which this run says
// nothing come last.
func claims(findings []analysis.Finding) []claim {
	var tested, open []claim
	for len(findings) > 0 {
		n, said := 0, false
		c := claim{Study: findings[0].Study, Text: findings[0].Claim}
		for n < len(findings) && findings[n].Claim == c.Text && findings[n].Study == c.Study {
			c.Found = append(c.Found, describeFinding(findings[n]))
			said = said || findings[n].Holds != nil
			n++
		}
		c.ID, _, _ = strings.Cut(findings[0].ID, "/")
		c.Line = foundLines(c.Found)
		findings = findings[n:]
		if said {
			tested = append(tested, c)
		} else {
			open = append(open, c)
		}
	}
	return append(tested, open...)
}

// foundLines gathers the devices with the same outcome: those of which the
// claim holds first, those that leave it open last.
func foundLines(list []found) []foundLine {
	var out []foundLine
	for _, o := range outcomes {
		var devices []string
		count := 0
		for _, f := range list {
			if f.Class != o.class {
				continue
			}
			count++
			if f.Device != "" {
				devices = append(devices, f.Device)
			}
		}
		if count > 0 {
			out = append(out, foundLine{o.word, o.class, strings.Join(devices, ", ")})
		}
	}
	return out
}

func describeFinding(f analysis.Finding) found {
	_, device, _ := strings.Cut(f.ID, "/")
	here, cut := strings.CutPrefix(f.Here, device+": ")
	if cut || strings.HasPrefix(here, "the ") { // names of devices are written as they are
		here = words.Capitalised(here)
	}
	out := found{
		ID: findingID(f.ID), Device: routerName(device), Here: prose(here), Expect: prose(f.Expect),
		ExpectName: "Why a difference is to be expected",
	}
	out.Word, out.Class = outcome(f)
	if f.Holds == nil {
		out.ExpectName = "To settle it"
	}
	return out
}

var commandInText = regexp.MustCompile("`([^`]+)`")

// prose is text whose commands, between backquotes, are set as such.
func prose(s string) template.HTML {
	return template.HTML(commandInText.ReplaceAllString(template.HTMLEscapeString(unbroken(s)), "<code>$1</code>"))
}

// findingCounts says how many findings hold; empty when there are none.
func findingCounts(findings []analysis.Finding) string {
	count := map[string]int{}
	for _, f := range findings {
		_, class := outcome(f)
		count[class]++
	}
	if len(findings) == 0 {
		return ""
	}
	verb := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return fmt.Sprintf("Of %s of published work, %s here, %s, %s left open and %s not tested by this run.", words.Counted(len(findings), "finding"),
		verb(count["holds"], "holds", "hold"), verb(count["fails"], "does not", "do not"), verb(count["open"], "is", "are"), verb(count["untested"], "was", "were"))
}

// studyTable is a table of a study ready to print: what was measured here and
// what was published side by side.
type studyTable struct {
	ID, Heading, Level string
	Heads              []studyHead
	Subheads           []studySubhead
	Rows               []gridRow
	Signs              []string // what the signs beside figures mean
	Note               template.HTML
}

// studyHead spans the columns of one quantity, studySubhead is one of them.
type studyHead struct {
	Name string
	Span int
	Note string
}

type studySubhead struct {
	Name, Unit string
	Published  bool
}

// studyPart is one study: its questions, its figures and tables beside the
// published ones, those in the open and those in folds.
type studyPart struct {
	Answers     answerTable
	Figures     []studyFigure
	FigureFolds []studyFold
	Tables      []studyTable
	TableFolds  []studyFold
	Missing     []template.HTML
}

// studyFold is figures or tables that are folded away under a heading.
type studyFold struct {
	Heading string
	Figures []studyFigure
	Tables  []studyTable
}

// studyParts are the studies of which the runs hold something.
func (d *drawing) studyParts(runs []analysis.Summary, findings []analysis.Finding) []studyPart {
	var out []studyPart
	for _, study := range studies.Beside(runs...) {
		if len(study.Answers.Rows)+len(study.Tables)+len(study.Figures) == 0 {
			continue
		}
		part := studyPart{Answers: describeAnswers(study.Answers, findings)}
		for _, f := range study.Figures {
			if view := d.studyFigure(f); f.Fold == "" {
				part.Figures = append(part.Figures, view)
			} else {
				fold := foldNamed(&part.FigureFolds, f.Fold)
				fold.Figures = append(fold.Figures, view)
			}
		}
		for _, t := range study.Tables {
			if view := describeTable(t); t.Fold == "" {
				part.Tables = append(part.Tables, view)
			} else {
				fold := foldNamed(&part.TableFolds, t.Fold)
				fold.Tables = append(fold.Tables, view)
			}
		}
		for _, text := range study.Missing {
			part.Missing = append(part.Missing, prose(text))
		}
		out = append(out, part)
	}
	return out
}

// foldNamed is the fold with a heading, appended when there is none.
func foldNamed(folds *[]studyFold, heading string) *studyFold {
	i := slices.IndexFunc(*folds, func(f studyFold) bool { return f.Heading == heading })
	if i < 0 {
		i, *folds = len(*folds), append(*folds, studyFold{Heading: heading})
	}
	return &(*folds)[i]
}

func describeTable(t studies.Table) studyTable {
	out := studyTable{ID: t.ID, Heading: t.Title + ": " + t.Caption, Note: prose(t.Note)}
	if len(t.Columns) == 0 {
		return out
	}
	out.Level = withUnit(t.Columns[0].Name, t.Columns[0].Unit)
	out.describeHeads(t.Columns[1:])
	used := map[string]bool{}
	for _, row := range t.Rows {
		view := gridRow{Key: t.ID + "|" + row.Level.String(), Cells: []gridCell{{Main: digits4(row.Level), Sort: row.Level.String(), Header: true}}}
		for i, v := range row.Values {
			col := t.Columns[1+i]
			if col.Measured {
				cell := estimateCell(v.Here, bare)
				cell.Main += signs(v.Flags, used)
				view.Cells = append(view.Cells, cell)
			}
			if col.Published {
				cell := numberCell(v.Published, published)
				cell.Badge = "published"
				view.Cells = append(view.Cells, cell)
			}
		}
		out.Rows = append(out.Rows, view)
	}
	for _, f := range flagSigns {
		if used[f.flag] {
			out.Signs = append(out.Signs, f.sign+" "+f.flag)
		}
	}
	return out
}

// describeHeads heads each quantity and below it what was measured here and
// what was published. What was not measured says so once, above its column,
// not by a gap in every row.
func (t *studyTable) describeHeads(columns []studies.Column) {
	for _, col := range columns {
		head := studyHead{Name: col.Name}
		if col.Measured {
			head.Span++
			t.Subheads = append(t.Subheads, studySubhead{"here", col.Unit, false})
		}
		if col.Published {
			head.Span++
			t.Subheads = append(t.Subheads, studySubhead{"published", col.PublishedUnit, true})
			if !col.Measured {
				head.Note = "not measured here"
			}
		}
		if head.Span > 0 {
			t.Heads = append(t.Heads, head)
		}
	}
}

// flagSigns stand in tables for what weakens a figure.
var flagSigns = []struct{ flag, sign string }{
	{cost.FlagShortfall, "*"}, {result.FlagSaturated, "†"}, {result.FlagLossy, "‡"},
}

// signs are the signs of flags; those used are noted.
func signs(flags []string, used map[string]bool) string {
	out := ""
	for _, f := range flagSigns {
		if slices.Contains(flags, f.flag) {
			out, used[f.flag] = out+f.sign, true
		}
	}
	return out
}

func withUnit(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + ", " + unit
}

// published prints a figure of a study with the decimals its tables have.
func published(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	return words.Grouped(fmt.Sprintf("%.2f", float64(n)))
}

// studyFigure is a figure of a study: panels beside each other.
type studyFigure struct {
	Heading string
	Figures []figure
	Note    template.HTML
}

func (d *drawing) studyFigure(f studies.Figure) studyFigure {
	view := studyFigure{Heading: f.Title + ": " + f.Caption, Note: prose(f.Note)}
	for _, p := range f.Panels {
		view.Figures = append(view.Figures, d.studyPanel(f, p))
	}
	return view
}

func (d *drawing) studyPanel(f studies.Figure, p studies.Panel) figure {
	ch := chart.XY{Title: f.Title + ", " + p.Title, XLabel: f.XLabel, YLabel: p.YLabel, LogY: p.LogY, Reference: float64(p.Reference), Band: noBand()}
	if !p.Reference.Known() {
		ch.Reference = math.NaN()
	}
	data := grid{Head: []gridHead{{Name: "Series", Text: true}, {Name: f.XLabel}, {Name: p.YLabel}}}
	isPublished := func(s studies.Series) bool { return s.Published }
	isMeasured := func(s studies.Series) bool { return !s.Published && !s.Guide }
	mixed := slices.ContainsFunc(p.Series, isPublished) && slices.ContainsFunc(p.Series, isMeasured)
	var tips []string
	shortfall := false
	for _, s := range p.Series {
		line := chart.Series{Name: s.Name, Guide: s.Guide}
		if !s.Guide {
			line.Style = d.style(s.DUT)
			line.Style.Hollow = s.Published
		}
		for _, pt := range s.Points {
			at, known := studyPoint(s, pt)
			if !known {
				continue
			}
			// Beside published series a hollow mark would be taken for one of theirs.
			at.Hollow = !mixed && slices.Contains(pt.Flags, cost.FlagShortfall)
			shortfall = shortfall || at.Hollow
			line.Points = append(line.Points, at)
			if !s.Guide {
				tips = append(tips, at.Tip)
				data.Rows = append(data.Rows, gridRow{Key: at.Key, Cells: []gridCell{
					{Main: s.Name, Text: true, Header: true}, numberCell(pt.X, digits4), estimateCell(pt.Y, digits3)}})
			}
		}
		ch.Series = append(ch.Series, line)
	}
	ch.Desc = sentences(tips)
	caption := ""
	switch {
	case mixed:
		caption = "Filled marks and solid lines were measured here; hollow marks and dashed lines are published."
	case shortfall:
		caption = "Hollow marks: the device carried more than 10 % less than the load."
	}
	fig := d.finish(ch.Title, caption, ch.Draw, data)
	fig.Heading = p.Title
	return fig
}

// studyPoint is a point of a study's figure, if its figures are known.
func studyPoint(s studies.Series, pt studies.Point) (at chart.Point, known bool) {
	tip := fmt.Sprintf("%s: %s %s at %s", s.Name, digits3(pt.Y.Mean), bounds(pt.Y, digits3), digits4(pt.X))
	if len(pt.Flags) > 0 {
		tip += " (" + strings.Join(pt.Flags, ", ") + ")"
	}
	at = estimatePoint(float64(pt.X), pt.Y, tip)
	at.Key = s.Name + "|" + pt.X.String()
	return at, pt.Y.Mean.Known() && pt.X.Known()
}
