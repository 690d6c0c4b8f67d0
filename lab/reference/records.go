package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

const module = "github.com/gateweigh/gateweigh/"

// records writes the page of the records of trials.jsonl and of the other JSON files.
func records(root string) (string, error) {
	p := recordsPage{root: root, packages: map[string]map[string]source{}, seen: map[reflect.Type]bool{}}
	p.text.WriteString(head("Records",
		"What the files are for: [data format](../data-format.md). Units are in the names: `_ns`, `_us`, `_ms`, `_seconds`, "+
			"`_mib` (2²⁰ bytes), `_mbps` (10⁶ bit/s), `_kpps` (thousand frames a second), `_pct` (per "+
			"cent), `_ratio` and `_share` (0 to 1). "+
			"A question mark: the key is left out where it has no value. A number that is not known is `null`."))
	for _, part := range []struct {
		title string
		types []reflect.Type
	}{
		{"trials.jsonl", kinds()},
		{"course.jsonl.gz", []reflect.Type{reflect.TypeFor[result.Course]()}},
		{"summary.json", []reflect.Type{reflect.TypeFor[analysis.Summary]()}},
		{"environment.json", []reflect.Type{reflect.TypeFor[result.Environment]()}},
		{"compare --json", []reflect.Type{reflect.TypeFor[compare.Comparison]()}},
	} {
		fmt.Fprintf(&p.text, "## %s\n\n", part.title)
		p.queue = part.types
		for len(p.queue) > 0 && p.err == nil {
			t := p.queue[0]
			p.queue = p.queue[1:]
			p.table(t)
		}
	}
	p.dimensions()
	return strings.TrimSpace(p.text.String()) + "\n", p.err
}

// dimensions writes one row for each dimension of cells, from the lists of the measures.
func (p *recordsPage) dimensions() {
	p.text.WriteString("## Dimensions\n\n| Dimension | Meaning |\n|---|---|\n")
	seen := map[result.Dimension]bool{}
	for _, m := range measure.All() {
		for _, d := range m.Summarise(example, analysis.Options{}).Dimensions {
			if !seen[d.Name] {
				fmt.Fprintf(&p.text, "| `%s` | %s |\n", d.Name, cell(d.Text))
			}
			seen[d.Name] = true
		}
	}
}

// kinds lists the types of a run's records.
func kinds() []reflect.Type {
	list := []reflect.Type{reflect.TypeFor[result.Trial](), reflect.TypeFor[result.Block]()}
	for _, m := range measure.All() {
		for _, k := range m.Records() {
			if k.Name != result.KindTrial && k.Name != result.KindBlock {
				list = append(list, reflect.TypeOf(k.New()).Elem())
			}
		}
	}
	return list
}

// kindOf returns the kind of the records of a type. It is empty for a part of a record.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[result.Trial]():
		return result.KindTrial
	case reflect.TypeFor[result.Block]():
		return result.KindBlock
	}
	for _, m := range measure.All() {
		for _, k := range m.Records() {
			if reflect.TypeOf(k.New()).Elem() == t {
				return k.Name
			}
		}
	}
	return ""
}

type recordsPage struct {
	root     string
	packages map[string]map[string]source
	text     strings.Builder
	queue    []reflect.Type
	seen     map[reflect.Type]bool
	err      error
}

// source has the doc comments of a struct type.
type source struct {
	text   string
	fields map[string]string // by Go field name
}

// table writes the table of a struct, and puts the structs in it into the queue of tables.
func (p *recordsPage) table(t reflect.Type) {
	if p.seen[t] {
		return
	}
	p.seen[t] = true
	title, doc := titleOf(t), p.source(t)
	meaning := clean(withoutName(doc.text, t.Name()), t)
	fmt.Fprintf(&p.text, "### %s\n\n%s\n\n| Key | Value | Meaning |\n|---|---|---|\n", title, meaning)
	p.rows(t)
	if kind := kindOf(t); kind == result.KindTrial || kind == result.KindBlock {
		for _, m := range measure.All() {
			for _, k := range m.Records() {
				if k.Name == kind {
					fmt.Fprintf(&p.text, "| … | | the next ones are of `measure = %q` alone |\n", m.Rules().Name)
					p.rows(reflect.TypeOf(k.New()).Elem())
				}
			}
		}
	}
	p.text.WriteString("\n")
}

