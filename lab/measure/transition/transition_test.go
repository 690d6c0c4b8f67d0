package transition

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// The tests of this file check the measure "transition": how long probes take through two gateways with a tunnel.
// "clean" is the direct path without a tunnel, to which devices are compared.

// catalogue returns a catalogue of the measures "cost" and "transition" and two topologies.
func catalogue() experiment.Catalogue {
	rules := Measure{}.Rules()
	return experiment.Catalogue{
		Measures:   []experiment.Measure{cost.Measure{}.Rules(), rules},
		Topologies: []experiment.Topology{{Name: "portal", Roles: rules.Roles}, {Name: Topology, Roles: rules.Roles}},
	}
}

// plain is the beginning of an experiment, in four lines; a test adds keys from line 5 on.
const plain = "measure = \"transition\"\nduts = [\"clean\"]\nclients = [1]\nblocks = 1\n"

// parse parses the experiment plain with further keys.
func parse(t *testing.T, text string) *experiment.Experiment {
	t.Helper()
	e, err := catalogue().Parse("x.toml", []byte(plain+text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestPlan: each share and kind of background work on the gateways has its own blocks. A share of 0 has no kind, so it
// has one block.
func TestPlan(t *testing.T) {
	e := parse(t, "offered_mbps = [10, 90]\ngateways_busy_pct = [0, 70]\n"+
		"gateways_busy_by = [\"program\", \"real-time\"]\n")
	var got []string
	for _, b := range e.Plan() {
		got = append(got, strings.TrimSpace(b.Cell.Text(result.BackgroundPct)+" "+b.Cell.Text(BackgroundKind)))
		if len(b.Cells) != 3 || b.AA || e.Topology != Topology {
			t.Errorf("%v in topology %q: want no background and two loads of a lab that stands alone", b.Cells, e.Topology)
		}
	}
	slices.Sort(got)
	if want := []string{"0", "70 program", "70 real-time"}; !slices.Equal(got, want) {
		t.Errorf("blocks: %q, want %q", got, want)
	}
}

// TestRefusals: bad keys are refused with file, line and key.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"one router":      {"topology = \"portal\"\n", `x.toml:5: topology: "portal" has one router`},
		"iperf3":          {"[traffic]\nkind = \"iperf3\"\n", "x.toml:6: traffic.kind"},
		"nothing":         {"without_background = false\n", "x.toml:5: without_background"},
		"slow and busy":   {"gateways_busy_pct = [50]\n[router]\nspeed = 0.5\n", "x.toml:5: gateways_busy_pct"},
		"busy by nothing": {"gateways_busy_by = [\"real-time\"]\n", "x.toml:5: gateways_busy_by"},
		"all of the CPU":  {"gateways_busy_pct = [100]\n", "x.toml:5: gateways_busy_pct"},
		"few probes":      {"probes = 1\n", "x.toml:5: probes"},
	} {
		if _, err := catalogue().Parse("x.toml", []byte(plain+c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// steps runs an experiment with a device, and returns the records of its steps.
func steps(t *testing.T, dut, text string) []*Step {
	t.Helper()
	e, err := catalogue().Parse("x.toml", []byte(strings.Replace(plain, "clean", dut, 1)+text))
	if err != nil {
		t.Fatal(err)
	}
	run, _ := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	return result.RecordsOf[Step](run.MeasureRecords)
}

// TestDirectPath: probes cross both gateways, and the counts and times of their steps add up.
func TestDirectPath(t *testing.T) {
	list := steps(t, "clean", "probes = 40\nprobe_gap_us = 2000\nredo = 0\noffered_mbps = [10]\nwarmup = \"100ms\"\n")
	if len(list) != 2 {
		t.Fatalf("%d steps, want one without background and one with", len(list))
	}
	for _, s := range list {
		for name, e := range map[string]Ends{"hosts": s.Hosts, "gateways": s.Gateways} {
			if e.Counts.Sent != 40 || e.OuterBytes != 0 || e.ClockErrorNs <= 0 {
				t.Errorf("%v, %s: %+v, packets of %d bytes, clock error %d ns", s.Cell, name, e.Counts, e.OuterBytes,
					e.ClockErrorNs)
			}
		}
		var sum float64
		for _, part := range []string{Send, ToEnter, Enter, Cross, Leave, ToHost, Receive} {
			sum += s.Hosts.Parts[part].Mean
		}
		if way := s.Hosts.Parts[Way]; s.Hosts.Counts.Unmatched+s.Hosts.Counts.Unstamped == 0 && way.Count > 0 &&
			math.Abs(sum-way.Mean) > 0.1 {
			t.Errorf("%v: the parts add up to %.2f µs, the way takes %.2f µs", s.Cell, sum, way.Mean)
		}
		for _, part := range []string{Down, Link, Up} {
			if d := s.Gateways.Parts[part]; s.Gateways.Counts.Lost == 0 &&
				(d.Count == 0 || d.Min <= 0 || d.Min > d.P50 || d.P50 > d.P99 || d.P99 > d.Max) {
				t.Errorf("%v: %s is %+v", s.Cell, part, d)
			}
		}
		if loaded := s.Cell.Number(result.OfferedMbps) > 0; loaded != (s.DeliveredMbps > 0) || s.EnterCPU.NAPINs == 0 ||
			s.LeaveCPU.NAPINs == 0 {
			t.Errorf("%v: %.1f Mbit/s delivered, polling took %d and %d ns", s.Cell, s.DeliveredMbps, s.EnterCPU.NAPINs,
				s.LeaveCPU.NAPINs)
		}
	}
}

// TestTCPBackground: the bytes of a background load over TCP are counted apart from the probes, and so is the CPU time
// of other work on the gateways.
func TestTCPBackground(t *testing.T) {
	list := steps(t, "other", "probes = 20\nprobe_gap_us = 2000\nredo = 0\noffered_mbps = [10]\n"+
		"without_background = false\nwarmup = \"100ms\"\ntraffic.protocol = \"tcp\"\ngateways_busy_pct = [30]\n"+
		"[dut.other]\ntunnel = true\nstart = \"true\"\nproof = \"echo of another kind; exit 3\"\n")
	if len(list) != 1 {
		t.Fatalf("%d steps, want one", len(list))
	}
	s := list[0]
	if s.DeliveredMbps <= 0 || s.Segments <= 0 || s.Retransmits > s.Segments || s.Hosts.Counts.Sent != 20 {
		t.Errorf("%.1f Mbit/s came, of %d segments %d were sent again; probes: %+v", s.DeliveredMbps, s.Segments,
			s.Retransmits, s.Hosts.Counts)
	}
	if s.Background <= 0 || s.Background > 0.5 {
		t.Errorf("other work had %g CPUs, want about 0.3", s.Background)
	}
	if !slices.Contains(s.Rejects, "device: of another kind") {
		t.Errorf("rejected for %q, want the reason of the device's proof", s.Rejects)
	}
	s.Hosts.Resent = 3
	sent := []bench.Endpoint{{Meter: meter.Sample{SNMP: meter.SNMP{TCPOutSegs: 130, TCPRetrans: 7}}}}
	s.addBackground(bench.Snapshot{Clients: make([]bench.Endpoint, 1)}, bench.Snapshot{Clients: sent})
	if s.Segments != 110 || s.Retransmits != 4 {
		t.Errorf("of 130 segments with 20 probes, of which 3 were sent again: %d and %d", s.Segments, s.Retransmits)
	}
}

// step returns the record of an accepted step under a load of mbps Mbit/s. Each part of the path takes 0.9, 1 and 1.1
// times us (µs), in three probes. Of the load, delivered Mbit/s arrived. n counts the probes of each run.
func step(dut string, block int, mbps, us, delivered float64, n transition.Counts) result.Entry {
	parts := func(names ...string) map[string]transition.Distribution {
		out := map[string]transition.Distribution{}
		for _, name := range names {
			out[name] = transition.Distribute([]int64{int64(us * 900), int64(us * 1000), int64(us * 1100)})
		}
		return out
	}
	s := &Step{Cell: result.NewCell(result.DUT, dut, result.Clients, 1, result.OfferedMbps, mbps), LoadSeconds: 1,
		DeliveredMbps: delivered,
		Hosts:         Ends{Counts: n, Parts: parts(Send, ToEnter, Enter, Cross, Leave, ToHost, Receive, Way)},
		Gateways:      Ends{Counts: n, Parts: parts(Late, Down, Link, Up)}, Segments: 200, Retransmits: 3}
	s.Block, s.Accepted = block, true
	return result.Entry{Head: s.Head, Cell: s.Cell, Record: s}
}

// TestSummary: a device's times are divided by the direct path's times of the same block, and flags name the weaknesses
// of a cell.
func TestSummary(t *testing.T) {
	all, some := transition.Counts{Sent: 100}, transition.Counts{Sent: 100, Unmatched: 40, Resent: 10}
	s := Measure{}.Summarise(result.Run{MeasureRecords: []result.Entry{
		step(experiment.Clean, 0, 90, 10, 90, all), step("vpn", 0, 90, 20, 50, some),
		step(experiment.Clean, 1, 90, 20, 90, all), step("vpn", 1, 90, 60, 50, some),
	}}, analysis.Options{Confidence: 0.95})
	if len(s.Cells) != 2 || s.Cells[0].DUT() != experiment.Clean {
		t.Fatalf("%v, want the direct path and then the device", s.Cells)
	}
	c := s.Cells[1]
	for name, want := range map[string]float64{RatioOf(Up): 2.5, MetricOf(Up, "p50"): 40, MetricOf(Enter, "max"): 44,
		"kept_pct": 90, "resent_pct": 10, "unmatched_pct": 40, MetricOf(Late, "p50"): 40, ResentBackground: 1.5} {
		if got := float64(c.Device(name).Mean); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !c.Flagged(FlagShort) || !c.Flagged(FlagUnmatched) || s.Cells[0].Flagged(FlagShort) ||
		s.Cells[0].Device(RatioOf(Up)).Mean.Known() {
		t.Errorf("flags: %v and %v", s.Cells[0].Flags, c.Flags)
	}
	curve := c.Curves[Up]
	if len(curve) == 0 || curve[len(curve)-1].SharePct != 100 {
		t.Errorf("the distribution ends at %v", curve)
	}
}

// TestOverallQuotient: the overall ratio of a block is the geometric mean of the ratios at all its loads up to the
// study's highest, 90 Mbit/s. A block that lacks one of these loads has none.
func TestOverallQuotient(t *testing.T) {
	n := transition.Counts{Sent: 100}
	s := Measure{}.Summarise(result.Run{MeasureRecords: []result.Entry{
		step(experiment.Clean, 0, 10, 10, 10, n), step("vpn", 0, 10, 20, 10, n),
		step(experiment.Clean, 0, 90, 20, 90, n), step("vpn", 0, 90, 160, 90, n),
		step(experiment.Clean, 0, 500, 10, 500, n), step("vpn", 0, 500, 9000, 500, n),
		step(experiment.Clean, 1, 10, 10, 10, n), step("vpn", 1, 10, 990, 10, n),
	}}, analysis.Options{Confidence: 0.95})
	for _, c := range s.Cells {
		e, known := c.Device(OverallOf(Up)), c.DUT() == "vpn" && c.Number(result.OfferedMbps) <= OverallMost
		if e.Mean.Known() != known || known && (math.Abs(float64(e.Mean)-4) > 1e-9 || e.N != 1) {
			t.Errorf("%v: %+v, want √(2 × 8) of one block: %t", c.Cell, e, known)
		}
	}
}

// TestOverallOfWholeBlocks: the device "some" has one load in each of two blocks, and "resumed" has a block whose
// second load a later sitting added. Such parts of blocks are not put together: only a block with all loads of one
// sitting counts.
func TestOverallOfWholeBlocks(t *testing.T) {
	n := transition.Counts{Sent: 100}
	lines := []result.Entry{
		step(experiment.Clean, 0, 10, 10, 10, n), step(experiment.Clean, 0, 50, 10, 50, n),
		step(experiment.Clean, 1, 10, 10, 10, n), step(experiment.Clean, 1, 50, 10, 50, n),
		step("some", 0, 10, 20, 10, n), step("some", 1, 50, 30, 50, n),
		step("resumed", 0, 10, 20, 10, n), step("resumed", 0, 50, 20, 50, n), step("resumed", 1, 10, 30, 10, n),
		step("resumed", 1, 50, 40, 50, n),
	}
	later := lines[len(lines)-1].Record.(*Step)
	later.Sitting = 1
	lines[len(lines)-1].Head.Sitting = 1
	s := Measure{}.Summarise(result.Run{MeasureRecords: lines}, analysis.Options{Confidence: 0.95})
	for _, c := range s.Cells {
		e, whole := c.Device(OverallOf(Up)), c.DUT() == "resumed"
		if e.Mean.Known() != whole || whole && (math.Abs(float64(e.Mean)-2) > 1e-9 || e.N != 1) {
			t.Errorf("%v: %+v, want 2 of one block: %t", c.Cell, e, whole)
		}
	}
}
