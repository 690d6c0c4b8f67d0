// Command tally reads the output of go test -json, of the commands it is given, which it runs side by side, or else of
// its input. The word "then" between commands has those behind it wait for those before it. It prints what a person
// wants to see of it, counts skipped tests by reason, names the slowest tests and those that failed, and ends with one
// line of counts. It exits 1 when a test or a package failed, or when there was no test at all. With CI=true in the
// environment a skipped test is a failure too, unless it says that the kernel lacks something: in CI everything else
// can be installed from a package.
//
// A test that began and never ended is a failure as well, and so is a package: something stopped it,
// such as its time limit. Tests behind it that never began are not known here.
//
// A test of something that no package has says so with the attribute "not-run" and ends. It
// is not counted as passed: it is named before the counts.
//
// An event of the action "packages" says how many packages are about to be tested. A package that ends has its place
// among all of them in its line, and one that was announced and never ended is a failure.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// notRun is the attribute of a test that does nothing, because of what its value names.
const notRun = "not-run"

// event is a line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Key     string // of an attribute
	Value   string
	Elapsed float64 // seconds
}

// tally counts tests and subtests. A package that fails without a failing test
// (it does not build, or its process died) counts as one failure.
type tally struct {
	passed, failed, skipped int
	notRun                  map[string]int // tests by what they say they lack
	reasons                 map[string]int // skipped tests by what they say
	tests                   []event        // that ended and are no subtests
	failures                []string       // tests and packages that failed, in order

	strict        bool // skipping is failing
	w             io.Writer
	output        map[[2]string]*strings.Builder // of tests that still run, by package and name
	lacks         map[[2]string]string           // what tests that still run say they lack
	failedPackage map[string]bool                // packages with a failed test
	begun         map[string]map[string]bool     // tests that still run, by package; packages that still run

	packages, done int // announced, ended
}

func main() {
	t := tally{strict: os.Getenv("CI") == "true", w: os.Stdout}
	in := io.Reader(os.Stdin)
	var commands *sideBySide
	if len(os.Args) > 1 {
		commands = run(os.Args[1:])
		in = commands
	}
	if err := t.read(in); err != nil {
		fmt.Fprintln(os.Stderr, "reading test results:", err)
		os.Exit(1)
	}
	t.complete(commands.wait())
	fmt.Print(t.absent(), t.slowest(), t.broken())
	fmt.Println(t.summary())
	if !t.ok() {
		os.Exit(1)
	}
}

// read takes events until the end. Lines that are no events are passed on: the
// go command prints some before it starts.
func (t *tally) read(r io.Reader) error {
	t.output = map[[2]string]*strings.Builder{}
	t.lacks = map[[2]string]string{}
	t.notRun = map[string]int{}
	t.reasons = map[string]int{}
	t.failedPackage = map[string]bool{}
	t.begun = map[string]map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			t.take(e)
		} else {
			fmt.Fprintf(t.w, "%s", line)
		}
		if err == io.EOF {
			for _, pkg := range slices.Sorted(maps.Keys(t.begun)) {
				t.endPackage(event{Action: "fail", Package: pkg}, "")
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) take(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "packages":
		n, _ := strconv.Atoi(e.Value)
		t.packages += n
		fmt.Fprintf(t.w, "%d packages to test; they are built first\n", t.packages)
	case "start":
		t.begun[e.Package] = map[string]bool{}
	case "run":
		if t.begun[e.Package] == nil {
			t.begun[e.Package] = map[string]bool{}
		}
		t.begun[e.Package][e.Test] = true
	case "output":
		if t.output[key] == nil {
			t.output[key] = &strings.Builder{}
		}
		t.output[key].WriteString(e.Output)
	case "attr":
		if e.Key == notRun {
			t.lacks[key] = e.Value
		}
	case "build-output":
		fmt.Fprint(t.w, e.Output)
	case "pass", "fail", "skip":
		var said string
		if b := t.output[key]; b != nil {
			said = b.String()
		}
		delete(t.output, key)
		if e.Test == "" {
			t.endPackage(e, said)
		} else {
			t.endTest(e, said)
		}
	}
}

