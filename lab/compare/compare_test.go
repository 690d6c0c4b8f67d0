package compare_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// base is a small sweep with the noise of a quiet machine.
var base = analysistest.Spec{
	DUTs:    []analysistest.DUT{{Name: "allowlist", Ratio: 1.2}, {Name: "portal", Ratio: 5, Process: 0.5}},
	Clients: []int{20}, Offered: []float64{500, 1000},
	Blocks: 8, Windows: 3, AABlocks: 4, BlockSD: 0.01, WindowSD: 0.015,
}

// simulate makes a run of spec in which allowlist costs factor times as much.
func simulate(spec analysistest.Spec, seed uint64, factor float64) compare.Input {
	spec.Seed = seed
	spec.DUTs = slices.Clone(spec.DUTs)
	spec.DUTs[0].Ratio *= factor
	return compare.Input{Name: fmt.Sprintf("run-%d", seed), Run: analysistest.Run(spec)}
}

func gated(limit float64) compare.Options {
	opts := compare.Defaults()
	opts.MaxRegression = analysis.Number(limit)
	return opts
}

// countVerdicts is how many cells of a comparison have one of the verdicts.
func countVerdicts(c compare.Comparison, verdicts ...string) int {
	n := 0
	for _, cell := range c.Cells {
		if slices.Contains(verdicts, cell.Verdict) {
			n++
		}
	}
	return n
}

// TestInjectedRegressionIsCaught: a device made 10 % dearer, another left alone.
func TestInjectedRegressionIsCaught(t *testing.T) {
	caught := 0
	for seed := range uint64(100) {
		c := compare.Runs(simulate(base, 2*seed, 1), simulate(base, 2*seed+1, 1.1), gated(0.05))
		for _, cell := range c.Cells {
			if cell.Dimensions.Text(result.DUT) != "allowlist" && cell.Regression.Word == compare.Regressed {
				t.Errorf("seed %d: %s was not changed: %+v", seed, cost.Dimensions.Label(cell.Dimensions), cell.Regression)
			}
		}
		if !c.Gate.Passed && c.Gate.Failed == 2 && countVerdicts(c, compare.Worse) >= 2 {
			caught++
		}
	}
	if caught < 95 {
		t.Errorf("caught %d of 100", caught)
	}
}

func TestIdenticalPairsAreNotFlagged(t *testing.T) {
	for seed := range uint64(20) {
		c := compare.Runs(simulate(base, 1000+2*seed, 1), simulate(base, 1001+2*seed, 1), gated(0.05))
		if !c.Gate.Passed || c.Gate.Failed > 0 || countVerdicts(c, compare.Worse, compare.Better) > 0 {
			t.Errorf("pair %d: %s, %+v", seed, c.Gate.Sentence, c.Cells)
		}
		if c.Gate.Unclear > 0 || c.Gate.Within != 4 {
			t.Errorf("pair %d: a quiet machine should be able to tell: %s", seed, c.Gate.Sentence)
		}
	}
}

// TestFalseAlarmRate counts false alarms over identical pairs, with everything
// switched off that makes them rarer than stated: no δ to be equivalent within,
// no noise floor. At a confidence of 95 % one pair in twenty may have one.
func TestFalseAlarmRate(t *testing.T) {
	spec := base
	spec.Blocks, spec.AABlocks = 4, 0
	const pairs = 400
	for _, tt := range []struct {
		confidence       float64
		fewest, mostPlus int
	}{{0.95, 6, 33}, {0.99, 0, 10}} { // 3 standard deviations about 20 and 4
		opts := compare.Defaults()
		opts.Confidence, opts.Delta = tt.confidence, 1e-6
		opts.MaxRegression = 0
		alarms, gates := 0, 0
		for seed := range uint64(pairs) {
			c := compare.Runs(simulate(spec, 5000+2*seed, 1), simulate(spec, 5001+2*seed, 1), opts)
			if countVerdicts(c, compare.Worse, compare.Better) > 0 {
				alarms++
			}
			if c.Gate.Failed > 0 {
				gates++
			}
		}
		if alarms < tt.fewest || alarms > tt.mostPlus {
			t.Errorf("at %g: %d of %d identical pairs have a change", tt.confidence, alarms, pairs)
		}
		if gates > tt.mostPlus/2+2 {
			t.Errorf("at %g: a limit of 0 %% fails %d of %d identical pairs", tt.confidence, gates, pairs)
		}
	}
}

