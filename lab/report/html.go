package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

var (
	//go:embed report.html.tmpl
	pageSource string
	//go:embed report.css
	pageStyle string
	//go:embed report.js
	pageScript string
)

var page = template.Must(template.Must(template.New("report").Parse(pageSource)).Parse(flameSource))

// pageData is all the template sees: strings ready to print, in the order of
// the page.
type pageData struct {
	Style    template.CSS
	Script   template.JS
	Title    string
	Subtitle string
	Meta     []string
	Contents []entry

	Question   string // heading of the first section
	Empty      string // what stands there when there is nothing to show
	Lead       string
	Picture    picture
	FoundCount string
	Warnings   []string
	Reading    string
	ModeNote   string

	Claims  []claim
	Groups  []figureGroup
	Studies []studyPart

	Capacity   []figure
	CostModels grid
	Flames     *flames
	Results    grid
	Further    []grid
	Increments grid
	Linearity  grid
	Ceilings   grid

	Noise        string
	NoiseFigure  []figure
	Stability    []figure
	Multiplicity string
	Counts       string
	Rejects      []rejectRow
	MoreReasons  int
	Rejected     []rejectedTrial
	MoreReject   int
	Failed       []failedRow
	MoreFailed   int
	Limits       []string // sentences: what devices broke at
	Skipped      []result.Skip
	Facts        []fact
	Offloads     []string
	Notes        []string
	Command      string
}

// entry is a line of the table of contents.
type entry struct{ ID, Name string }

// HTML writes the result as one self-contained page: no network, no other file.
// The summaries in with complete the comparison with published studies, as
// studies.Beside takes them.
func HTML(w io.Writer, run result.Run, s analysis.Summary, with ...analysis.Summary) error {
	var b bytes.Buffer
	if err := page.Execute(&b, describePage(run, s, with)); err != nil {
		return fmt.Errorf("write the report page: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func describePage(run result.Run, s analysis.Summary, with []analysis.Summary) pageData {
	env := run.Environment
	d, v := newDrawing(run, s), viewOf(s)
	data := pageData{
		Style: template.CSS(pageStyle + flameStyle), Script: template.JS(pageScript),
		Title: words.Or(s.Experiment, "Run"), Subtitle: env.Title, Meta: pageMeta(run, s),
		Empty:      "No trial of a device under test was recorded, so there is nothing to compare. The sections below say what was skipped, rejected or went wrong.",
		FoundCount: findingCounts(s.Findings), Warnings: s.Warnings, Reading: unbroken(words.Capitalised(v.reading(s))),
		Counts:  fmt.Sprintf("%s accepted, %d rejected by self-tests, %d redone.", words.Counted(s.Trials.Accepted, s.Noun), s.Trials.Rejected, s.Trials.Redone),
		Skipped: s.Skipped, Facts: facts(env), Offloads: env.Offloads, Notes: env.Notes, Command: env.Command,
	}
	lead, ranking := v.first(d)
	data.Lead, data.Picture = lead, ranking.picture(s.Skipped)
	v.fill(&data, d, s)
	data.Claims = claims(s.Findings)
	if env.Sides == nil {
		data.Studies = d.studyParts(append([]analysis.Summary{s}, with...), s.Findings)
	}
	data.addTrust(run, s)
	data.Contents = data.contents()
	return data
}

// contents lists the sections the page has.
func (data *pageData) contents() []entry {
	out := []entry{{"costs", data.Question}}
	for _, section := range []struct {
		there bool
		entry
	}{
		{len(data.Claims) > 0, entry{"findings", "Published findings"}},
		{len(data.Groups) > 0, entry{"charts", "Charts"}},
		{len(data.Studies) > 0, entry{"study", "Beside the study"}},
		{len(data.Capacity)+len(data.CostModels.Rows)+len(data.Ceilings.Rows) > 0, entry{"capacity", "Capacity"}},
		{data.Flames != nil, entry{"flames", "Where the time goes"}},
		{len(data.Results.Rows) > 0, entry{"results", "Results"}},
		{true, entry{"trust", "How far to trust it"}},
		{true, entry{"environment", "Environment"}},
		{data.Command != "", entry{"repeat", "Repeat it"}},
	} {
		if section.there {
			out = append(out, section.entry)
		}
	}
	return out
}

func pageMeta(run result.Run, s analysis.Summary) []string {
	env := run.Environment
	var out []string
	if !env.Start.IsZero() {
		out = append(out, env.Start.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	if d := run.MeasuredFor(); d > 0 {
		out = append(out, "took "+d.Round(time.Second).String())
	}
	for _, text := range []string{viewOf(s).how(s), profilesOf(s), env.CPUModel} {
		if text != "" {
			out = append(out, text)
		}
	}
	if env.Kernel != "" {
		out = append(out, "Linux "+env.Kernel)
	}
	return out
}

// profilesOf are the profiles of the run's cells.
func profilesOf(s analysis.Summary) string {
	var all []string
	for _, c := range s.Cells {
		all = append(all, c.Text(result.Profile))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// costView shows what a device costs.
var costView = view{
	how:     func(s analysis.Summary) string { return words.Or(s.Mode, "mode unknown") },
	columns: columnsOf, remarks: costRemarks, reading: costReading, first: costScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "What it costs"
		if s.Sides != nil {
			data.Question = "How the two labs compare"
		}
		if failsSomewhere(s) {
			data.Question = "What they carry, and what they cost"
		}
		data.ModeNote, data.Multiplicity = modeNote(s), multiplicityNote(s)
		data.Groups, data.Flames = d.groups(), flameSection(d.dir, s)
		data.Capacity, data.CostModels, data.Ceilings = d.capacityFigures(), costModelGrid(s.CostModels), ceilingsGrid(s.Ceilings)
		data.Results, data.Further, data.Increments, data.Linearity = resultsGrid(s), furtherGrids(s), incrementsGrid(s), linearityGrid(s)
		data.Noise, data.NoiseFigure, data.Stability = unbroken(words.Capitalised(noiseSentence(s.AA))), d.noiseFigure(), d.stabilityFigures()
	},
}

func modeNote(s analysis.Summary) string {
	weighed := words.Capitalised(sidesSentence(s))
	switch s.Mode {
	case result.ModeDuet:
		return "Duet: DUT and clean router run at the same time in two labs with the same placement and load, so noise of the machine cancels in their ratio. " +
			"Each block rebuilds both labs and swaps which of them carries the DUT. " + weighed
	case result.ModeSolo:
		return "Solo: DUT and clean router are measured one after the other, so noise of the machine does not cancel and shows in the intervals. " + weighed
	}
	return ""
}

// multiplicityNote says how the verdicts are taken together.
func multiplicityNote(s analysis.Summary) string {
	if s.Multiplicity.Verdicts < 2 || s.Multiplicity.Method == "" {
		return ""
	}
	return fmt.Sprintf("Verdicts are corrected for judging %d cells at once (%s): the chance that even one of them is wrong is at most %.3g\u00a0%%.",
		s.Multiplicity.Verdicts, words.Capitalised(s.Multiplicity.Method), 100*(1-s.Confidence))
}
