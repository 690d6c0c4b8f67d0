// A test that reads this package's source: the lab sends an agent requests, each with a verb and arguments (ask, do),
// and tables of verbs name the methods that answer them.

package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestEveryVerbIsAnswered: every verb that this package sends is in one of the tables of answers, with the same number
// of arguments. Each verb of the tables has the name of its method, and is sent by this package.
func TestEveryVerbIsAnswered(t *testing.T) {
	asked := map[string]int{} // arguments of each verb
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if verb, args, is := requestOf(call); is {
					asked[verb] = args
				}
			}
			return true
		})
	}
	answered := map[string]bool{}
	for _, table := range []verbs{machineVerbs, hostVerbs, workerVerbs, burnerVerbs} {
		for verb, method := range table {
			answered[verb] = true
			args, is := asked[verb]
			if takes := reflect.TypeOf(method).NumIn() - 2; !is || takes != args {
				t.Errorf("%s takes %d arguments and is asked with %d (asked at all: %t)", verb, takes, args, is)
			}
			if name := runtime.FuncForPC(reflect.ValueOf(method).Pointer()).Name(); !strings.HasSuffix(name, "."+verb) {
				t.Errorf("%s is carried out by %s", verb, name)
			}
		}
	}
	for verb := range asked {
		if !answered[verb] {
			t.Errorf("%s is asked, and no table of answers.go has it", verb)
		}
	}
}

// requestOf reads a call of ask or do: its verb, and how many arguments the request has.
func requestOf(call *ast.CallExpr) (verb string, args int, is bool) {
	before := 0 // arguments ahead of the verb
	switch fun := call.Fun.(type) {
	case *ast.IndexExpr: // ask[R](ctx, c, "Verb", …)
		if name, ok := fun.X.(*ast.Ident); ok && name.Name == "ask" {
			before = 2
		}
	case *ast.SelectorExpr: // c.do(ctx, "Verb", …)
		if fun.Sel.Name == "do" {
			before = 1
		}
	}
	if before == 0 || len(call.Args) <= before {
		return "", 0, false
	}
	text, ok := call.Args[before].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", 0, false
	}
	verb, err := strconv.Unquote(text.Value)
	return verb, len(call.Args) - before - 1, err == nil
}
