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
			if len(call.Args) > 0 && beginsWithWords(call.Args[0]) {
				return true
			}
			t.Errorf("%s: a test is skipped without words: say what is missing", files.Position(call.Pos()))
			return true
		})
	}
}

// beginsWithWords says whether a text is a string, or several of them that are joined, of which the first is one.
func beginsWithWords(text ast.Expr) bool {
	for {
		sum, ok := text.(*ast.BinaryExpr)
		if !ok {
			break
		}
		text = sum.X
	}
	word, ok := text.(*ast.BasicLit)
	return ok && word.Kind == token.STRING
}
