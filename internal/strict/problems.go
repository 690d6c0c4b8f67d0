package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file: where it is, and what would be right.
type Error struct {
	File    string // path as given, or another source of keys, such as --set
	Line    int    // from 1; 0 where the source has no lines
	Key     string // dotted; empty where the file is no TOML
	Problem string // one phrase
}

// Error returns "file:line: key: problem".
func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Key != "" {
		text += ": " + e.Key
	}
	return text + ": " + e.Problem
}

// Problems are all mistakes in a file.
type Problems []*Error

// Error returns a line for each mistake.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, e := range p {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems sorted by line, or nil where there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return p
}
