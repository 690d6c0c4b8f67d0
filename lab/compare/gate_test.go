// Tests of the gate: a comparison that fails when a cost has risen by more than a limit. simulate makes a run of a
// Spec, base being a small one, in which the device allowlist costs a factor more; gated returns Options with a limit
// (compare_test.go).

package compare_test

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// manyDevices is a run of many devices and few blocks, with the noise of a loud machine.
func manyDevices(blocks int, sd float64) analysistest.Spec {
	spec := base
	spec.DUTs = nil
	for i, ratio := range []float64{8.3, 1.19, 2.2, 0.8, 1.3} {
		spec.DUTs = append(spec.DUTs, analysistest.DUT{Name: string(rune('a' + i)), Ratio: ratio})
	}
	spec.Blocks, spec.BlockSD = blocks, sd
	return spec
}

func overhead(limit float64) compare.Options {
	opts := compare.Defaults()
	opts.MaxOverhead = analysis.Number(limit)
	return opts
}

// wordOfInterval returns where an interval is, compared with the range from lo to hi: "beyond", "below" or "across".
func wordOfInterval(e analysis.Estimate, lo, hi float64) string {
	switch {
	case float64(e.Lo) > hi:
		return "beyond"
	case float64(e.Hi) < lo:
		return "below"
	}
	return "across"
}

// TestIntervalAndWordAreOne: a cell's verdict is always the one that a reader takes from the interval beside it: for
// verdicts, for both limits, and in all outputs.
func TestIntervalAndWordAreOne(t *testing.T) {
	gate := map[string]string{
		compare.OverLimit: "beyond", compare.Regressed: "beyond", compare.Within: "below", compare.CannotTell: "across"}
	met, wider := map[string]int{}, 0
	for seed := range uint64(60) {
		spec := manyDevices(2+int(seed%4), []float64{0.002, 0.02, 0.1, 0.3}[seed/15])
		opts := overhead(0.2)
		opts.MaxRegression = 0.05
		c := compare.Runs(simulate(spec, 2*seed, 1), simulate(spec, 2*seed+1, 1.1), opts)
		for _, cell := range c.Cells {
			for _, d := range []struct {
				*compare.Decision
				limit float64
				text  string
			}{{cell.Overhead, 1.2, "×"}, {cell.Regression, 1.05, "%"}} {
				met[d.Word]++
				if read := wordOfInterval(d.Interval, d.limit, d.limit); read != gate[d.Word] &&
					!strings.Contains(d.Note, "clean routers differ") {
					t.Errorf("seed %d, %s: %s beside %v", seed, cost.Dimensions.Label(cell.Dimensions), d.Word, d.Interval)
				}
			}
			wider += map[bool]int{true: 1}[cell.Overhead.Interval.Lo < cell.B.Judged.Lo]
			met[cell.Verdict]++
			inside := float64(cell.Deciding.Lo) >= 1/1.05 && float64(cell.Deciding.Hi) <= 1.05
			if equivalent := cell.Verdict == compare.Equivalent; equivalent != inside {
				t.Errorf("seed %d, %s: %s beside %v", seed, cost.Dimensions.Label(cell.Dimensions), cell.Verdict, cell.Deciding)
			}
			called := cell.Verdict == compare.Worse || cell.Verdict == compare.Better
			if called && wordOfInterval(cell.Deciding, 1, 1) == "across" {
				t.Errorf("seed %d, %s: %s beside %v", seed, cost.Dimensions.Label(cell.Dimensions), cell.Verdict, cell.Deciding)
			}
			if !called && !inside && wordOfInterval(cell.Deciding, 1, 1) != "across" &&
				strings.Contains(cell.VerdictNote, "interval") {
				t.Errorf("seed %d, %s: %s (%s) beside %v", seed, cost.Dimensions.Label(cell.Dimensions), cell.Verdict,
					cell.VerdictNote,
					cell.Deciding)
			}
		}
	}
	for _, word := range []string{compare.OverLimit, compare.Regressed, compare.Within, compare.CannotTell, compare.Worse,
		compare.Equivalent, compare.Inconclusive} {
		if met[word] == 0 {
			t.Errorf("no cell was %s: %v", word, met)
		}
	}
	if wider == 0 {
		t.Error("no decision was corrected for the number of cells")
	}
}

