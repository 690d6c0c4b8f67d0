package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Explanation shows in which functions a device spends more CPU time than the clean router, from a profile. Figures are
// router CPU in ns per packet.
type Explanation struct {
	Cell result.Cell `json:"cell"`
	// Mark is the run's mark, which all its times must carry: "relative, emulated CPU", or empty.
	Mark string `json:"mark,omitempty"`
	// Weakness says what is missing from the profile, in a sentence.
	Weakness string `json:"weakness,omitempty"`
	// Scale is the factor by which all times of the profile were multiplied, so that the clean router costs as much as in
	// the cell's trials: perf itself slows both routers down by about the same factor. It is 1 for a cell without trials.
	Scale analysis.Number `json:"scale"`
	// Sum is the cost of both routers during the profile, scaled. Functions and Rest add up to it.
	Sum Cost `json:"sum"`
	// Measured is the cost in the cell's trials, which ran without perf.
	Measured Measured `json:"measured"`
	// OffBy is the difference of Sum over the difference of Measured, less 1.
	OffBy     analysis.Number `json:"off_by"`
	Functions []Function      `json:"functions"`
	Rest      Rest            `json:"rest"`
	Accounts  []AccountRow    `json:"accounts"`
}

// Cost is the cost of a packet in both routers, ns.
type Cost struct {
	DUT        analysis.Number `json:"dut"`
	Clean      analysis.Number `json:"clean"`
	Difference analysis.Number `json:"difference"`
}

// Measured is the Cost in a cell's trials, with their number.
type Measured struct {
	Cost
	Pairs  int `json:"pairs"`
	Blocks int `json:"blocks"`
}

// Part is a part of the sum.
type Part struct {
	Cost
	// Margin is half the width of the difference's 95 % interval, which follows from the number of samples.
	Margin analysis.Number `json:"margin"`
	// Share is this part's share of the difference of all functions; absent unless that difference is above 0.
	Share analysis.Number `json:"share"`
}

// Function is one function with its own time, without the functions that it calls.
type Function struct {
	Name   string `json:"name"`
	Module string `json:"module"` // "kernel", or a program's or library's file name
	Part
	// WithCallees is the difference with all functions that it calls.
	WithCallees analysis.Number `json:"difference_with_callees"`
}

// Rest is all other functions together.
type Rest struct {
	Count int `json:"count"`
	Part
}

// AccountRow is a thread, or the processes of one name. Its time is exact, from the kernel's accounts; Coverage is the
// part of it that the profile's samples cover.
type AccountRow struct {
	Router      string          `json:"router"` // "dut" or "clean"
	Name        string          `json:"name"`
	NsPerPacket analysis.Number `json:"ns_per_packet"`
	Samples     int             `json:"samples"`
	Coverage    analysis.Number `json:"coverage"`
}

// Explain makes the explanation of a profile with at most n functions. It takes the costs without perf from the
// summary: from the trials of the profile's cell.
func Explain(p profile.Profile, s analysis.Summary, n int) Explanation {
	m := measuredInCell(p.Cell, s)
	p, scale := atTrialsSpeed(p, m)
	e := profile.Explain(p)
	out := Explanation{Cell: p.Cell, Mark: s.Mark, Weakness: p.Weakness(), Scale: analysis.Number(scale), Sum: costOf(
		e.Sum), Measured: m, OffBy: analysis.Absent()}
	if out.Measured.Difference.Known() && out.Measured.Difference != 0 {
		out.OffBy = out.Sum.Difference/out.Measured.Difference - 1
	}
	part := func(c profile.Cost) Part {
		share := analysis.Absent()
		if out.Sum.Difference > 0 {
			share = analysis.Number(c.Difference()) / out.Sum.Difference
		}
		return Part{costOf(c), analysis.Number(c.Margin()), share}
	}
	n = min(n, len(e.Rows))
	for _, r := range e.Rows[:n] {
		out.Functions = append(out.Functions, Function{r.Func, r.Module, part(r.Self), analysis.Number(r.Total.Difference())})
	}
	rest, count := e.Rest(n)
	out.Rest = Rest{count, part(rest)}
	for i, side := range []profile.Side{p.DUT, p.Clean} {
		for _, a := range side.Accounts {
			perPacket := analysis.Number(float64(a.Ns) / float64(max(side.Packets, 1)))
			out.Accounts = append(
				out.Accounts, AccountRow{[]string{"dut", "clean"}[i], a.Name, perPacket, a.Samples, analysis.Number(a.Coverage())})
		}
	}
	return out
}

// atTrialsSpeed scales a profile so that its clean router costs as much as in the trials of the same cell. It returns
// the factor too.
func atTrialsSpeed(p profile.Profile, m Measured) (profile.Profile, float64) {
	clean := p.Clean.NsPerPacket()
	if !m.Clean.Known() || clean <= 0 {
		return p, 1
	}
	scale := float64(m.Clean) / clean
	return p.Scaled(scale), scale
}

