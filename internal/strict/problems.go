package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake of a file: where it is, and what would be right.
type Error struct {
	File    string // path as given, or what stands for a file
	Line    int    // from 1; 0: it has no lines
	Key     string // dotted; empty where the file is no TOML
	Problem string // one phrase
}

// Error is "file:line: key: problem".
func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Key != "" {
		at += ": " + e.Key
	}
	return at + ": " + e.Problem
}

// Problems are all mistakes of a file.
type Problems []*Error

// Error has a line for each.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, e := range p {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Err sorts the problems by line; without any it is nil.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return p
}