// TestEveryFormShowsTheDecidingInterval: terminal, Markdown, JUnit and page show the interval that decides, and not the
// cell's own.
func TestEveryFormShowsTheDecidingInterval(t *testing.T) {
	input := simulate(manyDevices(3, 0.1), 4, 1)
	c := compare.Single(input, overhead(0.2))
	i := slices.IndexFunc(c.Cells, func(cell compare.Cell) bool { return cell.Overhead.Interval.Lo < cell.B.Judged.Lo })
	if i < 0 {
		t.Fatal("no interval is wider than that of the cell by itself")
	}
	cell := c.Cells[i]
	shown, alone := bracketed(cell.Overhead.Interval), bracketed(cell.B.Judged)
	var markdown, page, junit bytes.Buffer
	for _, err := range []error{compare.Markdown(&markdown, c), compare.JUnit(&junit, c), compare.HTML(&page,
		[]compare.Comparison{c}, func(s string) string { return s })} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for form, text := range map[string]string{
		"terminal": renderAll(t, c), "Markdown": strings.ReplaceAll(markdown.String(),
			"\\", ""), "JUnit": junit.String(), "page": page.String()} {
		if !strings.Contains(text, shown) || strings.Contains(text, alone) {
			t.Errorf("%s: want %s and not %s in:\n%s", form, shown, alone, text)
		}
	}
}

func bracketed(e analysis.Estimate) string {
	return strings.Join([]string{"[" + threeDecimals(e.Lo), threeDecimals(e.Hi) + "]"}, ", ")
}

func threeDecimals(n analysis.Number) string { return strconv.FormatFloat(float64(n), 'f', 3, 64) }

// TestGateWithoutAnswers: a gate passes when every cell is within the limit. A cell without an answer makes it fail
// with an outcome of its own.
func TestGateWithoutAnswers(t *testing.T) {
	few, once, steady := manyDevices(2, 0.3), manyDevices(1, 0.3), manyDevices(8, 0.002)
	lost := steady
	lost.RejectEvery = 0
	for _, tt := range []struct {
		name               string
		spec               analysistest.Spec
		limit              float64
		allow              bool
		passed, unanswered bool
		says               string
	}{
		{"all within", steady, 9, false, true, false, "gate passed"},
		{"one beyond", steady, 5, false, false, false, "2 beyond the limit"},
		{"two blocks far apart", few, 0.2, false, false, true, "gate failed for want of answers"},
		{"two blocks far apart, allowed", few, 0.2, true, false, true, "0 within"},
		{"some within, allowed", manyDevices(3, 0.08), 8, true, true, false, "without an answer"},
		{"some within", manyDevices(3, 0.08), 8, false, false, true, "without an answer"},
		{"no interval, allowed", once, 9, true, false, true, "none has an interval"},
	} {
		opts := overhead(tt.limit)
		opts.AllowUnknown = tt.allow
		g := compare.Single(simulate(tt.spec, 1, 1), opts).Gate
		if g.Passed != tt.passed || g.Unanswered != tt.unanswered || !strings.Contains(g.Sentence, tt.says) ||
			g.Strict == tt.allow {
			t.Errorf("%s: %+v", tt.name, g)
		}
	}
}

// TestCellsThatOnlyBHas: cells that only B has are judged by a limit on B alone. Under a limit on the change they count
// as missing.
func TestCellsThatOnlyBHas(t *testing.T) {
	fewer := base
	fewer.DUTs = fewer.DUTs[:1]
	c := compare.Runs(simulate(fewer, 1, 1), simulate(base, 2, 1), overhead(0.5))
	if c.Gate.Passed || c.Gate.Failed != 2 || len(c.OnlyB) != 2 || len(c.Cells) != 4 {
		t.Errorf("five times the limit in B only: %s", c.Gate.Sentence)
	}
	if text := renderAll(t, c); strings.Count(text, "over limit") != 2 {
		t.Errorf("%s", text)
	}
	opts := overhead(9)
	opts.MaxRegression = 0.05
	for _, opts := range []compare.Options{opts, gated(0.05)} {
		c = compare.Runs(simulate(fewer, 1, 1), simulate(base, 2, 1), opts)
		if !c.Gate.Unanswered || c.Gate.Unclear != 2 || !strings.Contains(renderAll(t, c), "only B has this cell") {
			t.Errorf("no base for two cells: %+v", c.Gate)
		}
		if s := junit(t, c); s.Failures != 2 {
			t.Errorf("JUnit: %+v", s)
		}
	}
}

