package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
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
		for _, line := range words.Wrapped(result.OneLine(p), max(width-column, minText), 0) {
			fmt.Fprintln(w, strings.TrimRight(lead+line, " "))
			lead = pad
		}
	}
}

// minText is the least width of a paragraph, however narrow the terminal.
const minText = 24