func costOf(c profile.Cost) Cost {
	return Cost{analysis.Number(c.DUT), analysis.Number(c.Clean), analysis.Number(c.Difference())}
}

func measuredInCell(cell result.Cell, s analysis.Summary) Measured {
	i := slices.IndexFunc(s.Cells, func(c analysis.Cell) bool {
		return c.Cell == cell
	})
	if i < 0 || s.Cells[i].Pairs == 0 {
		return Measured{Cost: Cost{analysis.Absent(), analysis.Absent(), analysis.Absent()}}
	}
	c := s.Cells[i]
	dut, clean := c.Device(cost.NsPerPacket).Mean, c.Clean(cost.NsPerPacket).Mean
	return Measured{Cost{dut, clean, dut - clean}, c.Pairs, c.Blocks}
}

// functionRow is one row of the table of functions.
type functionRow struct {
	Name, Where, Difference, Margin, Share, DUT, Clean, WithCallees string
	Total                                                           bool // the rest, or the sum
}

// rows are the functions, the rest and the sum in print.
func (e Explanation) rows() (rows []functionRow) {
	row := func(name, place string, p Part, callees string, total bool) functionRow {
		return functionRow{
			name, place, signedNs(p.Difference), ns(p.Margin), sharePercent(p.Share), ns(p.DUT), ns(p.Clean), callees, total}
	}
	for _, f := range e.Functions {
		rows = append(rows, row(f.Name, f.Module, f.Part, signedNs(f.WithCallees), false))
	}
	if e.Rest.Count > 0 {
		rows = append(rows, row(words.Counted(e.Rest.Count, "more function"), "", e.Rest.Part, "", true))
	}
	sum := row("sum", "", Part{Cost: e.Sum, Share: 1}, "", true)
	sum.Margin = ""
	return append(rows, sum)
}

// ExplainText writes the explanation as a table for the terminal. It replaces characters that are not printable in the
// names of functions.
func ExplainText(w io.Writer, e Explanation) error {
	if e.Mark != "" {
		fmt.Fprintf(w, "%s\n", words.Capitalised(e.Mark))
	}
	if e.Weakness != "" {
		fmt.Fprintf(w, "%s\n\n", result.OneLine(e.Weakness))
	}
	fmt.Fprintf(w, "%s: where the extra time goes\nRouter CPU, ns per packet; ± is the 95 %% interval by the number of "+
		"samples.\n\n", result.OneLine(profiledCell(e.Cell)))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "DIFFERENCE\t±\tSHARE\tDEVICE\tCLEAN\tWITH CALLEES\t  FUNCTION\n")
	for _, r := range e.rows() {
		name := r.Name
		if !r.Total {
			name = result.OneLine(profile.Frame{Func: r.Name, Module: r.Where}.String())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", r.Difference, r.Margin, r.Share, r.DUT, r.Clean, r.WithCallees, name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n\n%s\n", e.agreement(), result.OneLine(e.coverage()))
	return err
}

// agreement compares the sum with what the trials measured.
func (e Explanation) agreement() string {
	m := e.Measured
	if !m.Difference.Known() {
		return "No accepted trial of this cell to compare the sum with."
	}
	text := fmt.Sprintf("Measured without perf, %s of %s: %s - %s = %s", words.Counted(m.Pairs, "window"), words.Counted(
		m.Blocks, "block"), ns(m.DUT), ns(m.Clean), signedNs(m.Difference))
	if !e.OffBy.Known() {
		return text + "."
	}
	return text + fmt.Sprintf(
		"; the sum is %s of that. While perf ran the clean router cost %s times as much: all times are scaled by that.",
		percent(100*(1+e.OffBy)), ratio(1/e.Scale))
}

// coverage says which share of the expected samples was taken.
func (e Explanation) coverage() string {
	var parts []string
	for _, a := range e.Accounts {
		parts = append(parts,
			fmt.Sprintf("%s %s %.0f %% (%d)", strings.Replace(a.Router, "dut", "device", 1), a.Name, 100*a.Coverage, a.Samples))
	}
	return "Share of each account's exact time that samples stand for, and their number: " + strings.Join(parts, ", ") +
		"."
}

func profiledCell(c result.Cell) string {
	return fmt.Sprintf("%s, %s, %s %s", c.Text(result.DUT), clientsOf(c), rate(offeredMbps(c)), packetsInWords(c))
}

// ns prints the size of a time in nanoseconds with one decimal.
func ns(n analysis.Number) string { return decimals(1)(analysis.Number(math.Abs(float64(n)))) }

func signedNs(n analysis.Number) string {
	if !n.Known() {
		return absentFigure
	}
	return map[bool]string{true: "-", false: "+"}[n < 0] + ns(n)
}

func sharePercent(n analysis.Number) string {
	if !n.Known() {
		return absentFigure
	}
	return decimals(1)(100*n) + " %"
}