// TestBlockThatFailed: a cell all of whose blocks failed has no answer.
func TestBlockThatFailed(t *testing.T) {
	input := simulate(base, 1, 1)
	input.Run.Blocks = append(input.Run.Blocks, result.Block{DUT: "broken", Clients: 20, Direction: result.Up,
		Profile: result.PerPacket, Error: "it did not start"})
	c := compare.Single(input, overhead(9))
	// One cell for each load that the other devices have.
	if !c.Gate.Unanswered || c.Gate.Unclear != 2 || !strings.Contains(renderAll(t, c),
		"Without an answer: broken, 20 clients, 1000 Mbit/s, up: its block failed: it did not start") {
		t.Errorf("%s\n%s", c.Gate.Sentence, renderAll(t, c))
	}
	input.Run.Blocks[len(input.Run.Blocks)-1].DUT = base.DUTs[0].Name
	if c := compare.Single(input, overhead(9)); !c.Gate.Passed {
		t.Errorf("other blocks of the cell were measured: %s", c.Gate.Sentence)
	}
	input.Run.Blocks[len(input.Run.Blocks)-1].AA = true
	input.Run.Blocks[len(input.Run.Blocks)-1].DUT = "clean"
	if c := compare.Single(input, overhead(9)); !c.Gate.Passed {
		t.Errorf("a block of two clean routers failed: %s", c.Gate.Sentence)
	}
}

// TestBlocksNeededAreSupported: from three blocks on the gate names the number of blocks it needs. The number allows
// for the little that few blocks tell about their spread: with that many blocks the gate reaches an answer four times
// in five.
func TestBlocksNeededAreSupported(t *testing.T) {
	for seed := range uint64(30) {
		for _, cell := range compare.Single(simulate(manyDevices(2, 0.3), seed, 1), overhead(0.2)).Cells {
			if d := cell.Overhead; d.BlocksNeeded != nil ||
				d.Word == compare.CannotTell && !strings.Contains(d.Note, "fewer than 3 blocks") {
				t.Fatalf("two blocks, %v: %s", d.Interval, d.Note)
			}
		}
	}
	asked, told := 0, 0
	for seed := range uint64(150) {
		spec := base
		spec.DUTs, spec.Offered, spec.BlockSD, spec.Blocks = []analysistest.DUT{{Name: "gateway", Ratio: 1.5}},
			[]float64{500}, 0.12, 3
		d := compare.Single(simulate(spec, seed, 1), overhead(0.2)).Cells[0].Overhead
		if d.BlocksNeeded == nil || math.Abs(float64(d.Interval.Mean)/1.5-1) > 0.05 { // the number stands on the mean
			continue
		}
		asked++
		spec.Blocks += *d.BlocksNeeded
		if compare.Single(simulate(spec, 1000+seed, 1), overhead(0.2)).Cells[0].Overhead.Word != compare.CannotTell {
			told++
		}
	}
	if asked < 20 || float64(told) < 0.7*float64(asked) {
		t.Errorf("asked for more blocks %d times, %d times they were enough", asked, told)
	}
}

// TestGateAllowsForNoise: the interval by which the gate decides includes what other guests may have done to a ratio,
// as the report's interval does.
func TestGateAllowsForNoise(t *testing.T) {
	quiet := simulate(base, 1, 1)
	noisy := simulate(base, 1, 1)
	for i := range noisy.Run.Trials {
		cost.SidesOf(noisy.Run.Trials[i]).DUT.Metrics = map[string]float64{result.OthersShare: 0.9}
	}
	before, is := compare.Single(quiet, overhead(0.2)), compare.Single(noisy, overhead(0.2))
	for i, cell := range is.Cells {
		if a, b := before.Cells[i].Overhead.Interval, cell.Overhead.Interval; !(b.Lo < a.Lo && b.Hi > a.Hi) {
			t.Errorf("%s: [%v, %v] of the noisy run, [%v, %v] of the quiet one", cost.Dimensions.Label(cell.Dimensions), b.Lo,
				b.Hi,
				a.Lo, a.Hi)
		}
		word, open := wordOfInterval(cell.Overhead.Interval, 1.2, 1.2), cell.Overhead.Word == compare.CannotTell
		if (word == "across") != open {
			t.Errorf("%s: %s beside %v", cost.Dimensions.Label(cell.Dimensions), cell.Overhead.Word, cell.Overhead.Interval)
		}
	}
	changed := compare.Runs(quiet, noisy, compare.Defaults()).Cells
	for i, cell := range compare.Runs(quiet, quiet, compare.Defaults()).Cells {
		if a, b := cell.Change, changed[i].Change; !(b.Lo < a.Lo && b.Hi > a.Hi) {
			t.Errorf("%s: the change [%v, %v] does not allow for noise", cost.Dimensions.Label(cell.Dimensions), b.Lo, b.Hi)
		}
	}
}
