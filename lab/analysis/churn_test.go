package analysis

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

func TestChurnIsSummedOverBlocks(t *testing.T) {
	visits := func(in, gone, after int) func(*result.Block) {
		return func(b *result.Block) {
			b.Churn = &result.Churn{
				PerSecond: 5, Came: 10, In: in, Gone: gone, LoginP99Ms: 40, Failures: []result.Reason{{First: "no 7", Count: 10 - in}},
				Before: result.DeviceState{PSSMiB: 10, Flows: 7, Counts: map[string]int{"sessions": 3}},
				After:  result.DeviceState{PSSMiB: 12, RuleLines: 4, Flows: 30, Counts: map[string]int{"sessions": after}},
			}
			if after != 3 {
				b.Churn.After.Counts["idle"] = 2
			}
		}
	}
	blocks := []result.Block{block("a", 3, visits(10, 10, 3)), block("a", 3, visits(8, 7, 4)), block("b", 3, visits(1, 1, 9)), block("a", 3, func(*result.Block) {})}
	cell := result.NewCell(result.DUT, "a", result.Clients, 3, result.OfferedMbps, 50, result.Direction, result.Up, result.Profile, result.PerPacket)
	f := churnFigures(cell, blocks, Options{}.withDefaults())
	if f.Blocks != 2 || f.Settled != 1 || f.Came != 20 || f.In != 18 || f.Gone != 17 || f.PerSecond != 5 {
		t.Errorf("%+v", f)
	}
	if f.PSSBeforeMiB.Mean != 10 || f.PSSAfterMiB.Mean != 12 || f.LoginP99ms.Mean != 40 || f.LoginP50ms.Mean.Known() {
		t.Errorf("memory %v to %v MiB, p99 %v, p50 %v", f.PSSBeforeMiB.Mean, f.PSSAfterMiB.Mean, f.LoginP99ms.Mean, f.LoginP50ms.Mean)
	}
	if f.Told != 2 || f.FlowsBefore.Mean != 7 || f.FlowsAfter.Mean != 30 {
		t.Errorf("told in %d blocks, %v to %v connections", f.Told, f.FlowsBefore.Mean, f.FlowsAfter.Mean)
	}
	if c := f.Counts; len(c) != 2 || c[0].Name != "idle" || c[0].Before.Mean != 0 || c[0].After.Mean != 1 || c[1].Before.Mean != 3 || c[1].After.Mean != 3.5 || c[1].After.Lo < 0 {
		t.Errorf("counts %+v", c)
	}
	if len(f.Failures) != 1 || f.Failures[0] != (Tally{"no 7", 2}) {
		t.Errorf("failures %+v", f.Failures)
	}
}
