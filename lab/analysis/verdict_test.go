package analysis

import (
	"math"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// sampleWith is a log ratio of n blocks whose 95 % interval is [lo, hi] as a ratio.
func sampleWith(lo, hi float64, n int) inference.Sample {
	half := (math.Log(hi) - math.Log(lo)) / 2
	return inference.Sample{
		Mean: (math.Log(lo) + math.Log(hi)) / 2, SE: half / inference.Quantile(float64(n-1), 0.975), Freedom: float64(n - 1),
		N: n,
	}
}

// ratio is a metric whose change is a ratio. The tests judge log ratios against the noise floor aa, the interval of two
// clean routers; Unknown means that there is none.
var ratio = Metric{Against: AsRatio}

// TestJudge: the interval of a ratio decides the verdict: different, equivalent (within 5 %), or inconclusive. In the
// last case blocks is true if a number of further blocks is given.
func TestJudge(t *testing.T) {
	quiet := AA{Ratio: Estimate{Mean: 1, Lo: 0.995, Hi: 1.005, N: 6}, SDLog: 0.005}
	none := AA{Ratio: Unknown(), SDLog: Absent()}
	tests := []struct {
		name   string
		in     inference.Sample
		aa     AA
		want   string
		blocks bool
	}{
		{"dearer", sampleWith(1.9, 2.4, 6), none, Different, false},
		{"cheaper", sampleWith(0.8, 0.9, 6), none, Different, false},
		{"dearer by a little", sampleWith(1.01, 1.08, 6), quiet, Different, false},
		{"same", sampleWith(0.97, 1.03, 6), quiet, Equivalent, false},
		{"differs, but not by what matters", sampleWith(1.01, 1.04, 6), quiet, Equivalent, false},
		{"edge of the band", sampleWith(1/1.0499, 1.0499, 6), none, Equivalent, false},
		{"beyond the lower edge of the band", sampleWith(0.951, 1.02, 6), none, Inconclusive, true},
		{"too wide", sampleWith(0.9, 1.2, 6), none, Inconclusive, true},
		{"one block", inference.Sample{Mean: 0.1, SE: math.NaN(), N: 1}, none, Inconclusive, false},
		{"one block, noise known from A/A", inference.Sample{Mean: 0.1, SE: math.NaN(), N: 1}, quiet, Inconclusive, true},
		{"nothing", inference.None(), quiet, Inconclusive, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{}.withDefaults()
			cells := []Cell{{}}
			judgeCells(cells, ratios([]inference.Sample{tt.in}, opts), tt.aa, ratio, opts)
			if c := cells[0]; c.Verdict != tt.want || (c.BlocksNeeded != nil) != tt.blocks || c.VerdictNote == "" {
				t.Errorf("got %s (%s), blocks needed %v", c.Verdict, c.VerdictNote, c.BlocksNeeded)
			}
		})
	}
}

// TestNoiseFloor: a change that is no larger than that between two clean routers gives no verdict on the device.
func TestNoiseFloor(t *testing.T) {
	opts := Options{}.withDefaults()
	loud := AA{Blocks: 3, Ratio: Estimate{Mean: 1.01, Lo: 0.93, Hi: 1.09, N: 3}, SDLog: 0.032}
	for _, tt := range []struct {
		lo, hi float64
		want   string
		note   string
	}{
		{1.06, 1.09, Inconclusive,
			"two clean routers may differ as much, up or down (A/A 0.930 to 1.090); about 5 more A/A blocks would tell"},
		{0.92, 0.945, Inconclusive, "A/A"},
		{1.095, 1.11, Different, ""},
		{0.88, 0.91, Different, ""},
	} {
		cells := []Cell{{}}
		judgeCells(cells, ratios([]inference.Sample{sampleWith(tt.lo, tt.hi, 6)}, opts), loud, ratio, opts)
		if c := cells[0]; c.Verdict != tt.want || !strings.Contains(c.VerdictNote, tt.note) {
			t.Errorf("[%g, %g]: %s (%s)", tt.lo, tt.hi, c.Verdict, c.VerdictNote)
		}
	}
	biased := AA{Blocks: 6, Ratio: Estimate{Mean: 1.09, Lo: 1.08, Hi: 1.1, N: 6}, SDLog: 0.01}
	cells := []Cell{{}}
	judgeCells(cells, ratios([]inference.Sample{sampleWith(1.06, 1.09, 6)}, opts), biased, ratio, opts)
	if note := cells[0].VerdictNote; strings.Contains(note, "would tell") {
		t.Errorf("more A/A blocks cannot help below their own mean: %s", note)
	}
}

