// Tests of comparisons of devices that could not carry the load. simulate makes a run of a Spec, base being a small
// one, in which the device allowlist costs a factor more; gated returns Options with a limit for the change
// (compare_test.go).

package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// withoutTrials is a run without the trials of a device, of all its cells from a load up.
func withoutTrials(input compare.Input, dut string, from float64) compare.Input {
	input.Run.Trials = slices.DeleteFunc(slices.Clone(input.Run.Trials), func(t result.Trial) bool {
		return !t.AA && t.Cell.Text(result.DUT) == dut && t.Cell.Number(result.OfferedMbps) >= from
	})
	return input
}

// cellsOf are the cells of a run's trials that another lacks.
func cellsOf(whole, rest compare.Input) (list []result.Cell) {
	has := func(input compare.Input, cell result.Cell) bool {
		return slices.ContainsFunc(input.Run.Trials, func(t result.Trial) bool { return !t.AA && t.Cell == cell })
	}
	for _, t := range whole.Run.Trials {
		if !t.AA && !has(rest, t.Cell) && !slices.Contains(list, t.Cell) {
			list = append(list, t.Cell)
		}
	}
	return list
}

// TestGateOfWhatDevicesDoNotManage: the gate fails if a device does not do in the head what it did in the base, even if
// it allows cells without an answer or has another limit. It does not fail for what the base did not do either, nor for
// what another machine may have caused.
func TestGateOfWhatDevicesDoNotManage(t *testing.T) {
	device, top := base.DUTs[0].Name, slices.Max(base.Offered)
	whole := simulate(base, 1, 1)
	slow := base
	slow.DUTs = slices.Clone(base.DUTs)
	slow.DUTs[0].MaxMbps = 0.8 * top
	limited := simulate(slow, 2, 1)
	clients := base.Clients[len(base.Clients)-1]
	block := func(input compare.Input, b result.Block) compare.Input {
		b.DUT, b.Clients, b.Direction, b.Profile = device, clients, result.Up, result.PerPacket
		input.Run.Blocks = append(slices.Clone(input.Run.Blocks), b)
		return input
	}
	gone := withoutTrials(simulate(base, 2, 1), device, 0)
	gone.Run.Unmeasured = cellsOf(whole, gone)
	rejected := simulate(base, 2, 1)
	rejected.Run.Trials = slices.Clone(rejected.Run.Trials)
	lossy := simulate(base, 2, 1)
	lossy.Run.Trials = slices.Clone(lossy.Run.Trials)
	heldUp := rejected
	heldUp.Run.Trials = slices.Clone(rejected.Run.Trials)
	for i, tr := range rejected.Run.Trials {
		if tr.AA || tr.Cell.Text(result.DUT) != device || tr.Cell.Number(result.OfferedMbps) != top {
			continue
		}
		tr.Accepted, tr.Rejects = false, []string{"device: delivered 0.0 of 1000 Mbit/s, limit 98 %"}
		rejected.Run.Trials[i] = analysistest.Changed(tr, func(s *cost.Sides) { s.DUT.DeliveredMbps = 0 })
		heldUp.Run.Trials[i] = analysistest.Changed(tr, func(s *cost.Sides) {
			s.DUT.DeliveredMbps, s.Clean.DeliveredMbps = 0, 0
		})
		lossy.Run.Trials[i].Flags = []string{result.FlagLossy}
	}
	elsewhere := limited
	elsewhere.Run.Environment.CPUModel = "another"
	broke := block(gone, result.Block{Broke: "client 3 got no address"})
	for _, tt := range []struct {
		name               string
		a, b               compare.Input
		passed, unanswered bool
		says               string
	}{
		{"nothing is missing", whole, simulate(base, 2, 1), true, false, "within"},
		{"less than its load", whole, limited, false, false, "Mbit/s in A, and carries"},
		{"packets are lost", whole, lossy, false, false, "loses more than 1 %"},
		{"nothing at all", whole, rejected, false, false, "no trial passed with as much"},
		{"both sides were held up", whole, heldUp, true, true, "no accepted"},
		{"less in both", simulate(slow, 1, 1), limited, true, false, "within"},
		{"less on another machine", whole, elsewhere, true, true, "on another machine"},
		{"fewer clients", whole, broke, false, false, "does not take"},
		{"fewer clients in both", broke, broke, true, false, "within"},
		{"it does not start", whole, block(gone, result.Block{Error: "it did not start"}), false, false,
			"its block failed: it did not start"},
		{"it failed once", whole, block(simulate(base, 2, 1), result.Block{Error: "it did not start"}), true, false,
			"within"},
	} {
		for _, allow := range []bool{true, false} {
			opts := gated(0.3)
			opts.AllowUnknown = allow
			c := compare.Runs(tt.a, tt.b, opts)
			text := renderAll(t, c)
			passed := tt.passed && (allow || !tt.unanswered)
			if g := c.Gate; g.Passed != passed || g.Unanswered != (tt.unanswered && !allow) || !strings.Contains(text, tt.says) {
				t.Errorf("%s, unknown cells allowed %v: %+v\n%s", tt.name, allow, g, text)
			}
			if s := junit(t, c); (s.Failures == 0) != passed {
				t.Errorf("%s, unknown cells allowed %v: %d failures in JUnit", tt.name, allow, s.Failures)
			}
		}
		opts := overhead(9)
		opts.AllowUnknown = true
		if c := compare.Runs(tt.a, tt.b, opts); c.Gate.Passed != tt.passed {
			t.Errorf("%s: under a limit on the overhead %+v", tt.name, c.Gate)
		}
	}
}