// TestIntervalCovers: the stated interval of the change holds the true one.
func TestIntervalCovers(t *testing.T) {
	covered, all := 0, 0
	for seed := range uint64(200) {
		opts := compare.Defaults()
		opts.Confidence = 0.9
		c := compare.Runs(simulate(base, 9000+2*seed, 1), simulate(base, 9001+2*seed, 1.3), opts)
		cell := c.Cells[0]
		all++
		if cell.Change.Lo <= 1.3 && cell.Change.Hi >= 1.3 {
			covered++
		}
		if cell.Change.N != 16 {
			t.Fatalf("change %+v", cell.Change)
		}
	}
	if share := float64(covered) / float64(all); math.Abs(share-0.9) > 0.065 { // 3 standard deviations
		t.Errorf("%d of %d intervals hold the true change", covered, all)
	}
}

// TestShiftOfAWholeRun: what shifts all blocks of a run alike is in no interval. So a change below δ gets no verdict,
// however certain it is, and a change beyond δ does.
func TestShiftOfAWholeRun(t *testing.T) {
	quiet := base
	quiet.BlockSD, quiet.WindowSD = 0.004, 0.004
	for factor, want := range map[float64]string{1: compare.Equivalent, 1.035: compare.Equivalent,
		1.048: compare.Inconclusive, 1.07: compare.Worse, 0.93: compare.Better} {
		cell := compare.Runs(simulate(quiet, 1, 1), simulate(quiet, 2, factor), compare.Defaults()).Cells[0]
		if cell.Verdict != want ||
			factor == 1.048 && (cell.PDifferent > 0.01 || !strings.Contains(cell.VerdictNote, "hardly by 5 %")) {
			t.Errorf("by %g: %s, %s, p %v", factor, cell.Verdict, cell.VerdictNote, cell.PDifferent)
		}
	}
}

func TestGateWords(t *testing.T) {
	noisy := base
	noisy.BlockSD, noisy.Blocks = 0.02, 6
	once := base
	once.Blocks = 1
	rejected := base
	rejected.RejectEvery = 1
	for _, tt := range []struct {
		name   string
		a, b   analysistest.Spec
		factor float64
		word   string
		note   string
		passes [2]bool // plain, with cells without an answer allowed
	}{
		{"dearer", base, base, 1.2, compare.Regressed, "beyond 5 %", [2]bool{false, false}},
		{"cheaper", base, base, 0.8, compare.Within, "below 5 %", [2]bool{true, true}},
		{"noisy", noisy, noisy, 1.03, compare.CannotTell, "more block", [2]bool{false, true}},
		{"one block", base, once, 1.2, compare.CannotTell, "B has one block only", [2]bool{false, false}},
		{"nothing accepted", base, rejected, 1.2, compare.CannotTell, "B has no accepted trial here (24 rejected)",
			[2]bool{false, false}},
	} {
		for i, allow := range []bool{false, true} {
			opts := gated(0.05)
			opts.AllowUnknown = allow
			c := compare.Runs(simulate(tt.a, 1, 1), simulate(tt.b, 2, tt.factor), opts)
			d := c.Cells[0].Regression
			if d.Word != tt.word || !strings.Contains(d.Note, tt.note) {
				t.Errorf("%s: %s: %s, want %s: %s", tt.name, d.Word, d.Note, tt.word, tt.note)
			}
			if c.Gate.Passed != tt.passes[i] {
				t.Errorf("%s, allowed %v: %s", tt.name, allow, c.Gate.Sentence)
			}
			if tt.word == compare.CannotTell && tt.name == "noisy" && d.BlocksNeeded == nil {
				t.Errorf("%s: no number of further blocks", tt.name)
			}
		}
	}
}

// TestBlocksNeededAreEnough: with the number of blocks that the gate asks for, it reaches a verdict.
func TestBlocksNeededAreEnough(t *testing.T) {
	noisy := base
	noisy.BlockSD, noisy.Blocks = 0.04, 4
	told, asked := 0, 0
	for seed := range uint64(60) {
		few := compare.Runs(simulate(noisy, 2*seed, 1), simulate(noisy, 2*seed+1, 1), gated(0.05)).Cells[0].Regression
		if few.BlocksNeeded == nil || *few.BlocksNeeded > 200 {
			continue
		}
		asked++
		more := noisy
		more.Blocks += *few.BlocksNeeded
		if compare.Runs(simulate(more, 700+2*seed, 1), simulate(more, 701+2*seed, 1), gated(
			0.05)).Cells[0].Regression.Word != compare.CannotTell {
			told++
		}
	}
	if asked < 20 || float64(told) < 0.6*float64(asked) {
		t.Errorf("asked for more blocks %d times, %d times they were enough", asked, told)
	}
}

