package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestSpeedsAreNotMixed: a run of slowed routers beside one at full speed says so in its line, as a
// difference of the machine, and as a warning.
func TestSpeedsAreNotMixed(t *testing.T) {
	full, slow := simulate(base, 1, 1), simulate(base, 2, 1)
	slow.Run.Environment.RouterSpeed = 0.25
	for i := range slow.Run.Trials {
		cost.SidesOf(slow.Run.Trials[i]).DUT.Metrics = map[string]float64{result.RouterShare: 0.251}
	}
	c := compare.Runs(full, slow, compare.Defaults())
	differs := slices.ContainsFunc(c.Differences, func(d compare.Difference) bool {
		return strings.Contains(d.What, "speed") && d.A == "full" && d.B == "slowed to 25 %" && d.Machine
	})
	if !differs || c.SameMachine ||
		!slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, "same speed") }) {
		t.Errorf("differences %+v, warnings %q", c.Differences, c.Warnings)
	}
	if text := renderAll(t, c); !strings.Contains(text, "slowed to 25 % of their CPU: measured share 25.1 %") {
		t.Errorf("text:\n%s", text)
	}
	if c := compare.Runs(slow, slow, compare.Defaults()); !c.SameMachine ||
		slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, "same speed") }) {
		t.Errorf("both slowed: %q", c.Warnings)
	}
}
