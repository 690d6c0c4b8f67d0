// Tests of gateweigh compare.

package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist. shell makes a command run a shell
// script, in which $gateweigh is the program.

// simulated writes the run folder dir/name with simulated trials: the device allowlist costs ratio times as much CPU
// time as a clean router. Another seed gives other random noise of the trials.
func simulated(t *testing.T, dir, name string, seed uint64, ratio float64) {
	t.Helper()
	path := filepath.Join(dir, name)
	run := analysistest.Run(analysistest.Spec{
		Seed: seed, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: ratio}}, Clients: []int{20},
		Offered: []float64{500, 1000},
		Blocks:  8, Windows: 3, AABlocks: 4, BlockSD: 0.01, WindowSD: 0.015,
	})
	if err := analysistest.Write(path, run); err != nil {
		t.Fatal(err)
	}
	write(t, path, result.ExperimentFile, small)
}

// TestCompare: compare judges simulated runs of which one costs 10 % more. Its exit code and output follow the limits
// of --max-regression (of two runs) and --max-overhead (over the clean router). It refuses wrong options and files.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	simulated(t, dir, "base", 1, 1.2)
	simulated(t, dir, "same", 2, 1.2)
	simulated(t, dir, "dearer", 3, 1.32)
	write(t, dir, "letter", "dear reader")
	if e := finish(t, command(t, dir, "bundle", "dearer")); e.code != 0 ||
		!strings.Contains(e.stdout, "dearer.tar.gz (3 files, ") {
		t.Fatalf("bundle: %+v", e)
	}
	for _, tt := range []struct {
		args string
		code int
		want string // in stdout or stderr
	}{
		{"base same", 0, "equivalent"},
		{"base dearer", 0, "worse"},
		{"base dearer.tar.gz", 0, "worse"},
		{"dearer base", 0, "better"},
		{"--max-regression 5% base same", 0, "Gate passed (at most 5 % more expensive than A): 2 within"},
		{"--max-regression 5% base dearer", exitFailed,
			"gate failed (at most 5 % more expensive than A): 2 beyond the limit"},
		{"--max-regression 5% base dearer.tar.gz --markdown -", exitFailed, "### Gateweigh: gate failed"},
		{"--max-regression 20% base dearer", 0, "Gate passed"},
		{"--max-overhead 30% base", 0, "Gate passed"},
		{"--max-overhead 10% base", exitFailed, "beyond the limit"},
		{"--max-overhead 25% --max-regression 20% base dearer", exitFailed, "2 beyond the limit, 2 within"},
		{"--max-overhead 22% base", exitUnanswered, "gate failed for want of answers"},
		{"--max-overhead 22% --allow-unknown base", exitUnanswered, "0 within"},
		{"--max-regression 12% --allow-unknown base dearer", 0, "1 without an answer, 1 within"},
		{"--max-regression 12% base dearer", exitUnanswered, "1 without an answer, 1 within"},
		{"base", exitUsage, "--max-overhead"},
		{"--max-regression 5% base", exitUsage, "two runs"},
		{"base same dearer", exitUsage, "arg"},
		{"--allow-unknown base same", exitUsage, "--max-regression"},
		{"--strict --max-regression 5% base same", exitUsage, "exit code 5"},
		{"--junit x.xml base same", exitUsage, "--max-regression"},
		{"--json --markdown - base same", exitUsage, "standard output"},
		{"--max-regression 5 base same", exitUsage, "5 has no % sign: write 5%"},
		{"--max-regression 0.05 base same", exitUsage, "0.05 has no % sign"},
		{"--max-regression -5% base same", exitUsage, "want a percentage"},
		{"--confidence 100% base same", exitUsage, "less than 100%"},
		{"base nowhere", exitFailed, "nowhere is not a run folder, nor a bundle"},
		{"base letter", exitFailed, "letter: not a bundle"},
		{"--max-regression 5% --junit no/such/folder.xml base same", exitFailed, "no/such/folder.xml"},
	} {
		e := finish(t, command(t, dir, append([]string{"compare"}, strings.Fields(tt.args)...)...))
		if e.code != tt.code || !strings.Contains(e.stdout+e.stderr, tt.want) {
			t.Errorf("compare %s: exit %d, want %d and %q in:\n%s%s", tt.args, e.code, tt.code, tt.want, e.stdout, e.stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "gateweigh-bundle-*")); err != nil || len(left) != 0 {
		t.Errorf("unpacked bundles left behind: %v, %v", left, err)
	}
}

