package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// routerColumns returns columns that name a row's router and its setting, without some dimensions.
func routerColumns[T any](dims analysis.Dimensions, head string, cellFrom func(T) result.Cell,
	less ...result.Dimension) []column[T] {
	cols := []column[T]{textColumn(head, func(v T) string { return routerName(cellFrom(v).Text(result.DUT)) })}
	for _, d := range dims.Without(append(less, result.DUT, result.OfferedMbps)...) {
		col := textColumn(d.TerminalHead(), func(v T) string { return shortText(d, cellFrom(v)) }).ifDiffers()
		col.Text = d.Name != result.Clients
		cols = append(cols, col)
	}
	return cols
}

func dimensionsOf(c analysis.Cell) result.Cell { return c.Cell }

var offeredColumn = numberColumn(
	"offered", "", "", rate, func(c analysis.Cell) analysis.Number { return offeredMbps(c.Cell) })

// Terminal writes the result as a compact table with the noise floor, rejected trials, skipped DUTs and an explanation.
// width is the terminal's width in columns. Less important columns are left out until the table fits, and named below
// it. A width of 0 means no limit. Characters that are not printable are replaced.
func Terminal(w io.Writer, s analysis.Summary, width int) error {
	var b strings.Builder
	b.WriteString(result.OneLine(strings.Join(terminalHeading(s), " · ")) + "\n")
	table(&b, ceilingColumns(), s.Ceilings, width)
	table(&b, viewOf(s).columns(s), s.Cells, width)
	if s.Sides != nil {
		table(&b, sidesColumns(), s.Cells, width)
	}
	b.WriteByte('\n')
	for _, line := range remarks(s) {
		wrapLine(&b, line, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// terminalHeading names the experiment and the values that all cells share.
func terminalHeading(s analysis.Summary) []string {
	v := viewOf(s)
	out := []string{words.Or(s.Experiment, "run"), v.mode(s)}
	for _, col := range v.columns(s) {
		texts := slices.Compact(col.texts(s.Cells))
		if !col.onlyIfDiffers || len(texts) != 1 || texts[0] == "" {
			continue
		}
		if col.valueText != nil {
			texts[0] = result.OneLine(col.valueText(s.Cells[0]))
		} else if n, err := strconv.Atoi(texts[0]); err == nil && col.Name == string(result.Clients) {
			texts[0] = words.Counted(n, "client")
		}
		out = append(out, texts[0])
	}
	out = append(out, s.Badges()...)
	return append(out, fmt.Sprintf("%g %% intervals over %s", 100*s.Confidence, words.Plural(s.Unit)))
}

// texts returns the column's cells for the terminal.
func (c column[T]) texts(list []T) (out []string) {
	for _, v := range list {
		cell := c.cell(v)
		text := words.Joined(" ", cell.Main, cell.Small)
		if cell.Text {
			text = result.OneLine(text)
		}
		out = append(out, text)
	}
	return out
}

const columnGap = "  "

// table writes a blank line and the columns that differ and fit. It writes nothing without rows. Columns with the same
// drop are left out together.
func table[T any](b *strings.Builder, columns []column[T], list []T, width int) {
	if len(list) == 0 {
		return
	}
	b.WriteByte('\n')
	type printed struct {
		column[T]
		texts []string
		width int
	}
	var shown []printed
	total := -len(columnGap)
	for _, col := range columns {
		p := printed{column: col, texts: col.texts(list)}
		if col.onlyIfDiffers && len(slices.Compact(slices.Clone(p.texts))) < 2 {
			continue
		}
		p.texts = slices.Insert(p.texts, 0, col.Name)
		for _, text := range p.texts {
			p.width = max(p.width, utf8.RuneCountInString(text))
		}
		shown, total = append(shown, p), total+p.width+len(columnGap)
	}
	var dropped []string
	for drop := 1; width > 0 && drop <= len(columns) && total > width; drop++ {
		shown = slices.DeleteFunc(shown, func(p printed) bool {
			if p.drop == drop {
				total, dropped = total-p.width-len(columnGap), append(dropped, p.Name)
			}
			return p.drop == drop
		})
	}
	for row := range 1 + len(list) {
		line := ""
		for _, p := range shown {
			pad := strings.Repeat(" ", p.width-utf8.RuneCountInString(p.texts[row]))
			if p.Text {
				line += p.texts[row] + pad + columnGap
			} else {
				line += pad + p.texts[row] + columnGap
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if len(dropped) > 0 {
		wrapLine(b, "Left out for want of width: "+words.Listed(distinct(dropped))+". The page and summary.csv have all.",
			width)
	}
}

// reasonsShown is the largest number of reasons of rejection shown. The HTML report has all.
const reasonsShown = 6

// remarks returns the lines under the table.
func remarks(s analysis.Summary) []string {
	out := viewOf(s).remarks(s)
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if until := untilSentence(s); until != "" {
		out = append(append(out, until), endedLines(s)...)
	}
	several, reasons := "", 0
	for _, r := range s.Rejects {
		if reasons += r.Count; reasons > s.Trials.Rejected {
			several = " Some have several reasons:"
		}
	}
	if s.Trials.Rejected > 0 {
		add("Rejected: %s by self-tests, %d accepted (%d repeat a rejected or noisy one).%s",
			words.Counted(s.Trials.Rejected, s.Noun),
			s.Trials.Accepted, s.Trials.Redone, several)
	}
	out = append(out, reasonsText(s.Rejects, reasonsShown, "  ", "  and ")...)
	for _, skip := range s.Skipped {
		add("Skipped: %s: %s", skip.DUT, skip.Reason)
	}
	for _, l := range s.Limits {
		add("Limit: %s", limitSentence(l))
	}
	out = append(append(out, familyRemarks(s)...), nodeRemarks(s)...)
	out = append(out, failedSentences(s.FailedBlocks)...)
	out = append(out, leftSentences(s.LeftBlocks)...)
	for _, warning := range s.Warnings {
		add("Warning: %s", warning)
	}
	if counts := findingCounts(s.Findings); counts != "" {
		add("Findings: %s", counts)
	}
	for _, f := range s.Findings {
		if f.Holds != nil {
			add("  %s %s: %s Here: %s", f.ID, outcome(f).Word, f.Claim, f.Here)
		}
	}
	if len(s.Ceilings) > 0 {
		out = append(out, ceilingsReading)
	}
	if s.Trials.Accepted == 0 { // there is no figure to explain
		return out
	}
	return append(out, "How to read it: "+viewOf(s).reading(s))
}

// reasonWithCount returns a reason with its count.
func reasonWithCount(t analysis.Tally) string {
	return fmt.Sprintf("%d ×%s: %s", t.Count, words.When(t.Count != 1, ", such as"), t.Text)
}

// reasonsText lists the most frequent reasons, each after lead. last introduces the number of others.
func reasonsText(list []analysis.Tally, most int, lead, last string) (out []string) {
	shown, more := bounded(list, most)
	for _, r := range shown {
		out = append(out, lead+reasonWithCount(r))
	}
	if more > 0 {
		out = append(out, last+words.Counted(more, "reason")+" more")
	}
	return out
}

// failedSentences lists each error once, with the blocks that it ended. Blocks that were measured later are left out.
func failedSentences(list []analysis.FailedBlock) (out []string) {
	var causes causes
	measured := 0
	for _, f := range list {
		if f.Measured {
			measured++
			continue
		}
		causes.add(f.Cell, f.Error, f.Block)
	}
	out = causes.sentences("Block failed: %s: %s")
	if measured > 0 {
		out = append(out,
			fmt.Sprintf("Failed at first and measured since, when the run was resumed: %s.", words.Counted(measured, "block")))
	}
	return out
}

// leftSentences lists the errors of closing labs, each once.
func leftSentences(list []analysis.LeftBlock) []string {
	var causes causes
	for _, l := range list {
		causes.add(l.Cell, l.Error, l.Block)
	}
	return causes.sentences("Leaving the labs went wrong: %s, whose trials stand: %s")
}

// causes collects errors, each with its devices and blocks. Blocks count from 1, as in the messages of a run.
type causes struct {
	list   []cause
	blocks map[cause][]string
}

type cause struct{ dut, err string }

func (c *causes) add(cell result.Cell, err string, block int) {
	if c.blocks == nil {
		c.blocks = map[cause][]string{}
	}
	of := cause{cell.Text(result.DUT), err}
	c.list, c.blocks[of] = append(c.list, of), append(c.blocks[of], strconv.Itoa(block+1))
}

// sentences writes one sentence for each error. form takes the device with its blocks, and the error.
func (c *causes) sentences(form string) (out []string) {
	for _, of := range distinct(c.list) {
		blocks, word := distinct(c.blocks[of]), "block"
		if len(blocks) > 1 {
			word = "blocks"
		}
		out = append(out, fmt.Sprintf(form, fmt.Sprintf("%s, %s %s", of.dut, word, words.Listed(blocks)), of.err))
	}
	return out
}

// limitSentence says at how many clients a device broke.
func limitSentence(l analysis.Limit) string {
	return fmt.Sprintf("%s took %s and not %d: %s", l.DUT, words.Counted(l.Took, "client"), l.Clients, l.How)
}

// wrapLine breaks a line at spaces. Continuation lines are indented.
func wrapLine(b *strings.Builder, line string, width int) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if width > 0 {
		width = max(1, width-indent)
	}
	// A figure and its unit stay on one line.
	line = strings.NewReplacer(" %", "\x00%", "× ", "×\x00").Replace(result.OneLine(line))
	for i, part := range words.Wrapped(line, width, 2) {
		if i == 1 {
			indent += 2
		}
		b.WriteString(strings.Repeat(" ", indent) + strings.ReplaceAll(part, "\x00", " ") + "\n")
	}
}