// TestGateOfAnInterruptedHead: planned cells without a trial are without an answer to any limit, and are named with the
// reason.
func TestGateOfAnInterruptedHead(t *testing.T) {
	whole := simulate(base, 1, 1)
	head := withoutTrials(simulate(base, 2, 1), base.DUTs[1].Name, 0)
	head.Run.Environment.Interrupted = true
	unknown := head // its folder has lost the experiment
	head.Run.Unmeasured = cellsOf(whole, head)
	over := head
	over.Run.Environment.Interrupted = false
	limits := map[string]compare.Options{"overhead": overhead(9), "regression": gated(0.3)}
	for name, opts := range limits {
		for says, input := range map[string]compare.Input{
			"was interrupted before it": head, "what it was to measure is not known": unknown, "has no trial of it": over} {
			list := []compare.Comparison{compare.Runs(whole, input, opts)}
			if name == "overhead" {
				list = append(list, compare.Single(input, opts))
			}
			for _, c := range list {
				if text := renderAll(t, c); !c.Gate.Unanswered || c.Gate.Unclear == 0 || !strings.Contains(text, says) {
					t.Errorf("%s, %q: %+v\n%s", name, says, c.Gate, text)
				}
				if says != "what it was to measure is not known" && c.Gate.Unclear != len(head.Run.Unmeasured) {
					t.Errorf("%s: %d without an answer of %d", name, c.Gate.Unclear, len(head.Run.Unmeasured))
				}
			}
		}
		if c := compare.Runs(whole, simulate(base, 2, 1), opts); !c.Gate.Passed || len(c.Gate.Missing) > 0 {
			t.Errorf("%s: of a whole run %+v", name, c.Gate)
		}
	}
	opts := overhead(9)
	broke := head
	broke.Run.Environment.Interrupted = false
	broke.Run.Blocks = append(slices.Clone(head.Run.Blocks), result.Block{DUT: base.DUTs[1].Name, Clients: 1,
		Direction: result.Up, Profile: result.PerPacket, Broke: "client 1 was refused"})
	if c := compare.Single(broke, opts); !c.Gate.Unanswered ||
		!strings.Contains(renderAll(t, c), "does not take 1 client: client 1 was refused") {
		t.Errorf("a device that takes no such number: %+v\n%s", c.Gate, renderAll(t, c))
	}
	failed := head
	failed.Run.Environment.Interrupted = false
	failed.Run.Blocks = append(slices.Clone(head.Run.Blocks), result.Block{DUT: base.DUTs[1].Name, Clients: 20,
		Direction: result.Up, Profile: result.PerPacket, Error: "it did not start"})
	if c := compare.Single(failed, opts); c.Gate.Unclear != len(head.Run.Unmeasured) ||
		strings.Count(renderAll(t, c), "its block failed: it did not start") != c.Gate.Unclear {
		t.Errorf("its blocks failed: %+v", c.Gate)
	}
	if label := cost.Dimensions.Label(head.Run.Unmeasured[0]); !strings.Contains(
		renderAll(t, compare.Single(head, opts)), "Without an answer: "+label+": the run was interrupted before it.") {
		t.Errorf("%s is not named", label)
	}
}
