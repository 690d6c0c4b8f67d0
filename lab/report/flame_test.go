package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
)

// profileOfTwo returns a profile in which the function f takes dut ns per packet at the device, and clean ns at the
// clean router. Each router has a thousand samples.
func profileOfTwo(dut, clean float64) profile.Profile {
	side := func(ns float64) profile.Side {
		other := profile.Stack{
			Frames: []profile.Frame{{Func: "napi/lan"}, {Func: "rest", Module: profile.Kernel}}, NsPerPacket: 1000}
		f := profile.Stack{Frames: []profile.Frame{{Func: "napi/lan"}, {Func: "f", Module: profile.Kernel}}, NsPerPacket: ns}
		return profile.Side{Packets: 1000, Stacks: []profile.Stack{f, other}, Accounts: []profile.Account{{Name: "napi/lan",
			Ns: int64(1000 * (1000 + ns)), Samples: 1000}}}
	}
	return profile.Profile{DUT: side(dut), Clean: side(clean), Cell: result.NewCell(result.DUT, "d", result.Clients, 1,
		result.OfferedMbps, 10, result.Direction, "up", result.Profile, "bulk")}
}

// TestShadeNeedsSignificantDifference: the shade of a bar is 0 if the two routers' costs do not differ significantly.
// Otherwise it is 1 to 4, negative if the clean router costs more.
func TestShadeNeedsSignificantDifference(t *testing.T) {
	for _, tt := range []struct {
		dut, clean float64
		want       int
	}{
		{500, 0, 4}, {500, 400, 1}, {500, 250, 2}, {500, 50, 3}, {500, 480, 0}, {50, 500, -3}, {0, 500, -4}, {0, 0, 0},
	} {
		f := profile.Tree(profileOfTwo(tt.dut, tt.clean)).Children[0].Children[0]
		if got := shadeOf(f.Cost); f.Func != "f" || got != tt.want {
			t.Errorf("%s at %v against %v ± %.0f: shade %d, want %d", f.Func, tt.dut, tt.clean, f.Margin(), got, tt.want)
		}
	}
}

// TestExplanationComparesWithTheTrials: an explanation scales a profile so that its clean router costs as much as in
// the trials of the same cell, and says how far its sum is off the trials' difference.
func TestExplanationComparesWithTheTrials(t *testing.T) {
	p := profileOfTwo(500, 100)
	clean := analysis.Estimate{Mean: 2200} // the profile: 1100
	s := analysis.Summary{Cells: []analysis.Cell{{
		Cell: result.NewCell(
			result.DUT, "d", result.Clients, 1, result.OfferedMbps, 10, result.Direction, "up", result.Profile, "bulk"),
		// the profile: 1500
		Pairs: 9, Blocks: 3,
		Metrics: analysis.Figures{"ns_per_packet": {Device: analysis.Estimate{Mean: 3200}, Clean: &clean}},
	}}}
	e := Explain(p, s, 1)
	if e.Scale != 2 || e.OffBy > -0.19 || e.OffBy < -0.21 || e.Functions[0].Name != "f" || e.Functions[0].Share != 1 ||
		e.Rest.Count != 1 || e.Rest.Difference != 0 {
		t.Errorf("%+v", e)
	}
	var text strings.Builder
	if err := ExplainText(&text, e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"d, 1 client, 10 Mbit/s upload, bulk", "+800.0", "f [kernel]", "1 more function",
		"9 windows of 3 blocks", "the sum is 80.0 % of that", "0.50 times as much", "device napi/lan"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	e.Cell = e.Cell.With(result.DUT, "d\x1b[31m")
	e.Functions[0].Name, e.Accounts[0].Name = "f\x1b]0;x\a\n", "napi\u009b2J"
	text.Reset()
	if err := ExplainText(&text, e); err != nil || strings.ContainsAny(text.String(), "\x1b\a\u009b") {
		t.Errorf("%v; control characters in %q", err, text.String())
	}
	p.Cell = p.Cell.With(result.Clients, 2)
	if e := Explain(p, s, 1); e.OffBy.Known() || !strings.Contains(e.agreement(), "No accepted trial") {
		t.Errorf("compared with another cell's trials: %+v", e.Measured)
	}
}

// TestLargeProfilesAreThinnedOut: of a profile with many functions, the page has only the largest ones.
func TestLargeProfilesAreThinnedOut(t *testing.T) {
	p := profileOfTwo(1, 1)
	for i := range 50_000 {
		name := strings.Repeat("x", 1+i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26))
		weight := 3000 / float64(1+i%997)
		p.DUT.Stacks = append(p.DUT.Stacks, profile.Stack{Frames: []profile.Frame{{Func: "napi/lan"}, {Func: name,
			Module: "m"}, {Func: name + "2", Module: "m"}}, NsPerPacket: weight})
	}
	d := flameOf(p, profile.Tree(p))
	if n := len(d.Nodes) / 5; n > flameMostNodes || n < 100 {
		t.Errorf("%d frames drawn", n)
	}
}

// TestFlamesWithoutTime: functions without any time are not drawn, however many there are.
func TestFlamesWithoutTime(t *testing.T) {
	p := profileOfTwo(0, 0)
	for i := range flameMostNodes + 1 {
		p.DUT.Stacks = append(p.DUT.Stacks, profile.Stack{Frames: []profile.Frame{{Func: fmt.Sprint("f", i)}}})
	}
	for _, s := range []*profile.Side{&p.DUT, &p.Clean} {
		for i := range s.Stacks {
			s.Stacks[i].NsPerPacket = 0
		}
	}
	if d := flameOf(p, profile.Tree(p)); len(d.Nodes) != 5 {
		t.Errorf("%d numbers drawn, want the five of the root", len(d.Nodes))
	}
}
