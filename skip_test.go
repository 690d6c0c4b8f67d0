package gateweigh_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestSkipsSayWhy: the text of a skipped test begins with words that its author has written. An error alone may say
// anything, also that the test has failed.
func TestSkipsSayWhy(t *testing.T) {
	for _, f := range moduleFiles(t) {
		if f.generated {
			continue
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, f.path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || name.Sel.Name != "Skip" && name.Sel.Name != "Skipf" {
				return true
			}
			if len(call.Args) > 0 {
				if text, ok := call.Args[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					return true
				}
			}
			t.Errorf("%s: a test is skipped without words: say what is missing", files.Position(call.Pos()))
			return true
		})
	}
}
