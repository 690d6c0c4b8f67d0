package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

func block(dut string, clients int, change func(*result.Block)) result.Block {
	b := result.Block{DUT: dut, Clients: clients, Direction: result.Up, Profile: result.PerPacket}
	change(&b)
	return b
}

func stretch(mbps, jain float64) func(*result.Block) {
	return func(b *result.Block) {
		b.Stretches = append(b.Stretches, result.Stretch{OfferedMbps: mbps, Fairness: result.Fairness{Jain: jain, Even: 1}, Connect: result.Delays{P50: 100, P99: 900}})
	}
}

func TestStreamFiguresAreOfTheirCell(t *testing.T) {
	cell := result.NewCell(result.DUT, "a", result.Clients, 100, result.OfferedMbps, 1000, result.Direction, result.Up, result.Profile, result.PerPacket)
	aa := block("a", 100, stretch(1000, 0.1))
	aa.AA = true
	f := streamFigures(cell, []result.Block{
		block("a", 100, stretch(1000, 0.9)), block("a", 100, stretch(1000, 0.8)), aa,
		block("a", 100, stretch(500, 0.1)), block("a", 10, stretch(1000, 0.1)), block("b", 100, stretch(1000, 0.1)),
	}, Options{}.withDefaults())
	if got := float64(f.Jain.Mean); got < 0.8499 || got > 0.8501 || !f.Jain.HasInterval() {
		t.Errorf("Jain %+v, want the mean of two blocks, 0.85", f.Jain)
	}
	if f.ConnectP99us.Mean != 900 || f.CleanJain.Mean.Known() {
		t.Errorf("connect p99 %v, fairness beside it %v: want 900, and none that was not recorded", f.ConnectP99us.Mean, f.CleanJain.Mean)
	}
}

// TestShortConnectionsThatAllFail have no times, in one block of two and in both.
func TestShortConnectionsThatAllFail(t *testing.T) {
	cell := result.NewCell(result.DUT, "a", result.Clients, 100, result.OfferedMbps, 1000, result.Direction, result.Up, result.Profile, result.PerPacket)
	short := func(s result.Short) result.Block {
		return block("a", 100, func(b *result.Block) { b.Stretches = []result.Stretch{{OfferedMbps: 1000, Short: &s}} })
	}
	all := result.Delays{P50: 200, P99: 800, Max: 900}
	carried, failed := short(result.Short{PerSecond: 50, Done: 100, Connect: all, Whole: all}), short(result.Short{Failed: 100})
	f := streamFigures(cell, []result.Block{carried, failed}, Options{}.withDefaults())
	if f.ShortConnectP99us.Mean != 800 || f.ShortWholeP50us.Mean != 200 || f.ShortWholeP99us.Mean != 800 || f.ShortWholeP99us.N != 1 {
		t.Errorf("connect p99 %+v, whole p50 %+v, p99 %+v: want those of the block that has any", f.ShortConnectP99us, f.ShortWholeP50us, f.ShortWholeP99us)
	}
	if f.ShortPerSecond.Mean != 25 || f.ShortFailed.Mean != 50 {
		t.Errorf("%v a second, %v failed a block: want 25 and 50, over both", f.ShortPerSecond.Mean, f.ShortFailed.Mean)
	}
	if f = streamFigures(cell, []result.Block{failed, failed}, Options{}.withDefaults()); f.ShortWholeP50us.Mean.Known() {
		t.Errorf("none had its answer, half of them within %v µs", f.ShortWholeP50us.Mean)
	}
}

func TestLimitsAreTheFewestClients(t *testing.T) {
	broke := func(how string) func(*result.Block) { return func(b *result.Block) { b.Broke = how } }
	fine, failed := func(*result.Block) {}, func(b *result.Block) { b.Error = "no cable" }
	got := limits([]result.Block{
		block("b", 10, fine), block("b", 1000, broke("later")), block("b", 100, broke("first")), block("b", 50, fine),
		block("a", 10, fine), block("a", 1000, failed),
	})
	if diff := cmp.Diff([]Limit{{DUT: "b", Clients: 100, Took: 50, How: "first"}}, got); diff != "" {
		t.Error(diff)
	}
}
