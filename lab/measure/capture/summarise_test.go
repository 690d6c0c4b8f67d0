package capture

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
)

// recordOf returns the record of an accepted trial after change. Of 1010 frames due, 1000 were sent, 990 passed the
// capture interface and 980 reached the sink. One program took 792 and lost 99, and the other took all.
func recordOf(block int, change func(*Trial)) result.Entry {
	n := int64(980)
	t := &Trial{
		Cell:     result.NewCell(result.DUT, "tcpdump", result.OfferedMbps, 100, result.FrameSize, "imix"),
		Intended: 1010, Offered: 1000, Passed: 990, Forwarded: &n, SendSeconds: 2, LoadSeconds: 2, CPUs: 0.5,
		NAPINs: 2e8, ProcessNs: 1e8, SettledNs: 396e6, RouterShare: 0.5, Background: 0.1,
		Programs: []dut.Captured{{Program: "tcpdump", Frames: 792, Dropped: 99, Waiting: 19}, {Program: "tcpdump 2",
			Frames: 990, Dropped: dut.Unknown}},
	}
	t.Block, t.Accepted, t.Seconds, t.Start = block, true, 3, time.Unix(int64(block), 0)
	change(t)
	return result.Entry{Head: t.Head, Cell: t.Cell, Record: t}
}

// TestFigures: all metrics of recordOf's counts. They tell where frames were lost. CPU is a percentage of the CPU time
// that the host has.
func TestFigures(t *testing.T) {
	none := func(*Trial) {}
	s := Measure{}.Summarise(
		result.Run{MeasureRecords: []result.Entry{recordOf(0, none), recordOf(1, none)}}, analysis.Options{})
	if len(s.Cells) != 1 || s.Cells[0].Pairs != 2 {
		t.Fatalf("%+v, want one cell of two trials", s.Cells)
	}
	c := s.Cells[0]
	for name, want := range map[string]float64{
		"captured_pct": 90, "captured_offered_pct": 89.1, "dropped_pct": 10, "waiting_pct": 100 * 19.0 / 990,
		"unexplained_pct": 100 * 80.0 / 990, "link_loss_pct": 1, "loss_pct": 2, "offered_pct": 100.0 * 1000 / 1010,
		"busy_pct": 50, "core_pct": 15, "napi_core_pct": 10, "process_core_pct": 5, "background_core_pct": 10,
		"ns_per_frame": 4e5, "kframes_per_second": 0.495, "router_share_pct": 50,
	} {
		if got := float64(c.Device(name).Mean); math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if len(Metrics) != 16 {
		t.Errorf("%d metrics: some are not tested", len(Metrics))
	}
	if !c.Flagged(FlagDisagree) || c.Flagged(FlagKilled) {
		t.Errorf("flags %v: 8 %% of the frames are unexplained, and nothing was killed", c.Flags)
	}
}

// TestLoadsBeyondTheMachine: one warning names the loads that blocks left out because the generator needs the second
// CPU. Rejected trials at these loads are counted as left out, and not as a sign that the machine was not quiet.
// Accepted trials at these loads, and rejected ones at other loads, are counted as usual.
func TestLoadsBeyondTheMachine(t *testing.T) {
	at := func(block int, mbps float64, accepted bool) result.Entry {
		return recordOf(block, func(r *Trial) {
			r.Cell = result.NewCell(result.DUT, "tcpdump", result.OfferedMbps, mbps, result.FrameSize, "imix", CPUs, 2)
			if r.Accepted = accepted; !accepted {
				r.Rejects = []string{"waited for the second CPU"}
			}
		})
	}
	const loads = 4
	run := result.Run{
		MeasureRecords: []result.Entry{at(0, 100, true), at(1, 100, false), at(1, 100, true), at(1, 400, true)}}
	for block, from := range []int{400, 500} {
		b := result.Block{Block: block}
		for i := range loads {
			l := at(block, float64(from+100*i), false)
			b.LeftOut = append(b.LeftOut, l.Cell)
			run.MeasureRecords = append(run.MeasureRecords, l)
		}
		run.Blocks = append(run.Blocks, b)
	}
	s := Measure{}.Summarise(run, analysis.Options{})
	if want := (analysis.Counts{Accepted: 3, Rejected: 1, LeftOut: 2 * loads}); s.Trials != want || len(s.Cells) != 2 {
		t.Errorf("counted %+v in %d cells, want %+v in two", s.Trials, len(s.Cells), want)
	}
	said := 0 // warnings of the second CPU
	for _, w := range s.Warnings {
		if strings.Contains(w, "quiet") || strings.Contains(w, "were rejected") {
			t.Errorf("warned: %s", w)
		}
		if strings.Contains(w, "second CPU") {
			said++
			if !strings.Contains(w, "from 400 Mbit/s on (2 blocks)") {
				t.Errorf("said: %s", w)
			}
		}
	}
	if said != 1 {
		t.Errorf("said %d times what was left out: %q", said, s.Warnings)
	}
	run.MeasureRecords = slices.DeleteFunc(run.MeasureRecords, func(l result.Entry) bool { return l.Accepted })
	if s = (Measure{}).Summarise(run, analysis.Options{}); !strings.Contains(strings.Join(s.Warnings, " "), "second CPU") {
		t.Errorf("without an accepted trial: %q", s.Warnings)
	}
}

// TestUnknownStaysUnknown: a count that no program reported gives no figure and no flag. Without a sink, the loss is
// that up to the capture interface.
func TestUnknownStaysUnknown(t *testing.T) {
	for name, programs := range map[string][]dut.Captured{
		"no program": nil, "killed": {{Frames: dut.Unknown, Dropped: dut.Unknown, Ended: "killed"}},
		"silent": {{Frames: 990, Dropped: dut.Unknown}},
		"exact":  {{Frames: 870, Dropped: 100, Waiting: 20}},
	} {
		s := Measure{}.Summarise(result.Run{MeasureRecords: []result.Entry{recordOf(0, func(r *Trial) {
			r.Forwarded, r.Programs = nil,
				programs
		})}}, analysis.Options{})
		c := s.Cells[0]
		if lost := float64(c.Device("loss_pct").Mean); math.Abs(lost-1) > 1e-9 ||
			c.Device("dropped_pct").Mean.Known() != (name == "exact") {
			t.Errorf("%s: loss %v, dropped %v", name, c.Device("loss_pct").Mean, c.Device("dropped_pct").Mean)
		}
		if took := name == "silent" || name == "exact"; c.Device("captured_pct").Mean.Known() != took {
			t.Errorf("%s: captured %v", name, c.Device("captured_pct").Mean)
		}
		if waits := float64(c.Device("waiting_pct").Mean); name == "exact" && math.Abs(waits-100*20.0/990) > 1e-9 ||
			c.Flagged(FlagWaiting) != (name == "exact") {
			t.Errorf("%s: waiting %g, flags %v", name, waits, c.Flags)
		}
		if c.Flagged(FlagDisagree) || c.Flagged(FlagKilled) != (name == "killed") {
			t.Errorf("%s: flags %v", name, c.Flags)
		}
	}
}
