package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// writeWrapped writes paragraphs that begin at column and are wrapped to width, both in characters. head stands to the
// left of the first line, or on a line of its own where it is too long for that.
func writeWrapped(w io.Writer, head string, column, width int, paragraphs ...string) {
	pad := strings.Repeat(" ", column)
	lead := head + strings.Repeat(" ", max(0, column-utf8.RuneCountInString(head)))
	if head != "" && utf8.RuneCountInString(head) >= column {
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

// minText is the least width of a paragraph, in characters, however narrow the terminal is.
const minText = 24
