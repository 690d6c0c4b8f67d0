// A Trend as text for the terminal, and as CSV.

package trend

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// none is the text for an absent figure.
const none = "–"

// digits formats a figure with no more digits than needed: three decimals for a ratio, otherwise four significant
// digits.
func (t *Trend) digits(n analysis.Number) string {
	switch {
	case !n.Known():
		return none
	case t.compared():
		return strconv.FormatFloat(float64(n), 'f', 3, 64)
	}
	whole := int(math.Floor(math.Log10(math.Max(math.Abs(float64(n)), 1e-9)))) + 1
	return words.Grouped(strconv.FormatFloat(float64(n), 'f', min(9, max(0, 4-whole)), 64))
}

// text formats a figure with its interval.
func (t *Trend) text(e analysis.Estimate) string {
	if !e.HasInterval() {
		return t.digits(e.Mean)
	}
	return fmt.Sprintf("%s [%s, %s]", t.digits(e.Mean), t.digits(e.Lo), t.digits(e.Hi))
}

// began returns when a run began, UTC.
func (r Run) began() string {
	if r.Start.IsZero() {
		return none
	}
	return r.Start.UTC().Format("2006-01-02 15:04")
}

// mark returns what else a reader must know of the run's figures.
func (r Run) mark() string {
	return words.Joined(", ", words.When(r.Interrupted, "not finished"), r.Mark)
}

// cells lists the cells of the trend, each once, in their order.
func (t *Trend) cells() (list []result.Cell) {
	for _, s := range t.Series {
		if !slices.Contains(list, s.Cell) {
			list = append(list, s.Cell)
		}
	}
	return list
}

// point returns a cell's figure in a run.
func (t *Trend) point(cell result.Cell, run int) (e analysis.Estimate, ok bool) {
	for _, s := range t.Series {
		for _, p := range s.Points {
			if s.Cell == cell && p.Run == run {
				return p.Estimate, true
			}
		}
	}
	return e, false
}

// barWidth is the width of the terminal's pictures, columns.
const barWidth = 32

// Text writes the trend for a terminal: a table for each cell with a line for each run. A line has a picture of figure
// and interval.
func (t *Trend) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s, over %s\n", result.OneLine(t.Experiment), result.OneLine(t.Figure()),
		words.Counted(len(t.Runs), "run"))
	for _, cell := range t.cells() {
		fmt.Fprintf(w, "\n%s\n", result.OneLine(t.dimensions.Label(cell)))
		s := t.span(cell)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for run, r := range t.Runs {
			e, ok := t.point(cell, run)
			if !ok {
				continue
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", r.began(), result.OneLine(r.Version),
				words.When(len(t.Groups) > 1, t.Groups[r.Group].Letter), s.bar(e), t.text(e), r.mark())
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, line := range t.Remarks() {
		fmt.Fprintln(w, result.OneLine(line))
	}
	return nil
}

// Remarks lists what a reader must know of the trend, one sentence each.
func (t *Trend) Remarks() (list []string) {
	for _, g := range t.Groups[min(1, len(t.Groups)):] {
		list = append(list, fmt.Sprintf("Runs %s do not stand in one row with runs A: %s.", g.Letter,
			strings.Join(g.Apart, "; ")))
	}
	for i, r := range t.Runs {
		if len(r.Changed) > 0 && i > 0 {
			list = append(list, fmt.Sprintf("Changed before %s: %s.", words.Or(r.began(), r.Name),
				strings.Join(r.Changed, "; ")))
		}
	}
	for _, l := range t.LeftOut {
		list = append(list, fmt.Sprintf("Left out: %s: %s.", l.Name, l.Reason))
	}
	return append(list, fmt.Sprintf("Figures have their %g %% intervals over blocks.", 100*t.Confidence))
}

// span is the range of a cell's figures and intervals.
type span struct{ lo, hi float64 }

// span returns the range of a cell's figures and intervals over all runs.
func (t *Trend) span(cell result.Cell) span {
	s := span{math.Inf(1), math.Inf(-1)}
	for _, series := range t.Series {
		for _, p := range series.Points {
			if series.Cell != cell {
				continue
			}
			mean := float64(p.Mean)
			lo, hi := mean, mean
			if p.HasInterval() { // a very wide interval must not flatten the others
				lo, hi = math.Max(float64(p.Lo), mean/2), math.Min(float64(p.Hi), mean*2)
			}
			s.lo, s.hi = math.Min(s.lo, lo), math.Max(s.hi, hi)
		}
	}
	return s
}

// bar draws a figure and its interval: "    ├──●──┤    ".
func (s span) bar(e analysis.Estimate) string {
	column := func(v analysis.Number) int {
		if s.hi <= s.lo {
			return barWidth / 2
		}
		share := (float64(v) - s.lo) / (s.hi - s.lo)
		return int(math.Round(math.Min(1, math.Max(0, share)) * (barWidth - 1)))
	}
	line := []rune(strings.Repeat(" ", barWidth))
	if e.HasInterval() {
		for i := column(e.Lo); i <= column(e.Hi); i++ {
			line[i] = '─'
		}
		line[column(e.Lo)], line[column(e.Hi)] = '├', '┤'
	}
	line[column(e.Mean)] = '●'
	return string(line)
}

// CSV writes one line for each figure.
func (t *Trend) CSV(w io.Writer) error {
	names := []result.Dimension{}
	for _, cell := range t.cells() {
		for _, v := range cell.Values() {
			if !slices.Contains(names, v.Dimension) {
				names = append(names, v.Dimension)
			}
		}
	}
	head := []string{"run", "start", "gateweigh_version", "kernel", "cpu_model", "group"}
	for _, name := range names {
		head = append(head, string(name))
	}
	out := csv.NewWriter(w)
	_ = out.Write(append(head, "metric", "unit", "mean", "lo", "hi", "n")) // Error has it
	unit := t.Metric.Unit
	if t.compared() {
		unit = "ratio"
	}
	for run, r := range t.Runs {
		for _, cell := range t.cells() {
			e, ok := t.point(cell, run)
			if !ok {
				continue
			}
			row := []string{r.Name, stamp(r.Start), r.Version, r.Kernel, r.CPU, t.Groups[r.Group].Letter}
			for _, name := range names {
				row = append(row, cell.Text(name))
			}
			row = append(row, t.Metric.Name, unit, e.Mean.String(), e.Lo.String(), e.Hi.String(), strconv.Itoa(e.N))
			_ = out.Write(row)
		}
	}
	out.Flush()
	return out.Error()
}

// stamp formats a time for CSV; empty if it is not known.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
