package throughput

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// catalogue returns a catalogue of the measures "cost" and "throughput" and one topology.
func catalogue() experiment.Catalogue {
	return experiment.Catalogue{Measures: []experiment.Measure{cost.Measure{}.Rules(), Measure{}.Rules()},
		Topologies: []experiment.Topology{{Name: "portal", Roles: Measure{}.Rules().Roles}}}
}

// plainExperiment is the beginning of an experiment; a test adds keys and the definition of the device "gate".
const plainExperiment = "measure = \"throughput\"\nduts = [\"clean\", \"gate\"]\nclients = [4]\n"

// TestPlan: a block is one search of one device at one frame size, in a lab of its own.
func TestPlan(t *testing.T) {
	e, err := catalogue().Parse(
		"x.toml", []byte(plainExperiment+"frame_sizes = [64, \"imix\"]\nblocks = 2\n[dut.gate]\nstart = \"true\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := e.Plan()
	if len(blocks) != 2*2*2 {
		t.Fatalf("%d blocks, want two devices, the clean router among them, at two sizes, twice", len(blocks))
	}
	seen := map[string]int{}
	for _, b := range blocks {
		seen[b.DUT()+" "+b.Cell.Text(result.FrameSize)]++
		if len(b.Cells) != 1 || b.AA || b.DUTLab != "a" {
			t.Errorf("%+v: want one search of a lab that stands alone", b)
		}
	}
	for _, want := range []string{"clean 64", "clean imix", "gate 64", "gate imix"} {
		if seen[want] != 2 {
			t.Errorf("%s is searched %d times, want 2", want, seen[want])
		}
	}
}

// TestRefusals: bad keys are refused with file, line and key.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"streams":       {"traffic = { kind = \"streams\" }\n", `x.toml:4: traffic.kind: "streams"`},
		"short trials":  {"window = \"100ms\"\n", "x.toml:4: window: "},
		"a loss of all": {"loss_ratios = [1]\n", "x.toml:4: loss_ratios"},
		"too many macvlan clients": {
			"blocks = 1\n", `x.toml:3: clients: 251: clients of kind "macvlan" go up to 250 with measure = "throughput"`},
		"too many veth clients": {
			"client = { kind = \"veth\" }\n", `x.toml:3: clients: 251: clients of kind "veth" go up to 250`},
		"a load that is given": {"offered_mbps = [1]\n", "x.toml:4: offered_mbps"},
	} {
		text := plainExperiment
		if strings.Contains(c.want, "clients:") {
			text = strings.Replace(plainExperiment, "[4]", "[4, 251]", 1)
		}
		_, err := catalogue().Parse("x.toml", []byte(text+c.text+"[dut.gate]\nstart = \"true\"\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestDurationBounds compares the bounds with the time that searches took on two cores, some with trials that lost
// nothing and some with repeated trials.
func TestDurationBounds(t *testing.T) {
	for name, c := range map[string]struct {
		keys string
		took time.Duration
	}{
		"12 trials, 9 of them void":         {"window = \"300ms\"\n", 11 * time.Second},
		"51 trials, 44 of them void":        {"window = \"1s\"\n", 80 * time.Second},
		"23 trials of up to 2 s, none void": {"window = \"2s\"\n", 41 * time.Second},
	} {
		e, err := catalogue().Parse("x.toml", []byte(
			"measure = \"throughput\"\nduts = [\"clean\"]\nclients = [4]\nframe_sizes = [60]\nblocks = 1\n"+c.keys))
		if err != nil {
			t.Fatal(err)
		}
		least, most := e.DurationBounds()
		if expected := e.EstimatedDuration(); c.took < least || c.took > most || expected < least || expected > most {
			t.Errorf("%s: %v is expected, between %v and %v, and it took %v", name, expected, least, most, c.took)
		}
	}
}

// TestFiguresAreOfTheirGoals: metrics of a goal are means over the searches of a cell. If a search found no upper
// bound, because the generator's limit came first, the highest figure counts, and the cell is flagged.
func TestFiguresAreOfTheirGoals(t *testing.T) {
	// search found ndr thousand frames a second without loss (no-drop rate) and pdr with at most 0.5 % loss (partial drop
	// rate). upper is the upper bound of pdr; 0: none.
	search := func(ndr, pdr, upper float64) result.Entry {
		s := &Search{DUT: "gate", Clients: 4, Direction: result.Up, Profile: result.PerPacket, FrameSize: "imix",
			Goals: []Goal{
				{LossRatio: 0, LowerKpps: ndr, ThroughputKpps: ndr, UpperKpps: ndr * 1.01, RouterCorePct: 90},
				{LossRatio: 0.005, LowerKpps: pdr, ThroughputKpps: pdr, UpperKpps: upper, RouterCorePct: 95},
			}}
		s.Accepted = true
		return result.Entry{Head: s.Head, Cell: s.Cell(), Record: s}
	}
	lines := []result.Entry{search(100, 110, 112), search(104, 114, 0)}
	lines[1].Record.(*Search).Block = 1
	s := Measure{}.Summarise(result.Run{MeasureRecords: lines}, analysis.Options{Confidence: 0.95})
	if len(s.Cells) != 1 {
		t.Fatalf("%d cells, want 1", len(s.Cells))
	}
	c := s.Cells[0]
	for name, want := range map[string]float64{
		"ndr_kpps": 102, "ndr_core_pct": 90, "pdr_0.5_kpps": 114, "ndr_mbps": 102 * 358 * 8 / 1000,
	} {
		if got := float64(c.Device(name).Mean); math.Abs(got-want) > want/500 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !c.Flagged(AtLeast) {
		t.Error("a search without an upper bound is not flagged")
	}
}

// TestLayer1: the rate on the wire counts all that a frame takes there (802.3: 24 bytes more than the frame without
// FCS). A line of 1 Gbit/s is full with 1,488,095 frames of 60 bytes a second. Old records lack these bytes, so they
// have no such figure.
func TestLayer1(t *testing.T) {
	// wire is the bytes that a frame takes on the wire besides its own 60 (0: an old record), line the link's Mbit/s.
	summary := func(wire, line float64) analysis.Summary {
		s := &Search{DUT: "gate", Clients: 4, FrameSize: "60", FrameBytes: 60, WireBytes: wire, LineMbps: line,
			Goals: []Goal{{LowerKpps: 1488.095, ThroughputKpps: 1488.095, UpperKpps: 1500}}}
		s.Accepted = true
		return Measure{}.Summarise(result.Run{MeasureRecords: []result.Entry{{Head: s.Head, Cell: s.Cell(), Record: s}}},
			analysis.Options{})
	}
	for _, c := range []struct{ wire, line, mbps, share float64 }{
		{24, 1000, 1000, 100}, {24, 10000, 1000, 10}, {24, 0, 1000, 0}, {0, 0, 0, 0},
	} {
		s := summary(c.wire, c.line)
		for name, want := range map[string]float64{"ndr_l1_mbps": c.mbps, "ndr_line_pct": c.share} {
			got := s.Cells[0].Device(name).Mean
			listed := analysis.MetricNamed(s.Metrics, name).Name != ""
			if listed != (want > 0) || got.Known() != (want > 0) || want > 0 && math.Abs(float64(got)-want) > 0.001 {
				t.Errorf("%v bytes, %v Mbit/s: %s is %v, listed: %v; want %v", c.wire, c.line, name, got, listed, want)
			}
		}
	}
}
