package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

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

var page = template.Must(template.Must(template.New("report").Funcs(template.FuncMap{
	"prose": htmlOf, "unbroken": keepTogether, "ending": outcomeWordOf, "limit": limitSentence, "left": leftSentences,
	"where": trialPlace, "fromOne": func(n int) int { return n + 1 },
}).Parse(pageSource)).Parse(flameSource))

// pageData is the data of the page's template, in the order of the page.
type pageData struct {
	Style    template.CSS
	Script   template.JS
	Title    string
	Site     *Site
	Meta     []string
	Contents []Entry
	Summary  analysis.Summary
	result.Environment

	Question   string // heading of the first section
	Empty      string // text in place of missing results
	Lead       string
	Rejection  string // the share of rejected trials
	Picture    picture
	FoundCount string
	Reading    string
	ModeNote   string

	Claims  []claimRow
	Groups  []figureGroup
	Studies []studyPart

	Courses    []figureGroup
	CourseNote string

	Capacity     []figure
	CostModels   grid
	Ceilings     grid
	CeilingsNote string
	Flames       *flames
	Results      grid
	Further      []grid // folded away

	Noise        string
	NoiseFigure  []figure
	Stability    []figure
	Nodes        grid
	Multiplicity string
	Counts       string
	Until        string
	Ended        grid
	Rejects      shortList[rejectRow]
	Rejected     shortList[result.Trial]
	Failed       shortList[analysis.FailedBlock]
	Facts        []fact
}

// HTML writes the result as one self-contained page, which loads nothing from the network or other files. The summaries
// in others complete the comparison with published studies (see studies.Beside).
func HTML(w io.Writer, run result.Run, s analysis.Summary, others ...analysis.Summary) error {
	return HTMLIn(w, nil, run, s, others...)
}

// HTMLIn is HTML for a page that a server shows on its site. A nil site makes a self-contained page.
func HTMLIn(w io.Writer, site *Site, run result.Run, s analysis.Summary, others ...analysis.Summary) error {
	data := describePage(run, s, others)
	if data.Site = site; site != nil && site.Before != "" {
		data.Contents = append(slices.Clone(site.Contents), data.Contents...)
	}
	return write(w, "report", data)
}

// write executes one of the page's templates.
func write(w io.Writer, name string, data any) error {
	var b strings.Builder
	err := page.ExecuteTemplate(&b, name, data)
	if err == nil {
		_, err = io.WriteString(w, result.PrintablePage(b.String()))
	}
	return err
}

// Frame returns the page's head, title and contents.
func (data pageData) Frame() frame {
	return frame{data.Style, data.Script, data.Title, data.Environment.Title, data.Site, data.Contents}
}

func describePage(run result.Run, s analysis.Summary, others []analysis.Summary) pageData {
	d, v := newDrawing(run, s), viewOf(s)
	data := pageData{
		Style: template.CSS(pageStyle + flameStyle), Script: template.JS(pageScript), Summary: s,
		Environment: run.Environment,
		Title:       words.Or(s.Experiment, "Run"), Meta: pageMeta(run, s), Facts: facts(run.Environment),
		Empty: "No trial of a device under test was recorded, so there is nothing to compare. The sections below say " +
			"what was skipped, rejected or went wrong.",
		FoundCount: findingCounts(s.Findings), Reading: keepTogether(words.Capitalised(v.reading(s))),
		Counts: fmt.Sprintf("%s accepted, %d rejected by self-tests, %d repeat a rejected or noisy one.", words.Counted(
			s.Trials.Accepted, s.Noun),
			s.Trials.Rejected, s.Trials.Redone),
	}
	lead, ranking := v.first(d)
	data.Lead, data.Rejection, data.Picture = lead, rejection(s), ranking.picture(s.Skipped)
	v.fill(&data, d, s)
	if families := familiesGrid(s); len(families.Rows) > 0 {
		data.Further = append([]grid{families}, data.Further...)
	}
	data.dropEmpty()
	data.Claims = groupFindings(s.Findings)
	data.Studies = d.studyParts(append([]analysis.Summary{s}, others...), s.Findings)
	data.addTrust(run, s)
	data.Nodes = nodesGrid(s)
	data.mark(s.Mark)
	if reason := nothingMeasured(s); reason != "" { // there is nothing to read
		data.Lead, data.Reading, data.ModeNote, data.Empty = reason, "", "",
			"The sections below say what was skipped, rejected or went wrong."
	}
	data.Contents = data.contents()
	return data
}

