package strict

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxName is the longest name of a table or key that an error shows, in bytes. What is longer is no name, and may be a
// secret.
const maxName = 80

// parseError turns the parser's error about a file into one that says where the mistake begins and, for usual mistakes,
// how to correct it. It shows no values, because they may be secrets. allKeys tells where all keys are listed.
func parseError(file string, data []byte, bad toml.ParseError, allKeys string) *Error {
	before := data[:min(max(bad.Position.Start, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	if first, problem := locate(data, line, bad.Message); first < line {
		return &Error{File: file, Line: first, Key: bad.LastKey, Problem: problem}
	}
	if twice := duplicate(data, line, bad.Message); twice != nil {
		twice.File = file
		return twice
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
		if !strings.Contains(text, "]") && len(text) < maxName {
			out.Problem += ": close the bracket: " + text + "]"
		}
	case !isKey || key == "":
		out.Key = ""
		out.Problem += ": each line is a [table] or key = value; " + allKeys
	case !strings.ContainsAny(strings.TrimSpace(value), `"'[{`) && len(key) < maxName:
		out.Key = key
		out.Problem += ": values other than numbers, true and false stand in quotes: " + key + ` = "…"`
	}
	return out
}

// definedTwice is the parser's message about a key or table that stands above already.
var definedTwice = regexp.MustCompile(`^Key '(.*)' has already been defined`)

// duplicate returns the error for a key or table that stands above the line already; nil: the message is about
// something else.
func duplicate(data []byte, line int, message string) *Error {
	m := definedTwice.FindStringSubmatch(message)
	if m == nil || len(m[1]) > maxName {
		return nil
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	first := findPositions(bytes.Join(lines[:min(line-1, len(lines))], nil))
	for _, part := range strings.Split(m[1], ".") {
		if first = first.newest().below[part]; first == nil {
			return nil
		}
	}
	remedy := "delete one of the two"
	if header := strings.TrimSpace(string(lines[line-1])); strings.HasPrefix(header, "[") {
		remedy = fmt.Sprintf("put the keys of both below one, or write each as [[%s]] where there may be several", m[1])
	}
	return &Error{Line: line, Key: m[1], Problem: fmt.Sprintf("is on line %d already: %s", first.newest().line, remedy)}
}

// maxLinesBack is how many lines above the parser's line a mistake is looked for.
const maxLinesBack = 1000

// locate returns the line on which a mistake begins, and what is wrong there. Lines count from 1. The parser reports an
// array or text that is not closed only at the next key, the refused line, so the mistake may begin above it. Where it
// does not, locate returns the refused line and the parser's problem.
func locate(data []byte, refused int, problem string) (line int, text string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	refused = min(refused, len(lines))
	line = lineWhereBroken(data, lines, refused)
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

// lineWhereBroken returns the last line, up to the refused one, above which the file is correct TOML.
func lineWhereBroken(data []byte, lines [][]byte, refused int) int {
	above := len(bytes.Join(lines[:refused-1], nil))
	for line := refused; line > max(0, refused-maxLinesBack); line-- {
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
