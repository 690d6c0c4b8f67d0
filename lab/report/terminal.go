package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// column is one column of a terminal table of cells.
type column[C any] struct {
	head  string
	left  bool // aligned left
	value func(C) string
	// drop is the order in which columns go when the terminal is narrow; 0 stays.
	drop int
	// once columns are shown only when their values differ between cells;
	// otherwise the value stands in the heading.
	once bool
}

var terminalColumns = []column[analysis.Cell]{
	{head: "DUT", left: true, value: func(c analysis.Cell) string { return result.OneLine(c.DUT()) }},
	{head: "profile", left: true, once: true, value: func(c analysis.Cell) string { return result.OneLine(c.Text(result.Profile)) }},
	{head: "direction", left: true, once: true, value: func(c analysis.Cell) string { return result.OneLine(c.Text(result.Direction)) }},
	{head: "clients", once: true, value: func(c analysis.Cell) string { return fmt.Sprint(c.Int(result.Clients)) }},
	{head: "offered", value: func(c analysis.Cell) string { return rate(offered(c.Cell)) }},
	{head: "delivered", drop: 3, value: func(c analysis.Cell) string { return rate(c.Device(cost.Delivered).Mean) }},
	{head: "clean CPU", drop: 5, value: func(c analysis.Cell) string { return percent(c.Clean(cost.CPU).Mean) }},
	{head: "DUT CPU", drop: 4, value: func(c analysis.Cell) string { return percent(c.Device(cost.CPU).Mean) }},
	{head: "overhead ×", left: true, value: func(c analysis.Cell) string {
		return strings.TrimSpace(ratio(c.Change(cost.PerBit).Mean) + " " + bounds(c.Change(cost.PerBit), ratio))
	}},
	{head: "ns/packet", drop: 2, value: func(c analysis.Cell) string { return significant(c.Device("ns_per_packet").Mean, 3) }},
	{head: "RTT p99", drop: 1, value: func(c analysis.Cell) string { return micros(c.Device("rtt_p99_median_us").Mean) }},
	{head: "verdict", left: true, value: verdictText},
}

// ratioColumn is the place of the ratio among them.
const ratioColumn = 8

// columnsOf are the columns under the names they have in this run.
func columnsOf(s analysis.Summary) []column[analysis.Cell] {
	cols := slices.Clone(terminalColumns)
	if s.Sides != nil {
		cols[ratioColumn].head = "ratio ×"
	}
	return cols
}