// TestMultiplicity: one weak difference is significant alone, but not among many comparisons, which also need more
// blocks.
func TestMultiplicity(t *testing.T) {
	opts := Options{}.withDefaults()
	weak := sampleWith(1.005, 1.15, 6)
	alone := judgeAll(ratios([]inference.Sample{weak}, opts), opts)[0]
	if alone.Word != Different {
		t.Fatalf("alone: %+v", alone)
	}
	crowd := []inference.Sample{weak}
	for range 11 {
		crowd = append(crowd, sampleWith(0.85, 1.2, 6))
	}
	crowd = append(crowd, inference.Sample{Mean: 0.1, SE: math.NaN(), N: 1}) // cannot be tested: does not count
	v := judgeAll(ratios(crowd, opts), opts)[0]
	if v.Word != Inconclusive || !strings.Contains(v.Note, "among 12 verdicts") {
		t.Errorf("in a crowd: %+v", v)
	}
	between := func(what string, got Number, lo, hi float64) {
		if float64(got) < lo || float64(got) > hi {
			t.Errorf("%s: %g", what, got)
		}
	}
	between("p alone", alone.PDifferent, 0.03, 0.05)
	between("p in the crowd", v.PDifferent/alone.PDifferent, 11.999, 12.001)
	change := contrast{Sample: inference.Sample{Mean: 0.05, N: 6}, limit: opts.limit()}
	single, many := change.furtherBlocks(0.1, 6, 1, opts), change.furtherBlocks(0.1, 6, 12, opts)
	if *many <= *single {
		t.Errorf("%d further blocks for one verdict, %d for twelve", *single, *many)
	}
	// A clear difference survives any crowd.
	if clear := judgeAll(ratios(append(crowd, sampleWith(2, 2.3, 6)), opts), opts)[13]; clear.Word != Different {
		t.Errorf("clear difference: %+v", clear)
	}
}

// TestTogether: when the correction for many comparisons leaves a verdict open that the shown interval would give, the
// cell also has the interval that decided; otherwise it has none.
func TestTogether(t *testing.T) {
	opts := Options{}.withDefaults()
	none := AA{Ratio: Unknown(), SDLog: Absent()}
	logs := []inference.Sample{sampleWith(1.005, 1.15, 6), sampleWith(1/1.049, 1.049, 6), sampleWith(2, 2.3, 6)}
	for range 9 {
		logs = append(logs, sampleWith(0.85, 1.2, 6))
	}
	cells := make([]Cell, len(logs))
	judgeCells(cells, ratios(logs, opts), none, ratio, opts)
	for i, c := range cells {
		open := i < 2 // clear alone: different, equivalent
		if (c.Verdict == Inconclusive) != (i != 2) || (c.Together != nil) != open {
			t.Fatalf("cell %d: %s, %v", i, c.Verdict, c.Together)
		}
		if open && !(c.Together.Lo < 1 && c.Together.Hi > 1 && (c.Together.Lo < 1/1.05 || c.Together.Hi > 1.05)) {
			t.Errorf("cell %d: the interval does not show that it is open: %v", i, c.Together)
		}
	}
}

// TestFewBlocksNameNoNumber: from two blocks the number of further blocks cannot be estimated.
func TestFewBlocksNameNoNumber(t *testing.T) {
	opts := Options{}.withDefaults()
	for n, quiet := range map[int]AA{
		2: {Ratio: Unknown(), SDLog: Absent()}, 1: {Ratio: Estimate{Mean: 1, Lo: 0.99, Hi: 1.01, N: 2}, SDLog: 0.005}} {
		cells := []Cell{{}}
		in := sampleWith(0.37, 83, 2)
		if n == 1 {
			in = inference.Sample{Mean: 0.1, SE: math.NaN(), N: 1}
		}
		judgeCells(cells, ratios([]inference.Sample{in}, opts), quiet, ratio, opts)
		if c := cells[0]; c.BlocksNeeded != nil || !strings.Contains(c.VerdictNote, "fewer than 3 blocks") {
			t.Errorf("%d blocks: %v, %s", n, c.BlocksNeeded, c.VerdictNote)
		}
	}
	cells := []Cell{{}}
	judgeCells(cells, ratios([]inference.Sample{sampleWith(0.37, 83, 3)}, opts), AA{Ratio: Unknown(), SDLog: Absent()},
		ratio, opts)
	if n := cells[0].BlocksNeeded; n == nil || *n < 3 {
		t.Errorf("three blocks that leave [0.37, 83]: %v", cells[0].VerdictNote)
	}
}
