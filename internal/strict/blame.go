package strict

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// longestName is longer than any table's or key's name, bytes. A longer line is not shown.
const longestName = 80

// refused tells what a parser expected, and how to correct usual mistakes. It shows no values, which may be secrets.
func refused(file string, data []byte, bad toml.ParseError, allKeys string) *Error {
	before := data[:min(max(bad.Position.Start, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	if first, problem := blame(data, line, bad.Message); first < line {
		return &Error{File: file, Line: first, Key: bad.LastKey, Problem: problem}
	}
	begin := 1 + bytes.LastIndexByte(before, '\n')
	text, _, _ := strings.Cut(string(data[begin:]), "\n")
	text = strings.TrimSpace(text)
	out := &Error{File: file, Line: line, Key: bad.LastKey, Problem: bad.Message}
	key, value, isKey := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	switch {
	case strings.HasPrefix(text, "["):
		out.Key = ""
		if !strings.Contains(text, "]") && len(text) < longestName {
			out.Problem += ": close the bracket: " + text + "]"
		}
	case !isKey || key == "":
		out.Key = ""
		out.Problem += ": each line is a [table] or key = value; " + allKeys
	case !strings.ContainsAny(strings.TrimSpace(value), `"'[{`) && len(key) < longestName:
		out.Key = key
		out.Problem += ": values other than numbers, true and false stand in quotes: " + key + ` = "…"`
	}
	return out
}

// farBack bounds how many lines blame goes back.
const farBack = 1000

// blame is the line on which begins what a parser refused at a line, both from 1, and what is wrong there: an array or
// text that is not closed is refused where the next key begins. Where it begins on the refused line, the problem is the
// parser's.
func blame(data []byte, refused int, problem string) (line int, text string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	refused = min(refused, len(lines))
	line = opening(data, lines, refused)
	if line == refused {
		return refused, problem
	}
	_, value, _ := strings.Cut(string(lines[line-1]), "=")
	subject := "text that begins here is not closed"
	switch value = strings.TrimSpace(value); {
	case strings.HasPrefix(value, "["):
		subject = "array that begins here is not closed, or lacks a comma,"
	case strings.HasPrefix(value, "{"):
		subject = "table that begins here is not closed, or lacks a comma,"
	}
	return line, fmt.Sprintf("the %s before line %d: %s", subject, refused, problem)
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
