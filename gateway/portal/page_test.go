// A test that docs/reference/portal-variables.md is made of the comments of the types Page and Status. With -update it
// writes the page.

package portal

import (
	"fmt"
	"go/ast"
	"go/parser"
	positions "go/token"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestPageOfVariables$ . -args -update

const variablesPage = "../../docs/reference/portal-variables.md"

// TestPageOfVariables checks that the page is made of the fields that templates have. Each field's comment is its
// meaning.
func TestPageOfVariables(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Variables of the portal's pages

Made from gatewayd's source (gateway/portal, make generate). How pages are changed:
[portal-pages.md](../portal-pages.md). Fields that do not concern a page are empty.

| Variable | Page, meaning |
|---|---|
`)
	for _, of := range []struct{ file, name, prefix string }{
		{"pages.go", "Page", "."}, {"status.go", "Status", ".Status."},
	} {
		file, err := parser.ParseFile(positions.NewFileSet(), of.file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range file.Scope.Lookup(of.name).Decl.(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
			text := strings.ReplaceAll(strings.TrimSpace(f.Doc.Text()+f.Comment.Text()), "\n", " ")
			if text == "" || len(f.Names) != 1 {
				t.Errorf("%s.%s has no comment of its own", of.name, f.Names[0])
			}
			fmt.Fprintf(&b, "| `%s%s` | %s |\n", of.prefix, f.Names[0], text)
		}
	}
	goldentest.Compare(t, variablesPage, b.String())
}