// rejection says what share of trials self-tests rejected. It is empty without trials.
func rejection(s analysis.Summary) string {
	all := s.Trials.Accepted + s.Trials.Rejected
	switch {
	case all == 0:
		return ""
	case s.Trials.Rejected == 0:
		return fmt.Sprintf("None of %s was rejected.", words.Counted(all, s.Noun))
	}
	share := analysis.Number(100 * float64(s.Trials.Rejected) / float64(all))
	return keepTogether(
		fmt.Sprintf("%d of %s rejected (%s).", s.Trials.Rejected, words.Counted(all, s.Noun), percent(share)))
}

// nothingMeasured says why a run has no accepted trial. It is "" for a run that has one, or whose reason is not known.
func nothingMeasured(s analysis.Summary) string {
	failed := failedSentences(s.FailedBlocks)
	var more string
	if n := len(failed) - 1; n > 0 {
		more = fmt.Sprintf(" %s failed as well.", words.Counted(n, "other"))
	}
	switch {
	case s.Trials.Accepted > 0:
		return ""
	case s.Trials.Rejected > 0 && len(s.Rejects) > 0:
		return fmt.Sprintf("There is nothing to conclude from: of %s none was accepted, mostly because %s.", words.Counted(
			s.Trials.Rejected, s.Noun), strings.TrimSuffix(s.Rejects[0].Text, "."))
	case len(failed) > 0:
		return "Nothing was measured. " + strings.TrimSuffix(failed[0], ".") + "." + more
	case len(s.Skipped) > 0:
		return fmt.Sprintf("Nothing was measured: no device could run here. %s: %s.", s.Skipped[0].DUT, strings.TrimSuffix(
			s.Skipped[0].Reason, "."))
	}
	return ""
}

// dropEmpty removes charts without a value, and groups that have nothing else.
func (data *pageData) dropEmpty() {
	for _, list := range []*[]figure{&data.Capacity, &data.NoiseFigure, &data.Stability} {
		*list = withValues(*list)
	}
	for i := range data.Groups {
		data.Groups[i].dropEmpty()
	}
}

func (g *figureGroup) dropEmpty() {
	g.Figures = withValues(g.Figures)
	for i := range g.Folds {
		g.Folds[i].dropEmpty()
	}
	g.Folds = slices.DeleteFunc(g.Folds, func(f figureGroup) bool { return len(f.Figures) == 0 })
}

// withValues returns the charts that show a value.
func withValues(list []figure) []figure {
	return removeIf(list, func(f figure) bool {
		return !slices.ContainsFunc(f.Data.Rows, func(r gridRow) bool {
			return slices.ContainsFunc(r.Cells, func(c gridCell) bool { return !c.Header && c.Sort != "" })
		})
	})
}

