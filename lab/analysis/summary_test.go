package analysis_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests summarise simulated runs, whose true ratios are known. cost.Measure.Summarise computes the summary of a
// run that measured CPU costs.

// portals is a run with three devices: one cheaper than the clean router, one more expensive, and one that costs the
// same.
var portals = analysistest.Spec{
	Seed: 7,
	DUTs: []analysistest.DUT{
		{Name: "ebpf", Ratio: 0.9}, {Name: "opennds", Ratio: 2.2, Process: 0.03, PSSMiB: 9}, {Name: "same", Ratio: 1}},
	Clients: []int{20}, Offered: []float64{500, 1000}, Directions: []string{"up", "down"},
	Blocks: 8, Windows: 5, AABlocks: 6, BlockSD: 0.02, WindowSD: 0.03,
}

// find returns the cell of a device at a load in the direction up.
func find(t *testing.T, s analysis.Summary, dut string, offered float64) analysis.Cell {
	t.Helper()
	for _, c := range s.Cells {
		if c.DUT() == dut && c.Number(result.OfferedMbps) == offered && c.Text(result.Direction) == "up" {
			return c
		}
	}
	t.Fatalf("no cell for %s at %g", dut, offered)
	return analysis.Cell{}
}

// encode returns a summary as JSON.
func encode(t *testing.T, s analysis.Summary) []byte {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// between requires a number to be in a range.
func between(t *testing.T, what string, got analysis.Number, lo, hi float64) {
	t.Helper()
	if !(float64(got) >= lo && float64(got) <= hi) {
		t.Errorf("%s: got %g, want %g to %g", what, float64(got), lo, hi)
	}
}

// TestKnownTruth: the intervals of portals contain the true ratios, and the verdicts are right.
func TestKnownTruth(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(portals), analysis.Options{})
	if len(s.Cells) != 12 || s.Cells[0].Text(result.Direction) != "up" || s.Cells[0].DUT() != "ebpf" {
		t.Fatalf("%d cells, first %+v", len(s.Cells), s.Cells[0])
	}
	if len(s.Warnings) != 0 {
		t.Errorf("warnings on a good run: %q", s.Warnings)
	}
	for dut, want := range map[string]struct {
		ratio   float64
		verdict string
	}{"ebpf": {0.9, analysis.Different}, "opennds": {2.2, analysis.Different}, "same": {1, analysis.Equivalent}} {
		c := find(t, s, dut, 1000)
		r := c.Change(cost.PerBit)
		if float64(r.Lo) > want.ratio || float64(r.Hi) < want.ratio || r.N != 8 || c.Pairs != 40 || c.Blocks != 8 {
			t.Errorf("%s: ratio %+v of %d pairs, true %g", dut, r, c.Pairs, want.ratio)
		}
		if c.Verdict != want.verdict {
			t.Errorf("%s: verdict %s (%s), want %s", dut, c.Verdict, c.VerdictNote, want.verdict)
		}
	}
	if s.AA.Pairs != 120 || s.AA.Blocks != 12 || s.AA.Ratio.Lo > 1 || s.AA.Ratio.Hi < 1 {
		t.Errorf("noise floor %+v", s.AA)
	}
	between(t, "sd of A/A", s.AA.SDLog, 0.01, 0.04)
}

