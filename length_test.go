package gateweigh_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxLines    = 450 // of a file, in Go or C
	maxColumns  = 120 // of a line
	maxFunction = 50  // lines of a function in Go, and of one in C
)

// longFile has the lines and functions that were too long when the checks began: "FOLDER KIND NUMBER". A number only
// gets smaller: go test . -run Short -shorter writes those of today where they are.
const longFile = "testdata/long"

var shorter = flag.Bool("shorter", false, "lower the numbers of "+longFile+" to today's")

// slack is how many fewer there may be before the number must be lowered, so that two changes at a time do not meet
// there.
const slack = 10

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it by what it does", s.path, n, maxLines)
		}
	}
}

// TestLinesAndFunctionsAreShort: no folder has more lines of more than 120 columns than it had, nor more functions of
// 50 lines or more. A tab is one column, as in the editors' count of characters. A function may be long where the
// comment before it has a sentence that begins with "Long:" and says why.
func TestLinesAndFunctionsAreShort(t *testing.T) {
	found := map[string][]string{} // "FOLDER KIND" to places
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		for _, line := range s.longLines() {
			found[dir+" lines"] = append(found[dir+" lines"], fmt.Sprintf("%s:%d", s.path, line))
		}
		found[dir+" functions"] = append(found[dir+" functions"], s.longFunctions(t)...)
	}
	allowed := readLong(t)
	for what, places := range found {
		if n := allowed[what]; len(places) > n {
			t.Errorf("%s that are too long: %d, and %d before (%d columns, %d lines; a comment may say why: Long: …): one of",
				what, len(places), n, maxColumns, maxFunction-1)
			t.Log(strings.Join(places, "\n"))
		}
	}
	for what, n := range allowed {
		if now := len(found[what]); now < n-slack && !*shorter {
			t.Errorf("%s that are too long: %d, and %s allows %d: go test . -run Short -shorter", what, now, longFile, n)
		}
	}
	if *shorter && !t.Failed() {
		writeLong(t, allowed, found)
	}
}

func readLong(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(longFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var dir, kind string
		var n int
		if _, err := fmt.Sscan(line, &dir, &kind, &n); err != nil {
			t.Fatalf("%s: %q: want FOLDER lines|functions NUMBER: %v", longFile, line, err)
		}
		allowed[dir+" "+kind] = n
	}
	return allowed
}

func writeLong(t *testing.T, allowed map[string]int, found map[string][]string) {
	t.Helper()
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(allowed)) {
		if n := len(found[what]); n > 0 {
			fmt.Fprintf(&text, "%s %d\n", what, n)
		}
	}
	if err := os.WriteFile(longFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// source is a file of code that somebody has written.
type source struct {
	path string // slash-separated, from the module's root
	text []byte
}

// sources are the module's files in Go and C that are not generated.
func sources(t *testing.T) (all []source) {
	t.Helper()
	eachFile(t, []string{".go", ".c", ".h"}, func(p string) error {
		text, err := os.ReadFile(p)
		if err == nil && !generated(text) {
			all = append(all, source{filepath.ToSlash(p), text})
		}
		return err
	})
	return all
}

// eachFile calls f with the path of each of the module's files whose name ends in one of the endings.
func eachFile(t *testing.T, endings []string, f func(p string) error) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".tools", "bin", "runs", "testdata"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(endings, filepath.Ext(p)):
			return nil
		}
		found++
		return f(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Fatalf("only %d files found: the test does not run at the module's root", found)
	}
}

// generated reports whether a file says of itself that a program has made it, as go generate wants it: in a line of its
// own.
func generated(text []byte) bool { return generatedLine.Match(text) }

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func (s source) longLines() (numbers []int) {
	for i, line := range bytes.Split(s.text, []byte("\n")) {
		if utf8.RuneCount(line) > maxColumns {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// inC begins with a function's head at the left margin, has the comment before it, and ends with a brace there.
var inC = regexp.MustCompile(`(?m)((?:^(?://|/\*| \*).*\n)*)^[a-zA-Z_][^;{}=]*\)[^;{}]*\{\n(?:[^}\n].*\n|\n)*\}`)

// longFunctions are those of 50 lines and more whose comments do not say why.
func (s source) longFunctions(t *testing.T) (places []string) {
	t.Helper()
	if path.Ext(s.path) != ".go" {
		for _, at := range inC.FindAllSubmatchIndex(s.text, -1) {
			doc, body := s.text[at[2]:at[3]], s.text[at[3]:at[1]]
			if bytes.Count(body, []byte("\n"))+1 >= maxFunction && !excused(string(doc)) {
				places = append(places, fmt.Sprintf("%s:%d", s.path, 1+bytes.Count(s.text[:at[3]], []byte("\n"))))
			}
		}
		return places
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Body == nil {
			continue
		}
		first, last := files.Position(f.Pos()), files.Position(f.End())
		if last.Line-first.Line+1 >= maxFunction && !excused(f.Doc.Text()) {
			places = append(places, first.String())
		}
	}
	return places
}

// excused reports whether a comment says why its function is long.
func excused(doc string) bool { return regexp.MustCompile(`\bLong:\s+\w+\s+\w+`).MatchString(doc) }

// TestWhatIsLong proves that the checks can fail.
func TestWhatIsLong(t *testing.T) {
	body := func(lines int) string { return strings.Repeat("\tx();\n", lines) }
	for _, tt := range []struct {
		name, text       string
		lines, functions int
	}{
		{"a.go", "package a\n\n// " + strings.Repeat("ü", 117) + "\n", 0, 0},
		{"a.go", "package a\n\n// " + strings.Repeat("ü", 118) + "\n", 1, 0},
		{"a.go", "package a\n\nfunc f() {\n" + body(47) + "}\n", 0, 0},
		{"a.go", "package a\n\nfunc f() {\n" + body(48) + "}\n", 0, 1},
		{"a.go", "package a\n\n// f is a table. Long: one line a case.\nfunc f() {\n" + body(48) + "}\n", 0, 0},
		{"a.go", "package a\n\n// f is what it is. Long:\nfunc f() {\n" + body(48) + "}\n", 0, 1},
		{"a.c", "static int f(int a,\n\tint b)\n{\n" + body(45) + "}\n\nint g(void) {\n" + body(3) + "}\n", 0, 0},
		{"a.c", "int g(void) {\n" + body(3) + "}\nstatic int f(int a,\n\tint b)\n{\n" + body(46) + "}\n", 0, 1},
		{"a.h", "// Long: the packet is read once.\nstatic int f(int a) {\n" + body(60) + "}\n", 0, 0},
		{"a.h", "static int f(int a) {\n" + strings.Repeat("\n", 60) + "}\n", 0, 1},
		{"a.h", "struct a {\n" + body(60) + "};\nint a[] = {\n" + body(60) + "};\n", 0, 0},
	} {
		s := source{tt.name, []byte(tt.text)}
		if l, f := len(s.longLines()), len(s.longFunctions(t)); l != tt.lines || f != tt.functions {
			t.Errorf("%d long lines and %d long functions, want %d and %d, in %s:\n%s",
				l, f, tt.lines, tt.functions, tt.name, tt.text)
		}
	}
	for text, want := range map[string]bool{
		"// Code generated by bpf2go; DO NOT EDIT.\npackage a\n": true,
		"package a\n\nvar s = \"// Code generated \"\n":          false,
	} {
		if generated([]byte(text)) != want {
			t.Errorf("generated is not %v: %s", want, text)
		}
	}
}