// rows writes the rows of a struct, with those of embedded structs.
func (p *recordsPage) rows(t reflect.Type) {
	doc := p.source(t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !f.IsExported():
		case f.Type == reflect.TypeFor[result.Head]():
			fmt.Fprintf(&p.text, "| … | %s | what records of all measures have |\n", p.value(f.Type))
		case f.Anonymous && tag == "":
			p.rows(f.Type)
		case tag == "" && f.Tag.Get("json") == "":
			p.err = errors.Join(p.err, fmt.Errorf("%s.%s has no name in JSON", t, f.Name))
		default:
			value := p.value(f.Type)
			if strings.Contains(options, "omit") {
				value += "?"
			}
			fmt.Fprintf(&p.text, "| `%s` | %s | %s |\n", tag, value, clean(withoutName(doc.fields[f.Name], f.Name), t))
		}
	}
}

// value describes a type in words. It puts structs into the queue of tables.
func (p *recordsPage) value(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[analysis.Cell]():
		return p.value(analysis.CellRecord())
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[result.Cell]():
		return "[cell](#dimensions)"
	case t == reflect.TypeFor[analysis.Number]():
		return "number"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "text"
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint64, reflect.Uint32, reflect.Uint16:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Pointer:
		return p.value(t.Elem())
	case reflect.Slice, reflect.Array:
		return "list of " + p.value(t.Elem())
	case reflect.Map:
		return "by name: " + p.value(t.Elem())
	case reflect.Struct:
		if !p.seen[t] && !slices.Contains(p.queue, t) {
			p.queue = append(p.queue, t)
		}
		return "[" + titleOf(t) + "](#" + anchor(titleOf(t)) + ")"
	}
	return t.String()
}

// titleOf returns a record's kind, or the name of its type with its package.
func titleOf(t reflect.Type) string {
	if kind := kindOf(t); kind != "" {
		return "kind: " + kind
	}
	return strings.ToLower(strings.TrimSuffix(t.String(), "JSON"))
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9_ -]`)

func anchor(title string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(title, ""), " ", "-")
}

// source reads the doc comments of a type.
func (p *recordsPage) source(t reflect.Type) source {
	dir := strings.TrimPrefix(t.PkgPath(), module)
	if p.packages[dir] == nil {
		types, err := typesIn(filepath.Join(p.root, dir))
		p.err = errors.Join(p.err, err)
		p.packages[dir] = types
	}
	s, ok := p.packages[dir][t.Name()]
	if !ok {
		p.err = errors.Join(p.err, fmt.Errorf("no source of %s in %s", t, dir))
	}
	return s
}

// typesIn reads the doc comments of a package's struct types.
func typesIn(dir string) (map[string]source, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	types := map[string]source{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, spec := range g.Specs {
					spec := spec.(*ast.TypeSpec)
					if s, ok := spec.Type.(*ast.StructType); ok {
						types[spec.Name.Name] = source{text: commentOf(spec.Doc, g.Doc), fields: fieldsOf(s)}
					}
				}
			}
		}
	}
	return types, nil
}

// fieldsOf returns the comments of fields: those at the end of the line, or else those above.
func fieldsOf(s *ast.StructType) map[string]string {
	fields := map[string]string{}
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			fields[n.Name] = commentOf(f.Comment, f.Doc)
		}
	}
	return fields
}

func commentOf(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

// withoutName removes the name at the beginning of a comment: "Name is the …".
func withoutName(text, name string) string {
	for _, verb := range []string{" is ", " are ", ": ", " means "} {
		if rest, ok := strings.CutPrefix(text, name+verb); ok {
			return rest
		}
	}
	return text
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// clean replaces the names of a struct's fields in a comment by their JSON keys.
func clean(text string, t reflect.Type) string {
	text = word.ReplaceAllStringFunc(text, func(name string) string {
		if f, ok := t.FieldByName(name); ok {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if lower := strings.ToLower(name); tag != "" && tag != "-" && lower != name && tag != lower {
				return "`" + tag + "`"
			}
		}
		return name
	})
	return cell(text)
}