// TestFigures compares each figure with the cost model of the simulation.
func TestFigures(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(portals), analysis.Options{})
	c := find(t, s, "opennds", 1000)
	between(t, "clean CPU, % of a core", c.Clean(cost.CPU).Mean, 7.2, 8.9)
	between(t, "CPU, % of a core", c.Device(cost.CPU).Mean, 15.8, 19.6)
	between(t, "CPU, % of the machine", c.Device("cpu_machine_pct").Mean, 7.9, 9.8)
	between(t, "normalised over sampled", c.Device(cost.Normalised).Mean/c.Device(cost.CPU).Mean, 1/1.0461, 1/1.0459)
	between(t, "increase, %", c.Device("increase_pct").Mean, 100, 140)
	between(t, "clean ns a packet", c.Clean("ns_per_packet").Mean, 0.9*882, 1.1*882)
	between(t, "machine busy, %", c.Device("machine_busy_pct").Mean, 24.99, 25.01)
	between(t, "processes' share", c.Device("process_core_pct").Mean/c.Device(cost.CPU).Mean, 0.0299, 0.0301)
	between(t, "meter, % of a core", c.Device("meter_core_pct").Mean, 0.0449, 0.0451)
	between(t, "daemon, % of a core", c.Device("daemon_core_pct").Mean, 0.3599, 0.3601)
	between(t, "login of all, s", c.Device("login_seconds").Mean, 0.399, 0.401)
	between(t, "login p99, ms", c.Device("login_p99_ms").Mean, 20, 22)
	between(t, "lease, s", c.Device("lease_seconds").Mean, 0.599, 0.601)
	between(t, "RTT p50", c.Device("rtt_p50_median_us").Mean, 126, 136)
	between(t, "RTT p99 over p50", c.Device("rtt_p99_median_us").Mean/c.Device("rtt_p50_median_us").Mean, 5.99, 6.01)
	between(t, "PSS", c.Device("pss_mib").Mean, 9, 9)
	if c.Device("setup_seconds").N != 8 {
		t.Errorf("set-up of %d blocks", c.Device("setup_seconds").N)
	}
}

// TestIntervalIsOverBlocks: many windows in few blocks do not narrow an interval.
func TestIntervalIsOverBlocks(t *testing.T) {
	trial := func(block, window int, ratio float64) result.Trial {
		m := func(ns int64) cost.Measurement {
			return cost.Measurement{Seconds: 1, NAPINs: ns, DeliveredMbps: 100, LinkMbps: 104, Packets: 1000}
		}
		return result.Trial{
			Cell: result.NewCell(result.DUT, "x", result.Clients, 1, result.OfferedMbps, 100), Block: block, Window: window,
			Accepted: true,
			Figures:  &cost.Sides{DUT: m(int64(ratio * 1e6)), Clean: m(1e6)},
		}
	}
	var run result.Run
	for window := range 100 {
		run.Trials = append(run.Trials, trial(0, window, 1.5))
	}
	run.Trials = append(run.Trials, trial(1, 0, 2))
	c := (cost.Measure{}).Summarise(run, analysis.Options{}).Cells[0]
	// Two blocks: log means ln 1.5 and ln 2 weigh the same whatever their windows;
	// half-width is t(0.975, 1) = 12.7062 times (ln 2 - ln 1.5)/2.
	half := 12.706204736174694 * math.Log(2/1.5) / 2
	centre := math.Log(3) / 2
	between(t, "mean", c.Change(cost.PerBit).Mean, math.Exp(centre)*0.999999, math.Exp(centre)*1.000001)
	between(t, "lo", c.Change(cost.PerBit).Lo, math.Exp(centre-half)*0.999999, math.Exp(centre-half)*1.000001)
	between(t, "hi", c.Change(cost.PerBit).Hi, math.Exp(centre+half)*0.999999, math.Exp(centre+half)*1.000001)
}

// TestCoverage simulates 2000 cells with a known ratio and noise in blocks and windows. About 95 % of the intervals
// must contain the ratio: 1900, give or take 4 standard deviations (39).
func TestCoverage(t *testing.T) {
	const simulations, truth = 2000, 1.7
	rng := rand.New(rand.NewPCG(42, 0))
	covered := 0
	for range simulations {
		spec := analysistest.Spec{
			Seed: rng.Uint64(), DUTs: []analysistest.DUT{{Name: "x", Ratio: truth}}, Clients: []int{1}, Offered: []float64{500},
			Blocks: 6, Windows: 4, BlockSD: 0.04, WindowSD: 0.05,
		}
		r := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}).Cells[0].Change(cost.PerBit)
		if r.Lo <= truth && truth <= r.Hi {
			covered++
		}
	}
	t.Logf("%d of %d intervals hold the truth", covered, simulations)
	if covered < 1861 || covered > 1939 {
		t.Errorf("%d of %d intervals hold the truth", covered, simulations)
	}
}

// BenchmarkSummarise10k is a run of about 10,000 trials.
func BenchmarkSummarise10k(b *testing.B) {
	spec := portals
	spec.Clients, spec.Offered = []int{1, 10, 50, 100}, []float64{100, 200, 400, 800, 1000}
	spec.Blocks, spec.AABlocks = 13, 11
	run := analysistest.Run(spec)
	for b.Loop() {
		(cost.Measure{}).Summarise(run, analysis.Options{})
	}
	b.ReportMetric(float64(len(run.Trials)), "trials")
}

