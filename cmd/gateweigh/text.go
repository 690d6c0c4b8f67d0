package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// writeWrapped writes paragraphs from a column on, wrapped to width, with head to
// the left of the first line.
func writeWrapped(w io.Writer, head string, column, width int, paragraphs ...string) {
	pad := strings.Repeat(" ", column)
	lead := head + strings.Repeat(" ", max(0, column-utf8.RuneCountInString(head)))
	if head != "" && utf8.RuneCountInString(head) >= column { // no room beside it
		fmt.Fprintln(w, head)
		lead = pad
	}
	for _, p := range paragraphs {
		for _, line := range wrap(p, max(width-column, minText)) {
			fmt.Fprintln(w, strings.TrimRight(lead+line, " "))
			lead = pad
		}
	}
}

// minText is the least width of a paragraph, however narrow the terminal.
const minText = 24

// wrap breaks a text into lines of at most width characters, at spaces. A word
// that is longer has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if used > 0 && used+1+n > width {
			lines, line, used = append(lines, line), "", 0
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	if used > 0 {
		lines = append(lines, line)
	}
	return lines
}
