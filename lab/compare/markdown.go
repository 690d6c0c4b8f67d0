package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Markdown writes the comparison as GitHub and GitLab show it in a job's
// summary or in a comment.
func Markdown(w io.Writer, c Comparison) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### Gateweigh: %s\n\n", escape(c.headline()))
	for _, line := range c.sides() {
		fmt.Fprintf(&b, "- %s\n", escape(line))
	}
	if len(c.Cells) > 0 {
		fmt.Fprintf(&b, "\n%s\n\n", escape(c.scope()))
		row := func(cells []string) {
			for i, text := range cells {
				cells[i] = escape(text)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
		heads := c.columns()
		row(heads)
		b.WriteString(strings.Repeat("| --- ", len(heads)) + "|\n")
		for i := range c.Cells {
			row(c.row(&c.Cells[i]))
		}
	}
	if len(c.Differences) > 0 {
		b.WriteString("\nNot the same in A and B, and so a possible cause of a change:\n\n")
		for _, d := range c.Differences {
			fmt.Fprintf(&b, "- %s: %s, then %s\n", escape(d.What), escape(setting(d.A)), escape(setting(d.B)))
		}
	}
	b.WriteByte('\n')
	for _, line := range c.remarks() {
		fmt.Fprintf(&b, "- %s\n", escape(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Comparison) headline() string {
	if c.Gate != nil {
		return c.Gate.Sentence
	}
	count := map[string]int{}
	for _, cell := range c.Cells {
		count[cell.Verdict]++
	}
	var parts []string
	for _, word := range []string{Worse, Better, Equivalent, Inconclusive} {
		if count[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[word], word))
		}
	}
	if len(parts) == 0 {
		return "nothing to compare"
	}
	return strings.Join(parts, ", ")
}

// escape keeps a text of unknown origin a text: no markup, no table cell of its
// own, no HTML.
func escape(s string) string {
	var b strings.Builder
	for _, r := range result.OneLine(s) {
		switch r {
		case '<':
			b.WriteString("&lt;")
			continue
		case '>':
			b.WriteString("&gt;")
			continue
		case '&':
			b.WriteString("&amp;")
			continue
		case '\\', '`', '*', '_', '[', ']', '|', '#', '~', '!', '@':
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
