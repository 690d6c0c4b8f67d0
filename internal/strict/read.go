// Package strict reads TOML files in which every key must be known: gatewayd's configuration and the lab's experiments.
// It lists the keys of a file with their lines and parses values. For each mistake it names the file, the line, the
// key, and what would be right. Its callers decide which keys there are.
package strict

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gateweigh/gateweigh/textfile"
)

// Entry is one key of a file. The entry of a table precedes those of its keys. An array of tables ([[name]]) is one
// entry with the value []map[string]any, followed by an entry for each of its tables.
type Entry struct {
	Path  toml.Key
	Value any // as toml.Unmarshal makes it
	Line  int // where it begins, from 1; for a table without a header the line of its first key
	// Row and Table are set for a table of an array, and for the keys in it: Table is the name of the array, and Row the
	// number of the table, from 1. Of nested arrays they are those of the outermost.
	Row   int
	Table string
}

// Key returns the entry's dotted name.
func (e Entry) Key() string { return e.Path.String() }

// Read lists the keys of a file's text in the order of their lines. Its error for text that is no TOML says what to do;
// allKeys tells there where all keys are listed.
func Read(file string, data []byte, allKeys string) ([]Entry, *Error) {
	data = textfile.Trim(data) // toml.Decode trims too, so without this its positions would not fit data
	if first, _, _ := bytes.Cut(data, []byte{'\n'}); bytes.IndexByte(first, 0) >= 0 {
		return nil, &Error{File: file, Line: 1, Problem: "is no text: name a file in TOML; " + allKeys}
	}
	var top map[string]any
	_, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&top)
	var bad toml.ParseError
	if errors.As(err, &bad) {
		return nil, parseError(file, data, bad, allKeys)
	}
	if err != nil {
		return nil, &Error{File: file, Line: 1, Problem: err.Error()}
	}
	return list(Entry{}, top, findPositions(data)), nil
}

// list lists the keys of a table and of the tables below it. in is the table's entry, places has the positions.
func list(in Entry, table map[string]any, places *position) []Entry {
	var groups [][]Entry // one for each key: its entry, followed by those below it
	for name, value := range table {
		parent := places.below[name]
		if parent == nil { // findPositions did not find it
			parent = &position{line: places.line}
		}
		e := Entry{append(slices.Clip(in.Path), name), value, max(1, parent.line), in.Row, in.Table}
		group := []Entry{e}
		switch value := value.(type) {
		case map[string]any:
			group = append(group, list(e, value, parent)...)
		case []map[string]any:
			group = append(group, listRows(e, value, parent)...)
		}
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b []Entry) int {
		return cmp.Or(cmp.Compare(a[0].Line, b[0].Line), cmp.Compare(a[0].Key(), b[0].Key()))
	})
	return slices.Concat(groups...)
}

// listRows lists the tables of an array of tables, and the keys of each. e is the array's entry.
func listRows(e Entry, tables []map[string]any, parent *position) (all []Entry) {
	for i, table := range tables {
		here := parent
		if i < len(parent.rows) {
			here = parent.rows[i]
		}
		row := e
		row.Value, row.Line = table, max(1, here.line)
		if row.Row == 0 {
			row.Row, row.Table = i+1, e.Key()
		}
		all = append(append(all, row), list(row, table, here)...)
	}
	return all
}

// position is the position of a key in the text of a file.
type position struct {
	line  int                  // of its header or value; without those, of the first key below it
	below map[string]*position // keys in it
	rows  []*position          // each table of its name, where there are several
}

// findPositions finds the positions of the keys of a text that toml.Decode has accepted. toml.Decode does not tell
// them, so another parser reads the text once more.
func findPositions(data []byte) *position {
	top := &position{}
	s := positionReader{data: data, line: 1}
	s.parser.Reset(data)
	for in := top; s.parser.NextExpression(); {
		switch e := s.parser.Expression(); e.Kind {
		case unstable.Table:
			in = s.find(top, e)
			in.line = s.line
		case unstable.ArrayTable:
			in = s.find(top, e)
			in.rows = append(in.rows, &position{line: s.line})
			in = in.newest()
		case unstable.KeyValue:
			s.value(in, e)
		}
	}
	return top
}

// positionReader counts lines while it reads the keys of a text.
type positionReader struct {
	parser unstable.Parser
	data   []byte
	read   uint32 // bytes of data before the last key
	line   int    // of that key
}

// value enters the key of an expression "key = value" below in, and the keys in that value.
func (s *positionReader) value(in *position, e *unstable.Node) {
	parent := s.find(in, e)
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for keys := e.Value().Children(); keys.Next(); {
		s.value(parent, keys.Node())
	}
}

// find returns the position of an expression's dotted key below parent, which it makes where it is new.
func (s *positionReader) find(parent *position, e *unstable.Node) *position {
	for parts := e.Key(); parts.Next(); {
		part := parts.Node()
		s.line += bytes.Count(s.data[s.read:part.Raw.Offset], []byte("\n"))
		s.read = part.Raw.Offset
		parent = parent.newest().key(string(part.Data), s.line)
	}
	return parent
}

// newest returns the last table of an array of tables, because the keys that follow in the text belong to it. For
// anything else it returns p.
func (p *position) newest() *position {
	if len(p.rows) > 0 {
		return p.rows[len(p.rows)-1]
	}
	return p
}

// key returns the position of a key in p; where the key is new it is on this line.
func (p *position) key(name string, line int) *position {
	if p.below == nil {
		p.below = map[string]*position{}
	}
	if p.below[name] == nil {
		p.below[name] = &position{line: line}
	}
	return p.below[name]
}

// Assign calls set for each entry and returns the problems. descend tells whether set wants the entries below an entry
// too: not those of a table that it does not know, or has read as a whole.
func Assign(file string, entries []Entry, set func(Entry) (descend bool, err error)) (problems Problems) {
	skipped := "" // the prefix of keys that set does not want
	for _, e := range entries {
		key := e.Key()
		if skipped != "" && strings.HasPrefix(key, skipped) {
			continue
		}
		descend, err := set(e)
		if err != nil {
			problems = append(problems, &Error{File: file, Line: e.Line, Key: key, Problem: err.Error()})
		}
		if skipped = ""; !descend {
			skipped = key + "."
		}
	}
	return problems
}
