package gateweigh_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// viewsOfMetrics are the packages that show metrics, and do not define them.
var viewsOfMetrics = []string{"lab/compare", "lab/report", "lab/studies"}

// TestViewsNameMetricsByConstants: a misspelt constant does not compile, a misspelt name is an empty cell of a table.
func TestViewsNameMetricsByConstants(t *testing.T) {
	constants := map[string]string{} // where each is, by its value
	for _, dir := range append(glob(t, "lab/measure/*"), "lab/analysis") {
		for _, file := range goFiles(t, dir) {
			for _, decl := range file.Decls {
				if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
					each(d, func(text string) { constants[text] = dir })
				}
			}
		}
	}
	if constants["cpu_ns_per_bit"] != "lab/measure/cost" {
		t.Fatal("the constants of the measure cost were not found")
	}
	for _, dir := range viewsOfMetrics {
		for _, file := range goFiles(t, dir) {
			for _, decl := range file.Decls {
				each(decl, func(text string) {
					if where, is := constants[text]; is && strings.Contains(text, "_") {
						t.Errorf("%s/%s.go names the metric %q: use the constant of %s", dir, file.Name.Name, text, where)
					}
				})
			}
		}
	}
}

// each calls fn with every string literal of a tree but the tags of fields.
func each(tree ast.Node, fn func(text string)) {
	ast.Inspect(tree, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			ast.Inspect(field.Type, func(n ast.Node) bool { return literal(n, fn) })
			return false
		}
		return literal(n, fn)
	})
}

func literal(n ast.Node, fn func(text string)) bool {
	if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if text, err := strconv.Unquote(l.Value); err == nil { // the parser has read it
			fn(text)
		}
	}
	return true
}

// goFiles parses the Go files of a folder but its tests.
func goFiles(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	for _, name := range glob(t, dir+"/*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		file.Name.Name = strings.TrimSuffix(filepath.Base(name), ".go")
		files = append(files, file)
	}
	return files
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
