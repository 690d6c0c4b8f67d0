// Package strict reads TOML files in which every key must be known: gatewayd's configuration and the lab's experiments.
// It lists the keys of a file with their lines, parses values, and says of each mistake the file, the line, the key and
// what would be right. Which keys there are is the programs' own.
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

// Entry is one key of a file. A table precedes what is in it. Several tables of a name ([[name]]) are one entry with
// the value []map[string]any, which precedes an entry for each of them.
type Entry struct {
	Path  toml.Key
	Value any // as toml.Unmarshal makes it
	Line  int // where it begins, from 1; of a table without a header that of its first key
	// Row is the number, from 1, of the table of several of a name that the entry is or is in; 0: it is in none. Table is
	// their name, the outermost one's.
	Row   int
	Table string
}

// Key is the entry's dotted name.
func (e Entry) Key() string { return e.Path.String() }

// Read lists a text's keys by their lines. Of what is no TOML it says what to do; allKeys says there where all keys are
// shown.
func Read(file string, data []byte, allKeys string) ([]Entry, *Error) {
	data = textfile.Trim(data) // toml.Decode does so too, and then its positions are not those of data
	if first, _, _ := bytes.Cut(data, []byte{'\n'}); bytes.IndexByte(first, 0) >= 0 {
		return nil, &Error{File: file, Line: 1, Problem: "is no text: name a file in TOML; " + allKeys}
	}
	var top map[string]any
	_, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&top)
	var bad toml.ParseError
	if errors.As(err, &bad) {
		return nil, refused(file, data, bad, allKeys)
	}
	if err != nil {
		return nil, &Error{File: file, Line: 1, Problem: err.Error()}
	}
	return list(Entry{}, top, placesIn(data)), nil
}

// list lists the keys of a table and of the tables below it.
func list(in Entry, table map[string]any, places *place) []Entry {
	var groups [][]Entry // each a key, and then all below it
	for name, value := range table {
		parent := places.below[name]
		if parent == nil { // the parser of places has not read it
			parent = &place{line: places.line}
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

// listRows lists several tables of one name ([[name]]), and the keys of each.
func listRows(e Entry, tables []map[string]any, parent *place) (all []Entry) {
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

// place is the position of a key in the text of a file.
type place struct {
	line  int               // of its header or value; without those, of the first key below it
	below map[string]*place // keys in it
	rows  []*place          // each table of its name, where there are several
}

// placesIn finds the keys of a text, by a parser that has their positions. It takes what toml.Decode took.
func placesIn(data []byte) *place {
	top := &place{}
	s := scan{data: data, line: 1}
	s.parser.Reset(data)
	for in := top; s.parser.NextExpression(); {
		switch e := s.parser.Expression(); e.Kind {
		case unstable.Table:
			in = s.find(top, e)
			in.line = s.line
		case unstable.ArrayTable:
			in = s.find(top, e)
			in.rows = append(in.rows, &place{line: s.line})
			in = in.newest()
		case unstable.KeyValue:
			s.value(in, e)
		}
	}
	return top
}

// scan reads the positions of all keys of a text.
type scan struct {
	parser unstable.Parser
	data   []byte
	read   uint32 // bytes of data before the last key
	line   int    // of that key
}

// value finds a key with a value, and the keys in that value.
func (s *scan) value(in *place, e *unstable.Node) {
	parent := s.find(in, e)
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for keys := e.Value().Children(); keys.Next(); {
		s.value(parent, keys.Node())
	}
}

// find finds the place that an expression's key names, below another.
func (s *scan) find(parent *place, e *unstable.Node) *place {
	for parts := e.Key(); parts.Next(); {
		part := parts.Node()
		s.line += bytes.Count(s.data[s.read:part.Raw.Offset], []byte("\n"))
		s.read = part.Raw.Offset
		parent = parent.newest().key(string(part.Data), s.line)
	}
	return parent
}

// newest returns the last table of several with one name ([[name]]): keys that follow in the text are in that one.
func (p *place) newest() *place {
	if len(p.rows) > 0 {
		return p.rows[len(p.rows)-1]
	}
	return p
}

// key is the place of a key, which is new where the key was not named before.
func (p *place) key(name string, line int) *place {
	if p.below == nil {
		p.below = map[string]*place{}
	}
	if p.below[name] == nil {
		p.below[name] = &place{line: line}
	}
	return p.below[name]
}

// Assign hands each entry to set and returns what it refuses. set also reports whether the entries below are to be
// handed to it: not those of a table that it does not know, or has taken whole.
func Assign(file string, entries []Entry, set func(Entry) (descend bool, err error)) (problems Problems) {
	done := "" // what begins so is not handed over
	for _, e := range entries {
		key := e.Key()
		if done != "" && strings.HasPrefix(key, done) {
			continue
		}
		descend, err := set(e)
		if err != nil {
			problems = append(problems, &Error{File: file, Line: e.Line, Key: key, Problem: err.Error()})
		}
		if done = ""; !descend {
			done = key + "."
		}
	}
	return problems
}