// removeIf returns a list without the elements for which drop is true.
func removeIf[T any](list []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// contents lists the sections that the page has.
func (data *pageData) contents() []Entry {
	out := []Entry{{"costs", data.Question}}
	for _, section := range []struct {
		present bool
		Entry
	}{
		{len(data.Claims) > 0, Entry{"findings", "Published findings"}},
		{len(data.Groups) > 0, Entry{"charts", "Charts"}},
		{len(data.Courses) > 0, Entry{"course", "Within a window"}},
		{len(data.Studies) > 0, Entry{"study", "Beside the study"}},
		{len(data.Capacity)+len(data.CostModels.Rows)+len(data.Ceilings.Rows) > 0, Entry{"capacity", "Capacity"}},
		{data.Flames != nil, Entry{"flames", "Where the time goes"}},
		{len(data.Results.Rows) > 0, Entry{"results", "Results"}},
		{true, Entry{"trust", "How far to trust it"}},
		{true, Entry{"environment", "Environment"}},
		{data.Command != "", Entry{"repeat", "Repeat it"}},
	} {
		if section.present {
			out = append(out, section.Entry)
		}
	}
	return out
}

func pageMeta(run result.Run, s analysis.Summary) []string {
	env := run.Environment
	var start, took, kernel string
	if !env.Start.IsZero() {
		start = env.Start.UTC().Format("2 January 2006, 15:04 UTC")
	}
	if d := run.MeasuredFor(); d > 0 {
		took = "took " + words.Lasting(d)
	}
	if env.Kernel != "" {
		kernel = "Linux " + env.Kernel
	}
	profiles := textsOf(s.Cells, func(c analysis.Cell) string { return c.Text(result.Profile) })
	slices.Sort(profiles)
	all := []string{start, took, viewOf(s).mode(s), strings.Join(slices.Compact(profiles), ","), env.CPUModel, kernel}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// Limits of lists on the page. trials.jsonl has everything.
const (
	rejectedRows = 100 // single rejected trials
	reasonRows   = 200 // reasons by cell
	failedRows   = 100 // failed blocks
)

type rejectRow struct {
	Where string
	analysis.Tally
}

// shortList is the beginning of a list with the number of further elements.
type shortList[T any] struct {
	Shown []T
	More  int
}

func shorten[T any](all []T, most int) shortList[T] {
	shown, more := bounded(all, most)
	return shortList[T]{shown, more}
}

// addTrust lists rejected trials and failed blocks.
func (data *pageData) addTrust(run result.Run, s analysis.Summary) {
	var rejects []rejectRow
	for _, r := range s.AA.Rejects {
		rejects = append(rejects, rejectRow{"A/A pairs", r})
	}
	for _, c := range s.Cells {
		for _, r := range c.Rejects {
			rejects = append(rejects, rejectRow{cellPlace(c.DUT(), c.Cell), r})
		}
	}
	data.Until, data.Ended = untilSentence(s), endedGrid(s)
	data.Rejects, data.Failed = shorten(rejects, reasonRows), shorten(s.FailedBlocks, failedRows)
	data.Rejected = shorten(
		slices.DeleteFunc(slices.Clone(run.Trials), func(t result.Trial) bool { return t.Accepted }), rejectedRows)
}

// bounded cuts a list to most elements and returns the number of the others.
func bounded[T any](list []T, most int) (kept []T, more int) {
	if len(list) <= most {
		return list, 0
	}
	return list[:most], len(list) - most
}

func cellPlace(name string, c result.Cell) string {
	return fmt.Sprintf("%s, %s, %s %s", name, rate(offeredMbps(c)), clientsOf(c), c.Text(result.Direction))
}

func trialPlace(t result.Trial) string {
	if t.AA {
		return cellPlace("A/A", t.Cell)
	}
	return cellPlace(t.Cell.Text(result.DUT), t.Cell)
}

// facts lists the environment as names and values. Unknown values are left out.
func facts(env result.Environment) []fact {
	var sides result.Sides
	if env.Sides != nil {
		sides = *env.Sides
	}
	positive := func(text string, n int64) string {
		if n <= 0 {
			return ""
		}
		return fmt.Sprintf(text, n)
	}
	all := []fact{
		{"CPU", strings.TrimSpace(fmt.Sprintf("%s %s", env.CPUModel, env.Arch))},
		{"CPUs online", positive("%d", int64(env.CPUs))},
		{"Memory", positive("%d MiB", env.MemoryMiB)},
		{"Virtualisation", env.Virtualisation},
		{"Guest", env.VM.String()},
		{"Loads divided by", positive("%d", int64(env.LoadsDividedBy))},
		{"Kernel", env.Kernel},
		{"Placement", env.Placement},
		{"Frequency governor", strings.Join(env.Governors, ", ")},
		{"Clients", env.Clients},
		{"Only where the device is", sides.Device},
		{"Only at the clean router beside it", sides.Clean},
		{"gateweigh", env.GateweighVersion},
		{"SHA-256 of its binary", env.GateweighSHA256},
	}
	for _, host := range slices.Sorted(maps.Keys(env.Machines)) {
		all = append(all, fact{"Machine of " + host, env.Machines[host].String()})
	}
	for _, host := range slices.Sorted(maps.Keys(env.Ports)) {
		for _, p := range env.Ports[host] {
			all = append(all, fact{"Link " + p.Name + " of " + host, p.String()})
		}
	}
	for _, list := range []map[string]string{env.Tools, env.Sysctls} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			all = append(all, fact{name, list[name]})
		}
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}
