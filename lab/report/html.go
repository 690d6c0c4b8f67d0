package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
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

// rejectedRows bounds the list of single rejected trials in the report.
const rejectedRows = 100

// pageData is all the template sees: strings ready to print.
type pageData struct {
	Style      template.CSS
	Script     template.JS
	Title      string
	Subtitle   string
	Meta       []string
	Headlines  []headline
	Warnings   []string
	Reading    string
	ModeNote   string
	Groups     []figureGroup
	Flames     *flames
	Results    grid
	Further    []grid
	Noise      string
	Counts     string
	Rejects    []rejectRow
	Rejected   []rejectedTrial
	MoreReject int
	Skipped    []result.Skip
	Failed     []analysis.FailedBlock
	Findings   []findingRow
	Facts      []fact
	Offloads   []string
	Notes      []string
	Command    string
}

// headline is one card; Sentence goes on after the name of the DUT.
type headline struct {
	DUT, Big, Interval, Sentence, Verdict string
	Style                                 int
}

type rejectRow struct {
	Where, Reason string
	Count         int
}

type rejectedTrial struct {
	Where, Reasons         string
	Block, Window, Attempt int
}

type findingRow struct {
	analysis.Finding
	Word string
}

type fact struct{ Name, Value string }

// HTML writes the result as one self-contained page: no network, no other file.
func HTML(w io.Writer, run result.Run, s analysis.Summary) error {
	var b bytes.Buffer
	if err := page.Execute(&b, describePage(run, s)); err != nil {
		return fmt.Errorf("write the report page: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func describePage(run result.Run, s analysis.Summary) pageData {
	env := run.Environment
	d := newDrawing(run, s)
	data := pageData{
		Style: template.CSS(pageStyle + flameStyle), Script: template.JS(pageScript),
		Title: nonEmpty(s.Experiment, "Run"), Subtitle: env.Title,
		Meta: pageMeta(env, s), Headlines: headlines(s, d.styles), Warnings: s.Warnings,
		Reading: unbroken(capitalised(readingSentence(s))), ModeNote: modeNote(s.Mode),
		Groups: d.groups(), Flames: flameSection(run.Dir, s), Results: resultsGrid(s.Cells), Further: furtherGrids(s.Cells),
		Noise: unbroken(capitalised(noiseSentence(s.AA))),
		Counts: fmt.Sprintf("%s accepted, %d rejected by self-tests, %d redone.",
			counted(s.Trials.Accepted, "trial"), s.Trials.Rejected, s.Trials.Redone),
		Skipped: s.Skipped, Failed: s.FailedBlocks, Facts: facts(env), Offloads: env.Offloads, Notes: env.Notes, Command: env.Command,
	}
	for _, r := range s.AA.Rejects {
		data.Rejects = append(data.Rejects, rejectRow{"A/A pairs", r.Text, r.Count})
	}
	for _, c := range s.Cells {
		for _, r := range c.Rejects {
			data.Rejects = append(data.Rejects, rejectRow{cellPlace(c), r.Text, r.Count})
		}
	}
	data.Rejected, data.MoreReject = rejectedTrials(run.Trials)
	for _, f := range s.Findings {
		data.Findings = append(data.Findings, findingRow{f, holds(f.Holds)})
	}
	return data
}

func pageMeta(env result.Environment, s analysis.Summary) []string {
	var out []string
	if !env.Start.IsZero() {
		out = append(out, env.Start.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	if d := env.End.Sub(env.Start); !env.End.IsZero() && d > 0 {
		out = append(out, "took "+d.Round(time.Second).String())
	}
	for _, text := range []string{s.Mode, s.Profile, env.CPUModel} {
		if text != "" {
			out = append(out, text)
		}
	}
	if env.Kernel != "" {
		out = append(out, "Linux "+env.Kernel)
	}
	return out
}

func modeNote(mode string) string {
	switch mode {
	case result.ModeDuet:
		return "Duet: DUT and clean router run at the same time in two labs with the same placement and load, so noise of the machine cancels in their ratio. " +
			"Each block rebuilds both labs and swaps which of them carries the DUT."
	case result.ModeSolo:
		return "Solo: DUT and clean router are measured one after the other, so noise of the machine does not cancel and shows in the intervals."
	}
	return ""
}

// headlines has one entry a DUT: its cell with the highest offered load, with
// the most clients among those, upload before download.
func headlines(s analysis.Summary, styles map[string]int) []headline {
	best := map[string]analysis.Cell{}
	var order []string
	for _, c := range s.Cells {
		old, seen := best[c.DUT]
		if !seen {
			order = append(order, c.DUT)
		}
		better := c.OfferedMbps > old.OfferedMbps || c.OfferedMbps == old.OfferedMbps && c.Clients > old.Clients
		sameWay := c.Direction == old.Direction && c.Profile == old.Profile
		if !seen || old.Pairs == 0 && c.Pairs > 0 || better && sameWay && c.Pairs > 0 {
			best[c.DUT] = c
		}
	}
	var out []headline
	for _, name := range order {
		c := best[name]
		h := headline{DUT: name, Big: none, Verdict: c.Verdict, Style: styles[name] % colours, Sentence: unbroken(strings.TrimPrefix(headlineSentence(c, s.Delta), name))}
		if c.OverheadRatio.Mean.Known() {
			h.Big = ratio(c.OverheadRatio.Mean) + " ×"
			h.Interval = bounds(c.OverheadRatio, ratio)
		}
		out = append(out, h)
	}
	return out
}

// unbroken keeps figures together with their units and intervals whole.
func unbroken(s string) string {
	return strings.NewReplacer("× ", "×\u00a0", " ×", "\u00a0×", " %", "\u00a0%", " Mbit", "\u00a0Mbit", " Gbit", "\u00a0Gbit").Replace(s)
}

// headlineSentence says in words what a DUT costs; it claims no more than the verdict does.
func headlineSentence(c analysis.Cell, delta float64) string {
	where := fmt.Sprintf("at %s %s with %s", rate(c.OfferedMbps), directionWord(c.Direction), counted(c.Clients, "client"))
	r := fmt.Sprintf("%s × a clean router", ratio(c.OverheadRatio.Mean))
	if c.OverheadRatio.HasInterval() {
		r += " " + strings.ReplaceAll(bounds(c.OverheadRatio, ratio), " ", "\u00a0")
	}
	var text string
	switch {
	case c.Pairs == 0:
		text := c.DUT + ": no trial was accepted"
		if len(c.Rejects) > 0 {
			text += ", mostly because: " + c.Rejects[0].Text
		}
		return text + "."
	case !c.OverheadRatio.Mean.Known():
		return fmt.Sprintf("%s: no ratio %s, because a side delivered nothing or cost nothing.", c.DUT, where)
	case c.Verdict == analysis.Different:
		text = fmt.Sprintf("%s costs %s %s", c.DUT, r, where)
	case c.Verdict == analysis.Equivalent:
		text = fmt.Sprintf("%s costs the same as a clean router within %g %%, %s %s", c.DUT, 100*delta, r, where)
	default:
		text = fmt.Sprintf("%s seems to cost %s %s, but %s", c.DUT, r, where, c.VerdictNote)
	}
	// A hiccup in one trial of many is not the device's limit.
	if c.Has(result.FlagSaturated) && c.DeliveredMbps < 0.98*c.OfferedMbps {
		text += fmt.Sprintf("; it could deliver only %s", rate(c.DeliveredMbps))
	}
	return text + "."
}

func cellPlace(c analysis.Cell) string {
	return fmt.Sprintf("%s, %s, %s %s", c.DUT, rate(c.OfferedMbps), counted(c.Clients, "client"), c.Direction)
}

// rejectedTrials lists single rejected trials, and how many are left out.
func rejectedTrials(trials []result.Trial) (rows []rejectedTrial, more int) {
	for _, t := range trials {
		switch {
		case t.Accepted:
		case len(rows) == rejectedRows:
			more++
		default:
			name := t.Cell.DUT
			if t.AA {
				name = "A/A"
			}
			rows = append(rows, rejectedTrial{
				Where:   fmt.Sprintf("%s, %s, %s %s", name, rate(analysis.Number(t.Cell.OfferedMbps)), counted(t.Cell.Clients, "client"), t.Cell.Direction),
				Reasons: nonEmpty(strings.Join(t.Rejects, "; "), "no reason recorded"),
				Block:   t.Block, Window: t.Window, Attempt: t.Attempt,
			})
		}
	}
	return rows, more
}

// facts is the environment as name and value; what is not known is left out.
func facts(env result.Environment) []fact {
	all := []fact{
		{"CPU", strings.TrimSpace(fmt.Sprintf("%s %s", env.CPUModel, env.Arch))},
		{"CPUs online", positiveText(int64(env.CPUs), "")},
		{"Memory", positiveText(env.MemoryMiB, " MiB")},
		{"Virtualisation", env.Virtualisation},
		{"Kernel", env.Kernel},
		{"Placement", env.Placement},
		{"gateweigh", env.GateweighVersion},
		{"SHA-256 of its binary", env.GateweighSHA256},
	}
	for _, name := range slices.Sorted(maps.Keys(env.Tools)) {
		all = append(all, fact{name, env.Tools[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(env.Sysctls)) {
		all = append(all, fact{name, env.Sysctls[name]})
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

func positiveText(n int64, unit string) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%s", n, unit)
}

func capitalised(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[size:]
}
