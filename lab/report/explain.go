package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Explanation says which functions a device's extra time goes to. Figures are
// router CPU in ns per packet.
type Explanation struct {
	Cell result.Cell `json:"cell"`
	// Scale is what all times of the profile were multiplied by: what the clean
	// router costs in the trials over what it cost while perf ran. The machine's
	// speed and perf's own load are the same for both routers of a duet, as in
	// the trials' ratio. 1 when there are no trials to tell.
	Scale analysis.Number `json:"scale"`
	// Sum is what both routers cost in the window of the profile, scaled;
	// Functions and Rest add up to it.
	Sum Cost `json:"sum"`
	// Measured is what the cell's trials say, measured without perf.
	Measured Measured `json:"measured"`
	// OffBy is the difference of Sum over that of Measured, less 1.
	OffBy     analysis.Number `json:"off_by"`
	Functions []Function      `json:"functions"`
	Rest      Rest            `json:"rest"`
	Accounts  []AccountRow    `json:"accounts"`
}

// Cost is what a packet costs both routers, ns.
type Cost struct {
	DUT        analysis.Number `json:"dut"`
	Clean      analysis.Number `json:"clean"`
	Difference analysis.Number `json:"difference"`
}

// Measured is a Cost by the trials of a cell.
type Measured struct {
	Cost
	Pairs  int `json:"pairs"`
	Blocks int `json:"blocks"`
}

// Function is one row: its own time, without what it calls.
type Function struct {
	Name   string `json:"name"`
	Module string `json:"module"` // "kernel", or a program's or library's file name
	Cost
	// Margin is half the width of the difference's 95 % interval by the number of samples.
	Margin analysis.Number `json:"margin"`
	// Share of the difference of all functions; absent unless that is above 0.
	Share analysis.Number `json:"share"`
	// WithCallees is the difference with all it calls.
	WithCallees analysis.Number `json:"difference_with_callees"`
}

// Rest is all other functions together.
type Rest struct {
	Count int `json:"count"`
	Cost
	Margin analysis.Number `json:"margin"`
	Share  analysis.Number `json:"share"`
}

// AccountRow is a thread or the processes of one name, whose time is known
// exactly; Coverage is how much of it samples stand for.
type AccountRow struct {
	Router      string          `json:"router"` // "dut" or "clean"
	Name        string          `json:"name"`
	NsPerPacket analysis.Number `json:"ns_per_packet"`
	Samples     int             `json:"samples"`
	Coverage    analysis.Number `json:"coverage"`
}

// Explain makes the explanation of a profile with at most n functions. The
// summary holds what the trials of the same cell measured.
func Explain(p profile.Profile, s analysis.Summary, n int) Explanation {
	m := measured(p.Cell, s)
	p, scale := atTrialsSpeed(p, m)
	e := profile.Explain(p)
	out := Explanation{Cell: p.Cell, Scale: analysis.Number(scale), Sum: costOf(e.Sum), Measured: m, OffBy: analysis.Absent()}
	if out.Measured.Difference.Known() && out.Measured.Difference != 0 {
		out.OffBy = out.Sum.Difference/out.Measured.Difference - 1
	}
	share := func(c profile.Cost) analysis.Number {
		if out.Sum.Difference <= 0 {
			return analysis.Absent()
		}
		return analysis.Number(c.Difference()) / out.Sum.Difference
	}
	n = min(n, len(e.Rows))
	for _, r := range e.Rows[:n] {
		out.Functions = append(out.Functions, Function{
			Name: r.Func, Module: r.Module, Cost: costOf(r.Self), Margin: analysis.Number(r.Self.Margin()),
			Share: share(r.Self), WithCallees: analysis.Number(r.Total.Difference()),
		})
	}
	rest, count := e.Rest(n)
	out.Rest = Rest{count, costOf(rest), analysis.Number(rest.Margin()), share(rest)}
	for _, side := range []struct {
		name string
		of   profile.Side
	}{{"dut", p.DUT}, {"clean", p.Clean}} {
		for _, a := range side.of.Accounts {
			out.Accounts = append(out.Accounts, AccountRow{
				side.name, a.Name, analysis.Number(float64(a.Ns) / float64(max(side.of.Packets, 1))), a.Samples, analysis.Number(a.Coverage()),
			})
		}
	}
	return out
}