func TestOverheadOfASingleRun(t *testing.T) {
	opts := compare.Defaults()
	opts.MaxOverhead = 0.5
	c := compare.Single(simulate(base, 3, 1), opts)
	words := map[string]string{}
	for _, cell := range c.Cells {
		words[cell.Dimensions.Text(result.DUT)] = cell.Overhead.Word
	}
	if c.A != nil || c.Gate.Passed || words["allowlist"] != compare.Within || words["portal"] != compare.OverLimit {
		t.Errorf("%s: %v", c.Gate.Sentence, words)
	}
	if opts.MaxOverhead = 5; !compare.Single(simulate(base, 3, 1), opts).Gate.Passed {
		t.Error("five times as dear is within 500 %")
	}
}

// TestNoiseFloorIsTheLeastChange: routers that differ by themselves forbid to
// call a smaller change, whatever its interval says.
func TestNoiseFloorIsTheLeastChange(t *testing.T) {
	a, b := simulate(base, 1, 1), simulate(base, 2, 1.1)
	for i := range b.Run.Trials {
		if b.Run.Trials[i].AA {
			cost.SidesOf(b.Run.Trials[i]).DUT.NAPINs += cost.SidesOf(b.Run.Trials[i]).DUT.NAPINs / 4
		}
	}
	c := compare.Runs(a, b, gated(0.05))
	if c.NoiseFloorPct < 20 || countVerdicts(c, compare.Worse) != 0 ||
		!strings.Contains(c.Cells[0].VerdictNote, "two clean routers differ") {
		t.Errorf("floor %v, cell %+v", c.NoiseFloorPct, c.Cells[0])
	}
	if d := c.Cells[0].Regression; d.Word != compare.CannotTell || !strings.Contains(d.Note, "two clean routers differ") {
		t.Errorf("gate %+v", d)
	}
}

func TestCellsOfOneRunOnly(t *testing.T) {
	more, fewer := base, base
	more.Offered = []float64{100, 500, 1000}
	fewer.Offered = []float64{500, 2000}
	c := compare.Runs(simulate(more, 1, 1), simulate(fewer, 2, 1), gated(0.05))
	if len(c.Cells) != 2 || len(c.OnlyA) != 4 || len(c.OnlyB) != 2 {
		t.Fatalf("%d cells, only in A %v, only in B %v", len(c.Cells), c.OnlyA, c.OnlyB)
	}
	if c.Gate.Unclear != 6 || c.Gate.Passed || !c.Gate.Unanswered {
		t.Errorf("%s", c.Gate.Sentence)
	}
	opts := gated(0.05)
	opts.AllowUnknown = true
	if c := compare.Runs(simulate(more, 1, 1), simulate(fewer, 2, 1), opts); !c.Gate.Passed {
		t.Errorf("cells without an answer were allowed: %s", c.Gate.Sentence)
	}
	fewer.Offered = []float64{2000}
	c = compare.Runs(simulate(more, 1, 1), simulate(fewer, 2, 1), gated(0.05))
	if c.Gate.Passed || !strings.Contains(c.Gate.Sentence, "no cell could be judged") {
		t.Errorf("nothing in common: %s", c.Gate.Sentence)
	}
}

func TestDifferencesAreListed(t *testing.T) {
	a, b := simulate(base, 1, 1), simulate(base, 2, 1)
	if c := compare.Runs(a, b, compare.Defaults()); len(c.Differences) != 0 || !c.SameMachine {
		t.Errorf("the same machine differs: %+v", c.Differences)
	}
	b.Run.Environment.Tools = map[string]string{"iproute2": "6.9.0", "iperf3": "3.16"}
	c := compare.Runs(a, b, compare.Defaults())
	want := []compare.Difference{
		{What: "tool iperf3", B: "3.16"},
		{What: "tool iproute2", A: "6.1.0", B: "6.9.0"},
		{What: "tool nftables", A: "1.0.6"},
	}
	if !slices.Equal(c.Differences, want) || !c.SameMachine {
		t.Errorf("differences %+v", c.Differences)
	}
	b.Run.Environment.Kernel = "6.19.0"
	c = compare.Runs(a, b, compare.Defaults())
	if c.SameMachine || c.Differences[0] != (compare.Difference{What: "kernel", A: "6.18.0", B: "6.19.0", Machine: true}) {
		t.Errorf("differences %+v", c.Differences)
	}
	if text := renderAll(t, c); !strings.Contains(text, "kernel: 6.18.0, then 6.19.0") ||
		!strings.Contains(text, "cannot be compared") {
		t.Errorf("text:\n%s", text)
	}
}

