package experiment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/textfile"
	"github.com/gateweigh/gateweigh/tomlline"
)

// Error is one problem in an experiment: where it is, which key, what is wrong.
type Error struct {
	File    string // path as given, or "--set" for a command-line override
	Line    int    // counts from 1; zero for an override
	Key     string // dotted, as in TOML; empty when the file is no TOML at all
	Problem string // one phrase, with what would be right
}

// Error is "file:line: key: problem".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, ": %s", e.Key)
	}
	fmt.Fprintf(&b, ": %s", e.Problem)
	return b.String()
}

// origin is where a key was set.
type origin struct {
	file string
	line int
}

// entry is one key of a file. Tables are entries too, ahead of their keys.
type entry struct {
	origin
	key   toml.Key
	value any // as the toml package decodes into any
}

// parseEntries lists the keys of a TOML text, each table ahead of what is in it
// and otherwise in the order of the text.
func parseEntries(file string, data []byte) ([]entry, error) {
	// the toml package takes marks off too, and then its positions are not those of data
	data, err := textfile.Decode(data)
	if err != nil {
		return nil, &Error{File: file, Line: 1, Problem: err.Error()}
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // scripts of devices go to a shell
	var top map[string]toml.Primitive
	md, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&top)
	if err != nil {
		var p toml.ParseError
		if errors.As(err, &p) {
			line, problem := tomlline.Blame(data, max(1, p.Position.Line), p.Message)
			return nil, &Error{File: file, Line: line, Key: p.LastKey, Problem: problem}
		}
		return nil, &Error{File: file, Line: 1, Problem: err.Error()}
	}
	return walk(&md, data, file, nil, top), nil
}

// walk descends into tables. A table that is only implied by its keys ("a.b = 1")
// has no position of its own: it takes that of its first key.
func walk(md *toml.MetaData, data []byte, file string, parent toml.Key, table map[string]toml.Primitive) []entry {
	var families [][]entry // each a key followed by all below it
	for name, p := range table {
		e := entry{key: append(slices.Clip(parent), name)}
		e.origin = origin{file, lineOf(md, p, data)}
		// A value the decoder has parsed always fits into any.
		_ = md.PrimitiveDecode(p, &e.value)
		var children []entry
		var sub map[string]toml.Primitive
		if _, isTable := e.value.(map[string]any); isTable && md.PrimitiveDecode(p, &sub) == nil {
			children = walk(md, data, file, e.key, sub)
		}
		if e.line == 0 && len(children) > 0 {
			e.line = children[0].line
		}
		e.line = max(1, e.line)
		families = append(families, append([]entry{e}, children...))
	}
	slices.SortFunc(families, func(a, b []entry) int {
		return cmp.Or(a[0].line-b[0].line, cmp.Compare(a[0].key.String(), b[0].key.String()))
	})
	return slices.Concat(families...)
}

// position makes the toml package tell where a value stands: it reports
// positions only in errors, so decoding into a position always fails.
type position struct{}

var errPosition = errors.New("position asked for")

// UnmarshalTOML implements toml.Unmarshaler.
func (*position) UnmarshalTOML(any) error { return errPosition }

// lineOf is the line a value begins on, or zero for an implied table. The
// decoder's own line is where the value *ends*, hence the count from its offset.
func lineOf(md *toml.MetaData, p toml.Primitive, data []byte) int {
	var at toml.ParseError
	if !errors.As(md.PrimitiveDecode(p, &position{}), &at) || at.Position.Line == 0 {
		return 0
	}
	start := min(at.Position.Start, len(data))
	return min(at.Position.Line, 1+bytes.Count(data[:start], []byte("\n")))
}
