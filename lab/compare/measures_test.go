// Tests of comparisons of runs with different measures. simulate makes a run of a Spec, base being a small one, in
// which the device allowlist costs a factor more (compare_test.go).

package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/compare"
)

func storms() compare.Input {
	queues := []analysistest.LoginQueue{{Name: "portal", LoginMs: 5}}
	return compare.Input{Name: "storms", Run: analysistest.Storms(1, queues, []int{20, 50}, 4)}
}

// TestRunsOfDifferentMeasures says the same from both sides: what each run has, and that nothing
// is compared. There are no figures to explain.
func TestRunsOfDifferentMeasures(t *testing.T) {
	cost, logins := simulate(base, 1, 1), storms()
	for _, pair := range [][2]compare.Input{{cost, logins}, {logins, cost}} {
		c := compare.Runs(pair[0], pair[1], gated(0.05))
		if len(c.Cells) != 0 || len(c.OnlyA)+len(c.OnlyB) != 6 ||
			len(c.OnlyA) != map[bool]int{true: 4, false: 2}[pair[0].Name == cost.Name] {
			t.Errorf("%s, %s: %d cells, only in A %v, only in B %v", pair[0].Name, pair[1].Name, len(c.Cells), c.OnlyA, c.OnlyB)
		}
		if c.Gate.Passed ||
			!slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, "no metric in common") }) {
			t.Errorf("%s, %s: %s, %q", pair[0].Name, pair[1].Name, c.Gate.Sentence, c.Warnings)
		}
		text := renderAll(t, c)
		for _, wrong := range []string{"How to read it", "adjusted for", "A/A"} {
			if strings.Contains(text, wrong) {
				t.Errorf("%s, %s: %q is about a table that is not there:\n%s", pair[0].Name, pair[1].Name, wrong, text)
			}
		}
	}
}

// TestOverheadWithoutACleanRouter: a login rate is no overhead, and is not called one.
func TestOverheadWithoutACleanRouter(t *testing.T) {
	opts := compare.Defaults()
	opts.MaxOverhead = 0.2
	c := compare.Single(storms(), opts)
	if d := c.Cells[0].Overhead; d.Word != compare.CannotTell || !strings.Contains(d.Note, "no clean router") ||
		c.Gate.Passed {
		t.Errorf("%+v, %s", d, c.Gate.Sentence)
	}
	if text := renderAll(t, c); strings.Contains(text, "overhead ×") || !strings.Contains(text, "login per second") {
		t.Errorf("text:\n%s", text)
	}
}

// TestSingleRunWithoutInterval: of a run that stands alone there is no A.
func TestSingleRunWithoutInterval(t *testing.T) {
	once := base
	once.Blocks = 1
	opts := compare.Defaults()
	opts.MaxOverhead = 0.2
	if note := compare.Single(simulate(once, 1, 1), opts).Cells[0].Overhead.Note; !strings.HasPrefix(
		note, "the run has one block only") {
		t.Error(note)
	}
}