// checkNoRepetition: nothing is said twice, of whichever run or cell, and what both runs say is said of both.
func checkNoRepetition(t *testing.T, c compare.Comparison) {
	t.Helper()
	text := renderAll(t, c)
	seen, both := map[string]bool{}, 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, is := strings.CutPrefix(line, "Warning: A and B: "); is {
			line, both = rest, both+1
		}
		for _, name := range []string{"Warning: A: ", "Warning: B: "} {
			line = strings.TrimPrefix(line, name)
		}
		if _, note, is := strings.Cut(line, ": the interval is"); is {
			line = note
		}
		if line != "" && seen[line] {
			t.Errorf("said twice: %q in\n%s", line, text)
		}
		seen[line] = true
	}
	if both == 0 || !strings.Contains(text, " cells: ") {
		t.Errorf("nothing is said of both runs or several cells:\n%s", text)
	}
}

func TestWarnings(t *testing.T) {
	a := simulate(base, 1, 1)
	same := compare.Runs(a, a, compare.Defaults())
	if !slices.ContainsFunc(same.Warnings, func(w string) bool { return strings.Contains(w, "compared with itself") }) {
		t.Errorf("one run twice: %q", same.Warnings)
	}
	shaky := simulate(base, 1, 1)
	for i := range shaky.Run.Trials {
		trial := &shaky.Run.Trials[i]
		trial.Accepted = !trial.AA && trial.Window == 0 && trial.Block < 2 // a noise floor is missing, intervals are wide
	}
	checkNoRepetition(t, compare.Runs(shaky, shaky, compare.Defaults()))
	slow := base
	slow.DUTs = slices.Clone(base.DUTs)
	slow.DUTs[1].MaxMbps = 700
	c := compare.Runs(a, simulate(slow, 2, 1), compare.Defaults())
	if !slices.ContainsFunc(c.Warnings, func(w string) bool {
		return strings.Contains(w, "portal, 20 clients, 1000 Mbit/s, up delivers less in B: 700 Mbit/s after 1000")
	}) {
		t.Errorf("a device at its limit: %q", c.Warnings)
	}
	kinds := simulate(base, 3, 1)
	kinds.Run.Environment.Sides = &result.Sides{Device: "clients of kind persona", Clean: "clients of kind macvlan"}
	c = compare.Runs(a, kinds, compare.Defaults())
	if !slices.ContainsFunc(c.Warnings, func(w string) bool {
		return strings.HasPrefix(
			w, "B compares labs that differ in more than the device: clients of kind persona against clients of kind macvlan")
	}) {
		t.Errorf("a run of labs that differ: %q", c.Warnings)
	}
}

// TestJSONIsStable: the same runs, the same bytes, and nothing that is not JSON.
func TestJSONIsStable(t *testing.T) {
	var first []byte
	for range 3 {
		data, err := json.Marshal(compare.Runs(simulate(base, 1, 1), simulate(base, 2, 1.1), gated(0.05)))
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, data) {
			t.Error("two comparisons of the same runs differ")
		}
		first = data
	}
	empty, err := json.Marshal(
		compare.Runs(compare.Input{Run: result.Run{}}, compare.Input{Run: result.Run{}}, gated(0.05)))
	if err != nil || bytes.Contains(empty, []byte(`cells":null`)) || bytes.Contains(empty, []byte("NaN")) {
		t.Errorf("%v: %s", err, empty)
	}
}

// FuzzRuns: whatever records say, comparing does not fail and is valid JSON.
func FuzzRuns(f *testing.F) {
	f.Add(1.0, int64(1e9), 500.0, true)
	f.Add(-1.0, int64(math.MinInt64), 1e308, false)
	f.Add(1e-320, int64(0), 0.0, true)
	f.Fuzz(func(t *testing.T, seconds float64, ns int64, mbps float64, same bool) {
		for _, v := range []float64{seconds, mbps} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return // cannot come out of JSON
			}
		}
		a, b := simulate(base, 1, 1), simulate(base, 2, 1)
		for i := range b.Run.Trials {
			m := &cost.SidesOf(b.Run.Trials[i]).DUT
			if same || i%2 == 0 {
				m.Seconds, m.NAPINs, m.DeliveredMbps = seconds, ns, mbps
			}
		}
		opts := gated(0.05)
		opts.MaxOverhead = 0.1
		c := compare.Runs(a, b, opts)
		if data, err := json.Marshal(c); err != nil || !json.Valid(data) {
			t.Errorf("%v: %s", err, data)
		}
		renderAll(t, c)
	})
}

func renderAll(t *testing.T, c compare.Comparison) string {
	t.Helper()
	var b bytes.Buffer
	if err := compare.Text(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
