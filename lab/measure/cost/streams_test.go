package cost

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// blockWith returns the record of a block with a device (dut) and a number of clients, after change.
func blockWith(dut string, clients int, change func(*result.Block)) result.Block {
	b := result.Block{DUT: dut, Clients: clients, Direction: result.Up, Profile: result.PerPacket, Figures: &Stay{}}
	change(&b)
	return b
}

// cellWith returns the summary's only cell of a run with these blocks: that of a device, a number of clients and a
// load. Blocks of other devices and numbers of clients must not change it.
func cellWith(blocks []result.Block, dut string, clients int, mbps float64) analysis.Cell {
	cell := result.NewCell(result.DUT, dut, result.Clients, clients, result.OfferedMbps, mbps, result.Direction, result.Up,
		result.Profile, result.PerPacket)
	return Measure{}.Summarise(
		result.Run{Trials: []result.Trial{{Cell: cell, Figures: &Sides{}}}, Blocks: blocks}, analysis.Options{}).Cells[0]
}

// stretch returns a function that adds one load to a block, in Mbit/s: its streams' fairness (Jain's index) and the
// time they took to connect.
func stretch(mbps, jain float64) func(*result.Block) {
	return func(b *result.Block) {
		StayOf(*b).Stretches = append(StayOf(*b).Stretches, Stretch{
			OfferedMbps: mbps, Fairness: Fairness{Jain: jain, Even: 1}, Connect: Delays{P50: 100, P99: 900},
		})
	}
}

// TestStreamFiguresAreOfTheirCell: the streams' figures of a cell come from blocks of its device, clients and load, and
// not from A/A blocks.
func TestStreamFiguresAreOfTheirCell(t *testing.T) {
	aa := blockWith("a", 100, stretch(1000, 0.1))
	aa.AA = true
	c := cellWith([]result.Block{
		blockWith("a", 100, stretch(1000, 0.9)), blockWith("a", 100, stretch(1000, 0.8)), aa,
		blockWith("a", 100, stretch(500, 0.1)), blockWith("a", 10, stretch(1000, 0.1)),
		blockWith("b", 100, stretch(1000, 0.1)),
	}, "a", 100, 1000)
	if jain := c.Device("jain"); jain.Mean < 0.8499 || jain.Mean > 0.8501 || !jain.HasInterval() {
		t.Errorf("Jain %+v, want the mean of two blocks, 0.85", jain)
	}
	if p99, beside := c.Device("connect_p99_us").Mean, c.Clean("jain").Mean; p99 != 900 || beside.Known() {
		t.Errorf("connect p99 %v, fairness beside it %v: want 900, and none that was not recorded", p99, beside)
	}
}

// TestShortConnectionsThatAllFail: blocks in which all short connections fail have no times. A cell of two such blocks
// has none, and a cell of one such block and another has those of the other.
func TestShortConnectionsThatAllFail(t *testing.T) {
	short := func(s Short) result.Block {
		return blockWith("a", 100, func(b *result.Block) { StayOf(*b).Stretches = []Stretch{{OfferedMbps: 1000, Short: &s}} })
	}
	all := Delays{P50: 200, P99: 800, Max: 900}
	carried, failed := short(Short{PerSecond: 50, Done: 100, Connect: all, Whole: all}),
		short(Short{Failed: 100})
	c := cellWith([]result.Block{carried, failed}, "a", 100, 1000)
	connect, p50, p99 := c.Device("short_connect_p99_us"), c.Device("short_whole_p50_us"), c.Device("short_whole_p99_us")
	if connect.Mean != 800 || p50.Mean != 200 || p99.Mean != 800 || p99.N != 1 {
		t.Errorf("connect p99 %+v, whole p50 %+v, p99 %+v: want those of the block that has any", connect, p50, p99)
	}
	if each, failed := c.Device("short_per_second").Mean, c.Device("short_failed").Mean; each != 25 || failed != 50 {
		t.Errorf("%v a second, %v failed a block: want 25 and 50, over both", each, failed)
	}
	if none := cellWith([]result.Block{failed, failed}, "a", 100, 1000).Device("short_whole_p50_us"); none.Mean.Known() {
		t.Errorf("all short connections failed, and their median time is %v µs: want none", none.Mean)
	}
}

// TestLoadsOfFailedBlocksCountOnce: a block failed at its second load. Its records of the first load count, because a
// resume does not measure that load again. Figures of the whole block come from the sitting that completed it.
func TestLoadsOfFailedBlocksCountOnce(t *testing.T) {
	failed := blockWith("a", 100, stretch(500, 0.9))
	failed.Error, failed.SetupSeconds = "at 1000 Mbit/s: agent ended", 7
	resumed := blockWith("a", 100, stretch(1000, 0.7))
	resumed.Sitting, resumed.SetupSeconds = 1, 2
	for mbps, jain := range map[float64]analysis.Number{500: 0.9, 1000: 0.7} {
		c := cellWith([]result.Block{failed, resumed}, "a", 100, mbps)
		if got := c.Device("jain"); got.Mean != jain || got.N != 1 {
			t.Errorf("Jain at %g Mbit/s is %v over %d blocks, want %v over 1", mbps, got.Mean, got.N, jain)
		}
		if got := c.Device("setup_seconds"); got.Mean != 2 || got.N != 1 {
			t.Errorf("set-up at %g Mbit/s is %v s over %d blocks, want 2 over 1", mbps, got.Mean, got.N)
		}
	}
}
