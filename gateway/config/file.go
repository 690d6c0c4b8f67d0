package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/textfile"
	"github.com/gateweigh/gateweigh/tomlline"
)

// Error is one problem of a file: line, key, and the fix.
type Error struct {
	File    string // path as given
	Line    int    // from 1
	Key     string // dotted; empty when the text is not valid TOML
	Problem string // one phrase
}

// Error is "file:line: key: problem".
func (e *Error) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Key, e.Problem)
}

// Problems are all problems of a file, by line.
type Problems []*Error

// Error returns one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, e := range p {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// asError sorts the problems; without problems it returns nil.
func (p Problems) asError() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return p
}

// Parse reads and checks a text. name is for messages, and relative paths in the text
// start at its folder; no file is opened. An error is Problems.
func Parse(name string, data []byte) (*Config, error) {
	c := defaults()
	c.File = name
	entries, syntax := readEntries(name, data)
	if syntax != nil {
		return nil, Problems{syntax}
	}
	problems := Problems(c.apply(entries))
	// Checks of combinations ignore keys that were refused already, so that one mistake
	// gives one message.
	bad := map[string]bool{}
	for _, p := range problems {
		bad[p.Key] = true
	}
	for _, p := range c.check() {
		if !bad[p.Key] {
			problems = append(problems, p)
		}
	}
	if err := problems.asError(); err != nil {
		return nil, err
	}
	c.complete()
	return c, nil
}

// entry is one key of a text. A table precedes its keys.
type entry struct {
	path  toml.Key
	value any // as the toml package decodes into any
	line  int
	row   int    // of several tables of one name ([[name]]), from 1; 0: not in one
	table string // that name
}

// readEntries lists a text's keys by line, tables before their keys.
func readEntries(name string, data []byte) ([]entry, *Error) {
	data = textfile.Trim(data) // the toml package does so too, and then its positions are not those of data
	var top map[string]toml.Primitive
	md, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&top)
	var bad toml.ParseError
	if errors.As(err, &bad) {
		return nil, syntaxError(name, data, bad)
	}
	if err != nil {
		return nil, &Error{File: name, Line: 1, Problem: err.Error()}
	}
	t := text{md: &md, data: data}
	return t.entries(nil, top), nil
}

