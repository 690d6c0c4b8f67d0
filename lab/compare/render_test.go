// Tests of the forms of a comparison: text, page, JUnit. simulate makes a run of a Spec, base being a small one, in
// which the device allowlist costs a factor more; gated returns Options with a limit for the change (compare_test.go).

package compare_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/result"
)

// specialCharacters is a comparison with a name that means something to every format.
func specialCharacters() compare.Comparison {
	a, b := simulate(base, 1, 1), simulate(base, 2, 1.1)
	b.Run.Environment.Kernel = "6.19.0 <b>|`x`\x1b[31m"
	for i := range b.Run.Trials {
		if b.Run.Trials[i].Cell.Text(result.DUT) == "portal" && b.Run.Trials[i].Cell.Number(result.OfferedMbps) == 500 {
			b.Run.Trials[i].Accepted = false
		}
	}
	rename := func(in *compare.Input) {
		for i := range in.Run.Trials {
			if in.Run.Trials[i].Cell.Text(result.DUT) == "allowlist" {
				in.Run.Trials[i].Cell = in.Run.Trials[i].Cell.With(result.DUT, `a<&>"|x`)
			}
		}
	}
	rename(&a)
	rename(&b)
	opts := gated(0.05)
	opts.MaxOverhead = 0.25
	return compare.Runs(a, b, opts)
}

func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer, compare.Comparison) error{
		"compare.txt": compare.Text, "compare.md": compare.Markdown, "compare.xml": compare.JUnit,
	} {
		var b bytes.Buffer
		if err := write(&b, specialCharacters()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		goldentest.Compare(t, path, b.String())
		if strings.ContainsRune(b.String(), '\x1b') {
			t.Errorf("%s: a control character came through", name)
		}
	}
}

// suites is what a CI system reads of a JUnit report.
type suites struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Suites   []struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Class   string `xml:"classname,attr"`
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func junit(t *testing.T, c compare.Comparison) suites {
	t.Helper()
	var b bytes.Buffer
	if err := compare.JUnit(&b, c); err != nil {
		t.Fatal(err)
	}
	var s suites
	decoder := xml.NewDecoder(&b)
	decoder.Strict = true
	if err := decoder.Decode(&s); err != nil || len(s.Suites) != 1 {
		t.Fatalf("%v: %+v", err, s)
	}
	return s
}

func TestJUnitCounts(t *testing.T) {
	s := junit(t, specialCharacters())
	suite := s.Suites[0]
	names, failed, skipped := map[string]bool{}, 0, 0
	for _, c := range suite.Cases {
		names[c.Class+c.Name] = true
		if c.Failure != nil {
			failed++
			if c.Failure.Message == "" {
				t.Errorf("%s: a failure without words", c.Name)
			}
		}
		if c.Skipped != nil {
			skipped++
		}
	}
	if len(names) != 8 || suite.Tests != 8 || s.Tests != 8 {
		t.Errorf("%d names in %d tests, want 4 cells and 2 limits", len(names), suite.Tests)
	}
	if failed != suite.Failures || failed != s.Failures || skipped != suite.Skipped || failed < 5 || skipped != 0 {
		t.Errorf("%d failed, %d skipped: %+v", failed, skipped, suite)
	}
	if !names[`gateweigh.a<&>"|x`+`a<&>"|x, 20 clients, 500 Mbit/s, up: at most 5 % more expensive than A`] {
		t.Errorf("names %v", names)
	}
}

// TestJUnitOfAGateWithNothingToJudge: the JUnit file of a gate that had nothing to judge does not look like success.
func TestJUnitOfAGateWithNothingToJudge(t *testing.T) {
	other := base
	other.Offered = []float64{2000}
	s := junit(t, compare.Runs(simulate(base, 1, 1), simulate(other, 2, 1), gated(0.05)))
	if s.Failures != 6 || s.Tests != 6 {
		t.Errorf("%+v", s)
	}
	if err := compare.JUnit(
		io.Discard, compare.Runs(simulate(base, 1, 1), simulate(base, 2, 1), compare.Defaults())); err == nil {
		t.Error("a JUnit report without a limit")
	}
}
