package gateweigh_test

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vagueNames say nothing of what a package is for.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "manager"}

// goFile is a Go file of the module.
type goFile struct {
	path, pkg string // slash-separated, from the module's root
	test      bool
	generated bool
	imports   []string // of this module, from its root
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, f := range moduleFiles(t) {
		allowed, known := entry(allowedImports, f.pkg)
		if !known {
			t.Errorf("%s: package %s is missing from allowedImports in arch_test.go: say what it may import", f.path, f.pkg)
			continue
		}
		for _, imp := range f.imports {
			if !permitted(f, imp, allowed) {
				t.Errorf("%s: %s may not import %s (allowed: %s)", f.path, f.pkg, imp, strings.Join(allowed, ", "))
			}
		}
	}
}

// entry is a package's line of a table, or that of all packages in its folder: "lab/measure/*".
func entry(table map[string][]string, pkg string) (list []string, known bool) {
	if list, known = table[pkg]; !known {
		list, known = table[path.Dir(pkg)+"/*"]
	}
	return list, known
}

// TestLabAndGatewayAreSeparate holds whatever the table says.
func TestLabAndGatewayAreSeparate(t *testing.T) {
	side := func(pkg string) string {
		switch {
		case within(pkg, "lab"), pkg == "cmd/gateweigh", pkg == "cmd/gateweigh-agent":
			return "lab"
		case within(pkg, "gateway"), pkg == "cmd/gatewayd":
			return "gateway"
		}
		return ""
	}
	for _, f := range moduleFiles(t) {
		for _, imp := range f.imports {
			if a, b := side(f.pkg), side(imp); a != "" && b != "" && a != b {
				t.Errorf("%s: %s and %s never import each other", f.path, a, b)
			}
		}
	}
	for pkg, allowed := range allowedImports {
		for _, imp := range allowed {
			if a, b := side(pkg), side(strings.TrimSuffix(imp, "/...")); a != "" && b != "" && a != b {
				t.Errorf("allowedImports lets %s import %s", pkg, imp)
			}
		}
	}
}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, f := range moduleFiles(t) {
		for part := range strings.SplitSeq(f.pkg, "/") {
			if slices.Contains(vagueNames, part) {
				t.Errorf("%s: a package called %q says nothing: name it after what it holds", f.path, part)
			}
		}
	}
}

// TestPermitted proves that the table can fail.
func TestPermitted(t *testing.T) {
	for _, tt := range []struct {
		pkg, imp string
		test     bool
		allowed  []string
		want     bool
	}{
		{"lab/dut", "lab/agent", false, []string{"lab/agent"}, true},
		{"lab/dut", "lab/runner", false, []string{"lab/agent"}, false},
		{"lab/dut", "lab/agentry", false, []string{"lab/agent"}, false},
		{"cmd/gateweigh", "lab/agent", false, []string{"lab/..."}, true},
		{"cmd/gateweigh", "labour", false, []string{"lab/..."}, false},
		{"lab/dut", "lab/dut", true, nil, true},
		{"lab/report", "lab/analysis/analysistest", true, nil, true},
		{"lab/report", "lab/analysis/analysistest", false, nil, false},
		{"cmd/gateweigh", "lab/analysis/analysistest", false, []string{"lab/..."}, false},
		{"cmd/gateweigh", "lab/analysis/analysistest", true, []string{"lab/..."}, true},
		{"gateway/datapath/datapathtest", "internal/netnstest", false, nil, true},
		{"gateway/dhcp", "internal/netnstest", false, nil, false},
	} {
		f := goFile{pkg: tt.pkg, test: tt.test}
		if got := permitted(f, tt.imp, tt.allowed); got != tt.want {
			t.Errorf("permitted(%s, %s, test %v) = %v", tt.pkg, tt.imp, tt.test, got)
		}
	}
}

// permitted reports whether a file may import imp. Test files may also import
// the package they test, from outside. What is for tests, packages whose names end in
// "test", no shipped program may hold, whatever the table says.
func permitted(f goFile, imp string, allowed []string) bool {
	if strings.HasSuffix(imp, "test") && !f.test && !strings.HasSuffix(f.pkg, "test") {
		return false
	}
	if within(imp, "internal") {
		return true
	}
	if f.test {
		more, _ := entry(testImports, f.pkg)
		allowed = slices.Concat(allowed, more, []string{f.pkg})
	}
	return slices.ContainsFunc(allowed, func(a string) bool {
		if dir, below := strings.CutSuffix(a, "/..."); below {
			return within(imp, dir)
		}
		return a == imp
	})
}

// within reports whether pkg is dir or below it.
func within(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// moduleFiles parses the imports of every Go file, whatever its build tags.
func moduleFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	eachFile(t, []string{".go"}, func(p string) error {
		f, err := readGoFile(p)
		files = append(files, f)
		return err
	})
	return files
}

func readGoFile(p string) (goFile, error) {
	src, err := os.ReadFile(p)
	if err != nil {
		return goFile{}, err
	}
	slashed := filepath.ToSlash(p)
	f := goFile{
		path: slashed, pkg: path.Dir(slashed), test: strings.HasSuffix(slashed, "_test.go"),
		generated: generated(src),
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ImportsOnly)
	if err != nil {
		return goFile{}, err
	}
	for _, spec := range parsed.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, err
		}
		if imp == module {
			f.imports = append(f.imports, ".")
		} else if rel, ours := strings.CutPrefix(imp, module+"/"); ours {
			f.imports = append(f.imports, rel)
		}
	}
	return f, nil
}