func (t *tally) endTest(e event, said string) {
	delete(t.begun[e.Package], e.Test)
	if !strings.Contains(e.Test, "/") { // a subtest's time is part of its test's
		t.tests = append(t.tests, e)
	}
	lacks := t.lacks[[2]string{e.Package, e.Test}]
	switch {
	case e.Action == "pass" && lacks != "":
		t.notRun[lacks]++
	case e.Action == "pass":
		t.passed++
	case e.Action == "skip" && (!t.strict || strings.Contains(said, "kernel lacks")):
		t.skipped++
		t.reasons[reason(said)]++
		fmt.Fprint(t.w, said)
	case e.Action == "skip":
		t.fail(e, "skipped")
		fmt.Fprintf(t.w, "%sskipped, which counts as failed here: %s %s\n", said, e.Package, e.Test)
	default:
		t.fail(e, "failed")
		fmt.Fprint(t.w, said)
	}
}

// fail counts a test, or a package where the event names no test.
func (t *tally) fail(e event, how string) {
	t.failed++
	t.failedPackage[e.Package] = true
	t.failures = append(t.failures, strings.ReplaceAll(how+"  "+e.Test+"  "+e.Package, "    ", "  "))
}

func (t *tally) endPackage(e event, said string) {
	stopped := slices.Sorted(maps.Keys(t.begun[e.Package]))
	delete(t.begun, e.Package)
	t.done++
	if e.Action != "fail" {
		if e.Action == "pass" {
			fmt.Fprintf(t.w, "ok    %s  %.1f s%s\n", e.Package, e.Elapsed, t.place())
		}
		return
	}
	for _, test := range stopped {
		t.fail(event{Package: e.Package, Test: test}, "did not end")
		// What it printed is all that tells why it did not end.
		if b := t.output[[2]string{e.Package, test}]; b != nil {
			fmt.Fprint(t.w, b.String())
		}
		fmt.Fprintf(t.w, "did not end, which counts as failed: %s %s\n", e.Package, test)
	}
	if len(stopped) > 0 || !t.failedPackage[e.Package] {
		fmt.Fprint(t.w, said)
	}
	if !t.failedPackage[e.Package] {
		t.fail(event{Package: e.Package}, "failed")
	}
	fmt.Fprintf(t.w, "FAIL  %s  %.1f s%s\n", e.Package, e.Elapsed, t.place())
}

// absent has a line for each thing that tests were not run for, and for each reason to skip one, in order.
func (t *tally) absent() string {
	var lines strings.Builder
	for _, lacks := range slices.Sorted(maps.Keys(t.notRun)) {
		fmt.Fprintf(&lines, "not run here, %d: %s\n", t.notRun[lacks], lacks)
	}
	for _, why := range slices.Sorted(maps.Keys(t.reasons)) {
		fmt.Fprintf(&lines, "skipped, %d: %s\n", t.reasons[why], why)
	}
	return lines.String()
}

// logged is a line that a test has logged: "    guest_test.go:27: text".
var logged = regexp.MustCompile(`(?m)^\s*\S+\.go:\d+: (.+)$`)

// reason is why a test was skipped, by its output: the last line that it logged.
func reason(said string) string {
	lines := logged.FindAllStringSubmatch(said, -1)
	if len(lines) == 0 {
		return "no reason given"
	}
	return strings.TrimSpace(lines[len(lines)-1][1])
}

// namedSlow is how many of the slowest tests are named.
const namedSlow = 10

// slowest has a line for each of the tests that took longest, the longest first.
func (t *tally) slowest() string {
	slices.SortStableFunc(t.tests, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	var lines strings.Builder
	for _, e := range t.tests[:min(namedSlow, len(t.tests))] {
		fmt.Fprintf(&lines, "slow  %s  %s  %.1f s\n", e.Test, e.Package, e.Elapsed)
	}
	return lines.String()
}

// namedBroken is how many failures are named.
const namedBroken = 40

// broken has a line for each failure: the last lines of a long output are what is kept of it.
func (t *tally) broken() string {
	var lines strings.Builder
	for _, f := range t.failures[:min(namedBroken, len(t.failures))] {
		fmt.Fprintln(&lines, f)
	}
	if more := len(t.failures) - namedBroken; more > 0 {
		fmt.Fprintf(&lines, "failed  %d more\n", more)
	}
	return lines.String()
}

func (t *tally) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
}

func (t *tally) ok() bool { return t.failed == 0 && t.passed+t.skipped > 0 }