// TestDeterministic: the same run gives the same summary, byte for byte.
func TestDeterministic(t *testing.T) {
	run := analysistest.Run(portals)
	first := encode(t, (cost.Measure{}).Summarise(run, analysis.Options{}))
	for range 3 {
		if again := encode(t, (cost.Measure{}).Summarise(run, analysis.Options{})); !bytes.Equal(first, again) {
			t.Fatal("the same run gave two summaries")
		}
	}
}

// hardCase is a faulty run with a check of its summary.
type hardCase struct {
	name  string
	run   result.Run
	check func(*testing.T, analysis.Summary)
}

// checkCases summarises each run, writes the summary as JSON and checks it.
func checkCases(t *testing.T, cases []hardCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := (cost.Measure{}).Summarise(tt.run, analysis.Options{})
			encode(t, s)
			tt.check(t, s)
		})
	}
}

// TestFewTrials: runs without accepted trials, with repeated trials and with one block have what they can have.
func TestFewTrials(t *testing.T) {
	oneBlock := portals
	oneBlock.Blocks = 1
	rejected := portals
	rejected.RejectEvery = 1
	redone := portals
	redone.RejectEvery = 3
	checkCases(t, []hardCase{
		{"nothing at all", result.Run{}, func(t *testing.T, s analysis.Summary) {
			warned(t, s, "No trial was accepted")
		}},
		{"only rejected", analysistest.Run(rejected), func(t *testing.T, s analysis.Summary) {
			c := find(t, s, "opennds", 500)
			if c.Pairs != 0 || c.Rejected != 40 || c.Verdict != analysis.Inconclusive || c.Change(cost.PerBit).Mean.Known() ||
				c.Device(cost.Delivered).Mean.Known() {
				t.Errorf("cell %+v", c)
			}
			if len(c.Rejects) != 1 || c.Rejects[0].Count != 40 {
				t.Errorf("reasons %+v", c.Rejects)
			}
			warned(t, s, "No trial was accepted")
		}},
		{"redone", analysistest.Run(redone), func(t *testing.T, s analysis.Summary) {
			c := find(t, s, "opennds", 500)
			if c.Pairs != 40 || c.Rejected == 0 || c.Redone != c.Rejected || s.Trials.Redone != s.Trials.Rejected {
				t.Errorf("%d pairs, %d rejected, %d redone", c.Pairs, c.Rejected, c.Redone)
			}
		}},
		{"one block", analysistest.Run(oneBlock), func(t *testing.T, s analysis.Summary) {
			c := find(t, s, "same", 500)
			if c.Change(cost.PerBit).HasInterval() || !c.Change(cost.PerBit).Mean.Known() ||
				c.Verdict != analysis.Inconclusive || c.BlocksNeeded == nil {
				t.Errorf("cell %+v", c)
			}
			warned(t, s, "One block only")
			if !strings.Contains(string(encode(t, s)), `"lo":null,"hi":null,"n":1`) {
				t.Error("absent bounds are not null")
			}
		}},
	})
}

// TestOddRuns: runs with a device at its limit, with labs that take turns, without delivered data, and cut short.
func TestOddRuns(t *testing.T) {
	saturated := portals
	saturated.DUTs = []analysistest.DUT{{Name: "chilli", Ratio: 5, MaxMbps: 770}}
	solo := portals
	solo.Mode = result.ModeSolo
	checkCases(t, []hardCase{
		{"saturated", analysistest.Run(saturated), func(t *testing.T, s analysis.Summary) {
			c := find(t, s, "chilli", 1000)
			if !c.Flagged(result.FlagSaturated) || !c.Flagged(cost.FlagShortfall) ||
				find(t, s, "chilli", 500).Flagged(result.FlagSaturated) {
				t.Errorf("flags %+v", c.Flags)
			}
			between(t, "ratio", c.Change(cost.PerBit).Mean, 4.8, 5.2)
			warned(t, s, "normalised CPU is an extrapolation")
		}},
		{"solo", analysistest.Run(solo), func(t *testing.T, s analysis.Summary) {
			if s.Mode != "solo" || find(t, s, "opennds", 500).Verdict != analysis.Different {
				t.Errorf("mode %s", s.Mode)
			}
		}},
		{"nothing delivered", dead(), func(t *testing.T, s analysis.Summary) {
			if c := find(t, s, "opennds", 500); !c.Flagged(analysis.FlagNoRatio) || c.Change(cost.PerBit).Mean.Known() ||
				c.Pairs != 40 {
				t.Errorf("cell %+v", c)
			}
		}},
		{"skipped, failed, interrupted, torn", troubled(), func(t *testing.T, s analysis.Summary) {
			if len(s.Skipped) != 1 || len(s.FailedBlocks) != 1 {
				t.Errorf("skipped %v, failed %v", s.Skipped, s.FailedBlocks)
			}
			warned(t, s, "interrupted")
			warned(t, s, "cut short")
			warned(t, s, "same lab in every block")
		}},
	})
}

