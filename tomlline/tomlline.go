// Package tomlline says what is wrong with a TOML file that is refused: the line to blame, and the word that was meant.
// An array or text that was not closed is refused where the next key begins, and the mistake is above.
package tomlline

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// farBack bounds how many lines Blame goes back.
const farBack = 1000

// Blame is the line on which begins what a parser refused at a line, both counted from 1, and what is wrong there;
// where that is the refused line itself, the parser's own problem.
func Blame(data []byte, refused int, problem string) (line int, said string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	refused = min(refused, len(lines))
	line = opening(data, lines, refused)
	if line == refused {
		return refused, problem
	}
	_, value, _ := strings.Cut(string(lines[line-1]), "=")
	what := "text that begins here is not closed"
	switch value = strings.TrimSpace(value); {
	case strings.HasPrefix(value, "["):
		what = "array that begins here is not closed, or lacks a comma,"
	case strings.HasPrefix(value, "{"):
		what = "table that begins here is not closed, or lacks a comma,"
	}
	return line, fmt.Sprintf("the %s before line %d: %s", what, refused, problem)
}

// opening is the last line, up to the refused one, above which the file is whole.
func opening(data []byte, lines [][]byte, refused int) int {
	above := len(bytes.Join(lines[:refused-1], nil))
	for line := refused; line > max(0, refused-farBack); line-- {
		var whole map[string]toml.Primitive
		if toml.Unmarshal(data[:above], &whole) == nil {
			return line
		}
		if line > 1 {
			above -= len(lines[line-2])
		}
	}
	return refused
}
