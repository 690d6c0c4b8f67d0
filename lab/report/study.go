package report

import (
	"fmt"
	"html/template"
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

// claimRow is one claim of a study with its findings. Line has the devices by outcome, Found has one entry a device.
type claimRow struct {
	Study    int
	ID, Text string
	Line     []foundLine
	Found    []foundForDevice
}

// foundLine has the devices with the same outcome of a claim.
type foundLine struct {
	outcomeWord
	Devices string
}

// foundForDevice is the finding of a claim for one device.
type foundForDevice struct {
	outcomeWord
	ID, Device, ExpectName string // ID: on the page
	Here, Expect           template.HTML
}

// outcomeWord is an outcome of a claim: in words, as an answer to the study's question, and as the class of its badge.
type outcomeWord struct{ Word, Answer, Class string }

// endings are the possible outcomes, in the order in which the page lists them.
var endings = []outcomeWord{
	{"holds here", "yes", "holds"}, {"does not hold here", "no", "fails"}, {"left open", "left open", "open"},
	{"not tested", "not tested", "untested"},
}

// outcome returns the outcome of a finding.
func outcome(f analysis.Finding) outcomeWord { return outcomeWordOf(f.Holds, f.Open) }

func outcomeWordOf(holds *bool, open bool) outcomeWord {
	switch {
	case holds != nil && *holds:
		return endings[0]
	case holds != nil:
		return endings[1]
	case open:
		return endings[2]
	}
	return endings[3]
}

// groupFindings makes one row for each claim. Rows with a decided finding come first, then rows with an open one.
// Claims that the run did not test come last.
func groupFindings(findings []analysis.Finding) []claimRow {
	var tested, open, untested []claimRow
	for len(findings) > 0 {
		c := claimRow{Study: findings[0].Study, Text: findings[0].Claim}
		decided, undecided := false, false
		for len(findings) > 0 && findings[0].Claim == c.Text && findings[0].Study == c.Study {
			f := findings[0]
			c.ID, _, _ = strings.Cut(f.ID, "/")
			c.Found = append(c.Found, describeFinding(f))
			decided, undecided = decided || f.Holds != nil, undecided || f.Open
			findings = findings[1:]
		}
		for _, e := range endings {
			var devices []string
			for _, f := range c.Found {
				if f.outcomeWord == e {
					devices = append(devices, f.Device)
				}
			}
			if devices != nil {
				c.Line = append(c.Line, foundLine{e, words.Joined(", ", devices...)})
			}
		}
		switch {
		case decided:
			tested = append(tested, c)
		case undecided:
			open = append(open, c)
		default:
			untested = append(untested, c)
		}
	}
	return slices.Concat(tested, open, untested)
}

func describeFinding(f analysis.Finding) foundForDevice {
	_, device, _ := strings.Cut(f.ID, "/")
	text, cut := strings.CutPrefix(f.Here, device+": ")
	if cut || strings.HasPrefix(text, "the ") { // names of devices are written as they are
		text = words.Capitalised(text)
	}
	out := foundForDevice{outcome(f), findingID(f.ID), words.Or(f.Pair, routerName(device)), "To settle it", htmlOf(text),
		htmlOf(f.Expect)}
	if f.Holds != nil {
		out.ExpectName = "Why a difference is to be expected"
	}
	return out
}

// findingID returns the id of a finding on the page, without characters that links would escape.
func findingID(finding string) string { return "finding-" + strings.ReplaceAll(finding, "/", ".") }

var commandInText = regexp.MustCompile("`([^`]+)`")

// htmlOf turns text into HTML. Commands between backquotes are set as code.
func htmlOf(s string) template.HTML {
	return template.HTML(commandInText.ReplaceAllString(template.HTMLEscapeString(keepTogether(s)), "<code>$1</code>"))
}

// findingCounts says how many findings hold. It is empty when there are none.
func findingCounts(findings []analysis.Finding) string {
	if len(findings) == 0 {
		return ""
	}
	count := map[string]int{}
	for _, f := range findings {
		count[outcome(f).Class]++
	}
	verb := func(class, one, many string) string {
		if count[class] == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", count[class], many)
	}
	return fmt.Sprintf("Of %s of published work, %s here, %s, %s left open and %s not tested by this run.", words.Counted(
		len(findings), "finding"),
		verb("holds", "holds", "hold"), verb("fails", "does not", "do not"), verb("open", "is", "are"),
		verb("untested", "was", "were"))
}

// studyPart is one study on the page: its questions with the devices' answers, and its figures and tables beside the
// published ones.
type studyPart struct {
	studies.Outcome
	Linked  map[string]string // ids on this page, by finding
	Figures []foldedItems[studyFigure]
	Tables  []foldedItems[studyTable]
}

// foldedItems are figures or tables that are folded away under a heading. Without a heading they are visible.
type foldedItems[T any] struct {
	Heading string
	Items   []T
}

// addFold adds an item to the fold with its heading. The first fold is visible.
func addFold[T any](folds []foldedItems[T], heading string, item T) []foldedItems[T] {
	if folds == nil {
		folds = []foldedItems[T]{{}}
	}
	i := slices.IndexFunc(folds, func(f foldedItems[T]) bool { return f.Heading == heading })
	if i < 0 {
		i, folds = len(folds), append(folds, foldedItems[T]{Heading: heading})
	}
	folds[i].Items = append(folds[i].Items, item)
	return folds
}

// studyParts returns the studies for which the runs have figures.
func (d *drawing) studyParts(runs []analysis.Summary, findings []analysis.Finding) (out []studyPart) {
	for _, study := range studies.Beside(runs...) {
		if len(study.Answers.Rows)+len(study.Tables)+len(study.Figures) == 0 {
			continue
		}
		part := studyPart{Outcome: study, Linked: map[string]string{}}
		for _, f := range findings {
			part.Linked[f.ID] = findingID(f.ID)
		}
		for _, f := range study.Figures {
			view := studyFigure{Figure: f}
			for _, p := range f.Panels {
				view.Figures = append(view.Figures, d.studyPanel(f, p))
			}
			part.Figures = addFold(part.Figures, f.Fold, view)
		}
		for _, t := range study.Tables {
			part.Tables = addFold(part.Tables, t.Fold, describeTable(t))
		}
		out = append(out, part)
	}
	return out
}

// studyTable is a table of a study, with measured figures beside published ones.
type studyTable struct {
	studies.Table
	Printed []gridRow
	Signs   []string // meaning of the signs next to figures
}

func describeTable(t studies.Table) studyTable {
	out := studyTable{Table: t}
	for _, row := range t.Rows {
		view := gridRow{Key: t.ID + "|" + row.Level.String(), Cells: []gridCell{{Main: digits4(row.Level),
			Sort: row.Level.String(), Header: true}}}
		measuredForm, publishedForm := percentBare, published
		if row.Name != "" { // figures are rates
			measuredForm, publishedForm = digits4, digits4
			view.Key, view.Cells[0] = t.ID+"|"+row.Name, nameCell(row.Name, row.Name)
		}
		for i, v := range row.Values {
			col := t.Columns[1+i]
			if col.Measured {
				cell := estimateCell(v.Here, measuredForm)
				for _, f := range flagSigns {
					if slices.Contains(v.Flags, f.flag) {
						cell.Main += f.sign
						out.Signs = append(out.Signs, f.sign+" "+f.flag)
					}
				}
				view.Cells = append(view.Cells, cell)
			}
			if col.Published {
				cell := numberCell(v.Published, publishedForm)
				cell.Badge = "published"
				view.Cells = append(view.Cells, cell)
			}
		}
		out.Printed = append(out.Printed, view)
	}
	out.Signs = distinct(out.Signs)
	slices.Sort(out.Signs) // in the order of flagSigns
	return out
}

// flagSigns are the signs in tables for flags that weaken a figure.
var flagSigns = []struct{ flag, sign string }{
	{cost.FlagShortfall, "*"}, {result.FlagSaturated, "†"}, {result.FlagLossy, "‡"}, {studies.FlagAtLeast, "+"},
}

// published formats a figure with the decimals of the study's tables.
func published(n analysis.Number) string {
	if !n.Known() {
		return absentFigure
	}
	return words.Grouped(decimals(2)(n))
}

// stackedHeight is the height of a plot in a stack, pixels. Three of them fit on a screen.
const stackedHeight = 150

// studyFigure is a figure of a study. Its panels are side by side, or one below the other.
type studyFigure struct {
	studies.Figure
	Figures []figure
}

func (d *drawing) studyPanel(f studies.Figure, p studies.Panel) figure {
	ch := chart.XY{Title: f.Title + ", " + p.Title, XLabel: f.XLabel, YLabel: p.YLabel, Reference: float64(p.Reference),
		LogX: f.LogX, OverTime: f.Course}
	if f.Stacked && !f.Course {
		ch.Height = stackedHeight
	}
	if p.LogY {
		ch.Y = chart.Logarithmic
	}
	data := newGrid("", "<Series", f.XLabel, p.YLabel)
	mixed := slices.ContainsFunc(p.Series, func(s studies.Series) bool { return s.Published }) &&
		slices.ContainsFunc(p.Series, func(s studies.Series) bool { return !s.Published && !s.Guide })
	var tips []string
	shortfall := false
	for _, s := range p.Series {
		line := chart.Series{Name: s.Name, Guide: s.Guide}
		if !s.Guide {
			line.Style = d.style(s.DUT)
			line.Style.Hollow = s.Published
		}
		for _, pt := range s.Points {
			if !pt.X.Known() || !pt.Y.Mean.Known() {
				continue
			}
			tip := fmt.Sprintf("%s: %s %s at %s", s.Name, digits3(pt.Y.Mean), bounds(pt.Y, digits3), digits4(pt.X))
			if len(pt.Flags) > 0 {
				tip += " (" + strings.Join(pt.Flags, ", ") + ")"
			}
			point := meanPoint(s.Name+"|"+pt.X.String(), float64(pt.X), pt.Y, tip)
			// Beside published series, which are hollow, a hollow mark would seem to be one of theirs.
			point.Hollow = !mixed && slices.Contains(pt.Flags, cost.FlagShortfall)
			shortfall = shortfall || point.Hollow
			if f.Course {
				point.Tip, point.Key, point.Value = "", "", ""
			}
			line.Points = append(line.Points, point)
			if !s.Guide && !f.Course {
				tips = append(tips, tip)
				data.add(point.Key, nameCell(s.Name, ""), numberCell(pt.X, digits4), estimateCell(pt.Y, digits3))
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