// dead makes a run whose device forwarded nothing.
func dead() result.Run {
	run := analysistest.Run(portals)
	for i := range run.Trials {
		cost.SidesOf(run.Trials[i]).DUT = cost.Measurement{Seconds: 2}
	}
	return run
}

// troubled makes a run with valid trials, an interruption, a torn record, a skipped device and a failed block.
func troubled() result.Run {
	run := analysistest.Run(portals)
	run.Environment.Interrupted, run.Torn = true, 12
	run.Skipped = []result.Skip{{DUT: "coovachilli", Reason: "chilli is not on PATH"}}
	run.Blocks = append(run.Blocks, result.Block{DUT: "pppoe", Clients: 3, Error: "start: no PADO within 5 s"})
	for i := range run.Trials {
		run.Trials[i].DUTLab = "a"
	}
	return run
}

// warned requires a summary to have a warning that contains about.
func warned(t *testing.T, s analysis.Summary, about string) {
	t.Helper()
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, about) }) {
		t.Errorf("no warning about %q in %q", about, s.Warnings)
	}
}

// TestBiasedNoiseFloor: a summary warns when the clean routers differ from each other.
func TestBiasedNoiseFloor(t *testing.T) {
	run := analysistest.Run(portals)
	for i := range run.Trials {
		if run.Trials[i].AA {
			cost.SidesOf(run.Trials[i]).DUT.NAPINs += cost.SidesOf(run.Trials[i]).DUT.NAPINs / 5
		}
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	warned(t, s, "Two clean routers differ")
}

// FuzzSummarise: the summary of any records is valid JSON and the same each time.
func FuzzSummarise(f *testing.F) {
	f.Add(1e308, 1e308, int64(math.MaxInt64), int64(1), 0.0, true)
	f.Add(-1.0, 1e-320, int64(-5), int64(math.MinInt64), 1e300, true)
	f.Add(500.0, 2.0, int64(1e9), int64(1e8), 500.0, false)
	f.Fuzz(func(t *testing.T, mbps, seconds float64, ns, packets int64, offered float64, accepted bool) {
		for _, v := range []float64{mbps, seconds, offered} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return // cannot come out of JSON
			}
		}
		m := cost.Measurement{
			Seconds: seconds, NAPINs: ns, ProcessNs: packets, Packets: packets, Drops: ns, DeliveredMbps: mbps, LinkMbps: mbps,
			PSSMiB: mbps, RTT: result.RTT{P50: mbps, P99: seconds}, MeterNs: ns,
		}
		clean := m
		clean.NAPINs = ns/2 + 1
		var run result.Run
		run.Environment.CPUs = int(packets % 64)
		for block := range 3 {
			m.DeliveredMbps /= 2
			run.Trials = append(run.Trials, result.Trial{
				Cell: result.NewCell(result.DUT, "x", result.OfferedMbps, offered), Block: block, Accepted: accepted || block > 0,
				AA: block == 2, Figures: &cost.Sides{DUT: m, Clean: clean},
			})
			run.Blocks = append(run.Blocks, result.Block{
				DUT: "x", Figures: &cost.Stay{LoginMs: []float64{mbps, seconds}, DaemonCore: mbps}})
		}
		first := encode(t, (cost.Measure{}).Summarise(run, analysis.Options{}))
		if !json.Valid(first) || !bytes.Equal(first, encode(t, (cost.Measure{}).Summarise(run, analysis.Options{}))) {
			t.Errorf("summary %s", first)
		}
	})
}