// TestCompareWritesEveryForm: one call of compare writes JSON, JUnit and Markdown, and all say that the gate failed.
func TestCompareWritesEveryForm(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "base", 1, 1.2)
	simulated(t, dir, "dearer", 3, 1.32)
	e := finish(t, command(t, dir, "compare", "--max-regression", "5%", "--json", "--junit", "gate.xml", "--markdown",
		"gate.md", "base", "dearer"))
	if e.code != exitFailed {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
	var c compare.Comparison
	if err := json.Unmarshal([]byte(e.stdout), &c); err != nil || len(c.Cells) != 2 || c.Gate.Failed != 2 ||
		c.Cells[0].Regression.Word != compare.Regressed {
		t.Errorf("%v: %s", err, e.stdout)
	}
	var suites struct {
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal(read(t, dir, "gate.xml"), &suites); err != nil || suites.Failures != 2 {
		t.Errorf("gate.xml: %v, %+v", err, suites)
	}
	if !strings.Contains(string(read(t, dir, "gate.md")), "| --- |") {
		t.Error("gate.md has no table")
	}
}

// TestPercent: options that are percentages (percent, a pflag.Value) need the % sign and plain decimals.
func TestPercent(t *testing.T) {
	for text, want := range map[string]float64{"5%": 0.05, "2.5%": 0.025, "5 %": 0.05, "0%": 0, "150%": 1.5} {
		var p percent
		if err := p.Set(text); err != nil || p.share != want || !p.given {
			t.Errorf("%q: %v, %v", text, p.share, err)
		}
	}
	for _, text := range []string{"", "%", "5", "0.05", "-5%", "+5%", "5%%", "5,5%", "1e1%", "0x5%", "NaN%", "Inf%", ".5%",
		"5.%", "five%", "5% ", " 5%", "10001%", "999999999999999999999%"} {
		p := percent{share: 0.1}
		if err := p.Set(text); err == nil || p.given || p.share != 0.1 {
			t.Errorf("%q was taken as %v", text, p.share)
		}
	}
	if p := (percent{share: 0.05, given: true}); p.String() != "5%" {
		t.Errorf("default shown as %q", p.String())
	}
}

// TestGateOfTheManual runs the shell commands of docs/ci.md, unchanged.
func TestGateOfTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, part := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		script.WriteString(block)
	}
	dir := t.TempDir()
	write(t, dir, "gate.toml", small)
	write(t, dir, "commands.sh", script.String())
	self := command(t, dir)
	// Trials may be rejected on a busy machine. This test does not mind.
	write(t, dir, "gateweigh",
		"#!/bin/sh\n"+self.Path+" \"$@\" || { code=$?; [ \"$1 $code\" = 'run 4' ] || exit $code; }\n")
	if err := os.Chmod(filepath.Join(dir, "gateweigh"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, dir)
	sh := finish(t, shell(cmd, "PATH="+dir+":$PATH; . ./commands.sh"))
	// The two runs of a second each need not agree. It is enough that the gate has judged them.
	if sh.code > exitFailed && sh.code != exitUnanswered ||
		!strings.Contains(sh.stdout+sh.stderr, "ate passed") && !strings.Contains(sh.stdout+sh.stderr, "ate failed") {
		t.Errorf("exit %d\n%s%s", sh.code, sh.stdout, sh.stderr)
	}
	for _, name := range []string{"base.tar.gz", "gate.xml", "gate.md"} {
		if len(read(t, dir, name)) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
}