// Terminal writes the result as a compact table with the noise floor, rejected
// trials, skipped DUTs and how to read it. Width is the terminal's in columns:
// less important columns are left out until the table fits; 0 has no limit.
// Whatever the names in the run, only printable characters come out.
func Terminal(w io.Writer, s analysis.Summary, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", result.OneLine(strings.Join(heading(s), " · ")))
	if len(s.Ceilings) > 0 {
		b.WriteByte('\n')
		table(&b, columnsFor(ceilingColumns, s.Ceilings, width), s.Ceilings)
	}
	if len(s.Cells) > 0 {
		b.WriteByte('\n')
		table(&b, columnsFor(viewOf(s).columns(s), s.Cells, width), s.Cells)
	}
	if len(s.Cells) > 0 && s.Sides != nil {
		b.WriteByte('\n')
		table(&b, columnsFor(sidesColumns, s.Cells, width), s.Cells)
	}
	b.WriteByte('\n')
	for _, line := range remarks(s) {
		wrap(&b, line, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// heading is the experiment and whatever is the same in all cells.
func heading(s analysis.Summary) []string {
	v, unit := viewOf(s), "blocks"
	if s.Primary == "" {
		unit = s.Noun + "s"
	}
	out := append([]string{words.Or(s.Experiment, "run"), v.how(s)}, shared(v.columns(s), s.Cells)...)
	return append(out, fmt.Sprintf("%g %% intervals over %s", 100*s.Confidence, unit))
}

// shared is what columns that are shown once have in common in all cells.
func shared[C any](cols []column[C], cells []C) (out []string) {
	for _, col := range cols {
		if !col.once || len(cells) == 0 || varies(col, cells) {
			continue
		}
		text := col.value(cells[0])
		if n, err := strconv.Atoi(text); err == nil && col.head == "clients" {
			text = words.Counted(n, "client")
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

func varies[C any](col column[C], cells []C) bool {
	for _, c := range cells[1:] {
		if col.value(c) != col.value(cells[0]) {
			return true
		}
	}
	return false
}

// columnsFor picks the columns that vary and fit.
func columnsFor[C any](all []column[C], cells []C, width int) []column[C] {
	var cols []column[C]
	for _, col := range all {
		if !col.once || varies(col, cells) {
			cols = append(cols, col)
		}
	}
	for drop := 1; width > 0 && drop <= len(all) && lineWidth(cols, cells) > width; drop++ {
		for i, col := range cols {
			if col.drop == drop {
				cols = append(cols[:i:i], cols[i+1:]...)
				break
			}
		}
	}
	return cols
}

const gap = "  "

func lineWidth[C any](cols []column[C], cells []C) int {
	total := len(gap) * (len(cols) - 1)
	for _, col := range cols {
		total += colWidth(col, cells)
	}
	return total
}

func colWidth[C any](col column[C], cells []C) int {
	width := utf8.RuneCountInString(col.head)
	for _, c := range cells {
		width = max(width, utf8.RuneCountInString(col.value(c)))
	}
	return width
}

func table[C any](b *strings.Builder, cols []column[C], cells []C) {
	widths := make([]int, len(cols))
	for i, col := range cols {
		widths[i] = colWidth(col, cells)
	}
	row := func(text func(column[C]) string) {
		var line strings.Builder
		for i, col := range cols {
			if i > 0 {
				line.WriteString(gap)
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text(col)))
			if col.left {
				line.WriteString(text(col) + pad)
			} else {
				line.WriteString(pad + text(col))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	row(func(col column[C]) string { return col.head })
	for _, c := range cells {
		row(func(col column[C]) string { return col.value(c) })
	}
}

// reasonsShown bounds the reasons of rejection; the HTML report has all.
const reasonsShown = 6

// remarks are the lines under the table.
func remarks(s analysis.Summary) []string {
	out := viewOf(s).remarks(s)
	if s.Trials.Rejected > 0 {
		text := fmt.Sprintf("Rejected: %s by self-tests, %d accepted (%d redone).", words.Counted(s.Trials.Rejected, s.Noun), s.Trials.Accepted, s.Trials.Redone)
		reasons := 0
		for _, r := range s.Rejects {
			reasons += r.Count
		}
		if reasons > s.Trials.Rejected {
			text += " Some have several reasons:"
		}
		out = append(out, text)
	}
	for i, r := range s.Rejects {
		if i == reasonsShown {
			out = append(out, fmt.Sprintf("  and %s more", words.Counted(len(s.Rejects)-i, "reason")))
			break
		}
		out = append(out, fmt.Sprintf("  %d × such as: %s", r.Count, r.Text))
	}
	for _, skip := range s.Skipped {
		out = append(out, fmt.Sprintf("Skipped: %s: %s", skip.DUT, skip.Reason))
	}
	for _, l := range s.Limits {
		out = append(out, "Limit: "+limitSentence(l))
	}
	out = append(out, failedSentences(s.FailedBlocks)...)
	for _, warning := range s.Warnings {
		out = append(out, "Warning: "+warning)
	}
	if counts := findingCounts(s.Findings); counts != "" {
		out = append(out, "Findings: "+counts)
	}
	for _, f := range s.Findings {
		if word, _ := outcome(f); f.Holds != nil {
			out = append(out, fmt.Sprintf("  %s %s: %s Here: %s", f.ID, word, f.Claim, f.Here))
		}
	}
	if len(s.Ceilings) > 0 {
		out = append(out, ceilingsReading)
	}
	return append(out, "How to read it: "+viewOf(s).reading(s))
}

// failedSentences say each error once, with the blocks it ended, which count from 1 as
// they do while a run goes on. What was measured since is no loss any more.
func failedSentences(list []analysis.FailedBlock) (out []string) {
	type cause struct{ dut, err string }
	blocks := map[cause][]string{}
	var causes []cause
	measured := 0
	for _, f := range list {
		if f.Measured {
			measured++
			continue
		}
		c := cause{f.Cell.Text(result.DUT), f.Error}
		if blocks[c] == nil {
			causes = append(causes, c)
		}
		if number := strconv.Itoa(f.Block + 1); !slices.Contains(blocks[c], number) {
			blocks[c] = append(blocks[c], number)
		}
	}
	for _, c := range causes {
		word := "block "
		if len(blocks[c]) > 1 {
			word = "blocks "
		}
		out = append(out, fmt.Sprintf("Block failed: %s, %s%s: %s", c.dut, word, words.Listed(blocks[c]), c.err))
	}
	if measured > 0 {
		out = append(out, fmt.Sprintf("Failed at first and measured since, when the run was resumed: %s.", words.Counted(measured, "block")))
	}
	return out
}

// limitSentence says what a device broke at.
func limitSentence(l analysis.Limit) string {
	return fmt.Sprintf("%s took %s and not %d: %s", l.DUT, words.Counted(l.Took, "client"), l.Clients, l.How)
}

// noiseSentence says what two clean routers differ by.
func noiseSentence(aa analysis.AA) string {
	r := aa.Ratio
	if !r.Mean.Known() {
		return "not known: no A/A pair was measured and accepted."
	}
	text := fmt.Sprintf("two clean routers differ by × %s", three(r.Mean))
	if r.HasInterval() {
		text += " " + bounds(r, three)
	}
	text += fmt.Sprintf(" (%s in %s", words.Counted(aa.Pairs, "pair"), words.Counted(aa.Blocks, "block"))
	if aa.SDLog.Known() {
		text += fmt.Sprintf(", blocks spread by %s", percent(aa.SDLog*100))
	}
	return text + ")."
}

// costRemarks are the lines below the table of costs.
func costRemarks(s analysis.Summary) []string {
	out := append(append(crowdSentences(s.Cells), churnSentences(s.Cells)...), "Noise floor: "+noiseSentence(s.AA))
	if text := sidesSentence(s); text != "" {
		out = append([]string{"What is weighed: " + text}, out...)
	}
	return out
}

func costReading(s analysis.Summary) string {
	name := strings.TrimSpace(columnsOf(s)[ratioColumn].head)
	return fmt.Sprintf("%s is router CPU per delivered bit, DUT over clean router, with its %g %% interval over blocks; "+
		"it is equivalent when that lies within %g %% of 1; else different when it leaves out 1 and the ratio lies beyond the noise floor; "+
		"both corrected for the number of cells.", name, 100*s.Confidence, 100*s.Delta)
}

// wrap breaks a line at spaces; continuation lines are indented.
func wrap(b *strings.Builder, line string, width int) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	used := 0
	// A figure and its unit stay together.
	line = strings.NewReplacer(" %", "\x00%", "× ", "×\x00").Replace(result.OneLine(line))
	for i, word := range strings.Fields(line) {
		word = strings.ReplaceAll(word, "\x00", " ")
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			b.WriteString(strings.Repeat(" ", indent))
			used = indent
		case width > 0 && used+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent+2))
			used = indent + 2
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	b.WriteByte('\n')
}