// syntaxError says what the parser expected, and how to correct the usual mistakes. It shows no
// values, which may be secrets.
func syntaxError(name string, data []byte, bad toml.ParseError) *Error {
	before := data[:min(max(bad.Position.Start, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	if first, problem := tomlline.Blame(data, line, bad.Message); first < line {
		return &Error{File: name, Line: first, Key: bad.LastKey, Problem: problem}
	}
	begin := 1 + bytes.LastIndexByte(before, '\n')
	text, _, _ := strings.Cut(string(data[begin:]), "\n")
	text = strings.TrimSpace(text)
	out := &Error{File: name, Line: line, Key: bad.LastKey, Problem: bad.Message}
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
		out.Problem += `: each line is a [table] or key = value; gatewayd example-config shows every key`
	case !strings.ContainsAny(strings.TrimSpace(value), `"'[{`) && len(key) < longestName:
		out.Key = key
		out.Problem += ": values other than numbers, true and false stand in quotes: " + key + ` = "…"`
	}
	return out
}

// longestName is longer than any table's name, bytes: a longer line is not shown.
const longestName = 80

// text is a decoded file with its bytes.
type text struct {
	md   *toml.MetaData
	data []byte
}

// entries lists what is in a table and below. A table that only its keys imply ("a.b =
// 1") has the position of the first key.
func (t text) entries(parent toml.Key, table map[string]toml.Primitive) []entry {
	var groups [][]entry // a key with everything below it
	for name, value := range table {
		head := entry{path: append(slices.Clone(parent), name), line: t.line(value)}
		// Whatever the parser accepted decodes into any.
		_ = t.md.PrimitiveDecode(value, &head.value)
		if _, several := head.value.([]map[string]any); several {
			groups = append(groups, t.rows(head.path, value)...)
			continue
		}
		var below []entry
		var sub map[string]toml.Primitive
		if _, isTable := head.value.(map[string]any); isTable && t.md.PrimitiveDecode(value, &sub) == nil {
			below = t.entries(head.path, sub)
		}
		if head.line == 0 && len(below) > 0 {
			head.line = below[0].line
		}
		head.line = max(1, head.line)
		groups = append(groups, append([]entry{head}, below...))
	}
	slices.SortFunc(groups, func(a, b []entry) int {
		return cmp.Or(cmp.Compare(a[0].line, b[0].line), cmp.Compare(a[0].path.String(), b[0].path.String()))
	})
	return slices.Concat(groups...)
}

// rows lists what is in tables of one name and below, a group for each.
func (t text) rows(name toml.Key, value toml.Primitive) (groups [][]entry) {
	var tables []toml.Primitive
	if t.md.PrimitiveDecode(value, &tables) != nil {
		return nil
	}
	headers := t.headers(name)
	for i, table := range tables {
		head := entry{path: name, value: map[string]any{}, line: max(1, t.line(table))}
		var sub map[string]toml.Primitive
		_ = t.md.PrimitiveDecode(table, &sub)
		group := append([]entry{head}, t.entries(name, sub)...)
		if len(tables) > 1 && len(headers) == len(tables) {
			if alone := t.alone(name, headers[i]); len(alone) == len(group) {
				group = alone
			}
		}
		for j := range group {
			group[j].row, group[j].table = i+1, name.String()
		}
		groups = append(groups, group)
	}
	return groups
}

// headers lists the lines that begin tables of a name, from 1.
func (t text) headers(name toml.Key) (lines []int) {
	head := regexp.MustCompile(`^\s*\[\[\s*` + regexp.QuoteMeta(name.String()) + `\s*\]\]`)
	n := 0
	for line := range bytes.Lines(t.data) {
		if n++; head.Match(line) {
			lines = append(lines, n)
		}
	}
	return lines
}

// alone reads the table that begins in a line without the rest of the text. The toml package knows the
// positions of the last one of several tables only.
func (t text) alone(name toml.Key, first int) (table []entry) {
	lines := bytes.SplitAfter(t.data, []byte("\n"))
	end := first
	for end < len(lines) && !bytes.HasPrefix(bytes.TrimSpace(lines[end]), []byte("[")) {
		end++
	}
	entries, bad := readEntries("", append(bytes.Repeat([]byte("\n"), first-1), bytes.Join(lines[first-1:end], nil)...))
	if bad != nil {
		return nil
	}
	for _, e := range entries {
		if e.row == 1 && e.table == name.String() {
			table = append(table, e)
		}
	}
	return table
}

// rowKey is the name of a line in Config.lines: the key, in one of several tables of a name with the
// table's number.
func rowKey(path toml.Key, row int) string {
	if row == 0 {
		return path.String()
	}
	return fmt.Sprintf("%s#%d", path, row)
}

// refuser rejects every value, because the toml package reports the position of a value
// only with a decoding error.
type refuser struct{}

var errRefused = errors.New("refused to learn its position")

// UnmarshalTOML implements toml.Unmarshaler.
func (*refuser) UnmarshalTOML(any) error { return errRefused }

// line is where a value begins, 0 for an implied table. The package's line is the end of
// a value of several lines, but its offset is the beginning.
func (t text) line(value toml.Primitive) int {
	var at toml.ParseError
	if !errors.As(t.md.PrimitiveDecode(value, &refuser{}), &at) || at.Position.Line == 0 {
		return 0
	}
	begin := min(max(at.Position.Start, 0), len(t.data))
	return min(at.Position.Line, 1+bytes.Count(t.data[:begin], []byte("\n")))
}

// suggestion returns `; did you mean "…"?` when a known word is similar, or the same in another table, else nothing.
func suggestion(given string, known []string) string {
	if meant := tomlline.Meant(given, known); meant != "" {
		return meant
	}
	if word := elsewhere(given, known); word != "" {
		return tomlline.Mean(word)
	}
	return ""
}

// elsewhere returns the only known key with the same last part, if there is exactly one:
// a key in the wrong table, or in none.
func elsewhere(given string, known []string) string {
	last := func(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
	found := ""
	for _, key := range known {
		if last(key) != last(given) || !strings.Contains(key, ".") {
			continue
		}
		if found != "" {
			return ""
		}
		found = key
	}
	return found
}