// atTrialsSpeed scales a profile so that its clean router costs what it cost in
// the trials of the same cell.
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

func measured(cell result.Cell, s analysis.Summary) Measured {
	i := slices.IndexFunc(s.Cells, func(c analysis.Cell) bool {
		return c.DUT() == cell.Text(result.DUT) && c.Int(result.Clients) == cell.Int(result.Clients) && float64(offered(c.Cell)) == cell.Number(result.OfferedMbps) &&
			c.Text(result.Direction) == cell.Text(result.Direction) && c.Text(result.Profile) == cell.Text(result.Profile)
	})
	if i < 0 || s.Cells[i].Pairs == 0 {
		return Measured{Cost: Cost{analysis.Absent(), analysis.Absent(), analysis.Absent()}}
	}
	c := s.Cells[i]
	dut, clean := c.Device("ns_per_packet").Mean, c.Clean("ns_per_packet").Mean
	return Measured{Cost{dut, clean, dut - clean}, c.Pairs, c.Blocks}
}

// ExplainJSON writes the explanation as JSON.
func ExplainJSON(w io.Writer, e Explanation) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(e)
}

// ExplainText writes the explanation as a table for the terminal, whatever the
// names in the profile in printable characters.
func ExplainText(w io.Writer, e Explanation) error {
	fmt.Fprintf(w, "%s: where the extra time goes\nRouter CPU, ns per packet; ± is the 95 %% interval by the number of samples.\n\n", result.OneLine(profiledCell(e.Cell)))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "DIFFERENCE\t±\tSHARE\tDEVICE\tCLEAN\tWITH CALLEES\t  FUNCTION\n")
	for _, f := range e.Functions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", signedNs(f.Difference), ns(f.Margin), sharePercent(f.Share), ns(f.DUT), ns(f.Clean),
			signedNs(f.WithCallees), result.OneLine(profile.Frame{Func: f.Name, Module: f.Module}.String()))
	}
	if e.Rest.Count > 0 {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\t  %s\n", signedNs(e.Rest.Difference), ns(e.Rest.Margin), sharePercent(e.Rest.Share), ns(e.Rest.DUT), ns(e.Rest.Clean),
			words.Counted(e.Rest.Count, "more function"))
	}
	fmt.Fprintf(t, "%s\t\t%s\t%s\t%s\t\t  sum\n", signedNs(e.Sum.Difference), sharePercent(analysis.Number(1)), ns(e.Sum.DUT), ns(e.Sum.Clean))
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
	text := fmt.Sprintf("Measured without perf, %s of %s: %s - %s = %s", words.Counted(m.Pairs, "window"), words.Counted(m.Blocks, "block"), ns(m.DUT), ns(m.Clean), signedNs(m.Difference))
	if !e.OffBy.Known() {
		return text + "."
	}
	return text + fmt.Sprintf("; the sum is %s of that. While perf ran the clean router cost %s times as much: all times are scaled by that.",
		percent(100*(1+e.OffBy)), ratio(1/e.Scale))
}

// coverage says how many of the due samples were taken.
func (e Explanation) coverage() string {
	var parts []string
	for _, a := range e.Accounts {
		router := "device"
		if a.Router == "clean" {
			router = "clean"
		}
		parts = append(parts, fmt.Sprintf("%s %s %.0f %% (%d)", router, a.Name, 100*a.Coverage, a.Samples))
	}
	return "Share of each account's exact time that samples stand for, and their number: " + strings.Join(parts, ", ") + "."
}

func profiledCell(c result.Cell) string {
	return fmt.Sprintf("%s, %s, %s %s, %s", c.Text(result.DUT), words.Counted(c.Int(result.Clients), "client"), rate(offered(c)), words.Direction(c.Text(result.Direction)), c.Text(result.Profile))
}

// ns prints nanoseconds with one decimal.
func ns(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	return fmt.Sprintf("%.1f", math.Abs(float64(n)))
}

func signedNs(n analysis.Number) string {
	switch {
	case !n.Known():
		return none
	case n < 0:
		return "-" + ns(n)
	}
	return "+" + ns(n)
}

func sharePercent(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n))
}
