// Tests of the first sentences of a report. cell returns a cell (one device, load and number of clients) with a
// verdict.

package report_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// cell returns a cell of a device at 1 Gbit/s with 100 clients, with a verdict and an overhead ratio ± 10 %.
func cell(dut, verdict string, ratio float64) analysis.Cell {
	e := analysis.Estimate{
		Mean: analysis.Number(ratio), Lo: analysis.Number(ratio * 0.9), Hi: analysis.Number(ratio * 1.1), N: 3}
	return analysis.Cell{
		Cell:    result.NewCell(result.DUT, dut, result.Clients, 100, result.OfferedMbps, 1000, result.Direction, result.Up),
		Verdict: verdict, Pairs: 9,
		Metrics: analysis.Figures{cost.PerBit: {Change: &e}, cost.Delivered: {Device: analysis.Estimate{Mean: 1000}}},
	}
}

// firstScreen returns the first screen of a summary's page: the sentence (lead), and the devices in the picture's
// order.
func firstScreen(t *testing.T, s analysis.Summary) (lead string, devices []string) {
	t.Helper()
	if s.Measure == "" {
		s.Measure = cost.Name
	}
	if s.AA.Pairs == 0 {
		s.AA.Ratio = analysis.Estimate{Mean: analysis.Absent(), Lo: analysis.Absent(), Hi: analysis.Absent()}
	}
	var b bytes.Buffer
	if err := report.HTML(&b, result.Run{}, s); err != nil {
		t.Fatal(err)
	}
	checkPage(t, b.String())
	if m := regexp.MustCompile(`<p class="lead">(.*)</p>`).FindStringSubmatch(plainSpaces(b.String())); m != nil {
		lead = m[1]
	}
	for _, m := range regexp.MustCompile(`<span class="device">(.*?)</span>`).FindAllStringSubmatch(b.String(), -1) {
		devices = append(devices, m[1])
	}
	return lead, devices
}

// TestLeadSentence: the sentence names the devices with the lowest and the highest cost that have a verdict, and all
// devices without one.
func TestLeadSentence(t *testing.T) {
	const beside = "Compared with a clean router, carrying the same bit at 1 Gbit/s upload with 100 clients takes "
	limited := cell("slow", analysis.Different, 9.4)
	limited.Metrics[cost.Delivered] = analysis.Figure{Device: analysis.Estimate{Mean: 553}}
	limited.Flags = []analysis.Tally{{Text: result.FlagSaturated, Count: 9}}
	elsewhere := cell("half", analysis.Different, 2)
	elsewhere.Cell = elsewhere.With(result.OfferedMbps, 500)
	rejected := cell("broken", "", 0)
	rejected.Pairs, rejected.Metrics[cost.PerBit].Change.Mean = 0, analysis.Absent()
	for _, tt := range []struct {
		name    string
		cells   []analysis.Cell
		want    string
		devices string
	}{
		{"limit and open", []analysis.Cell{limited, cell("wide", analysis.Inconclusive, 12), cell("mid", analysis.Different,
			2), cell("cheap", analysis.Different, 0.8)},
			beside + "from 0.80 times the CPU with cheap to 9.40 times with slow, which delivers only 553 Mbit/s; what wide " +
				"[10.8, 13.2] costs, this run leaves open.", "cheap mid slow wide"},
		{"one", []analysis.Cell{cell("a", analysis.Different, 2)}, beside + "2.00 times the CPU with a.", "a"},
		{"equivalent and dearer", []analysis.Cell{cell("b", analysis.Different, 2), cell("a", analysis.Equivalent, 1.01)},
			beside + "from the same CPU, within 5 %, with a to 2.00 times with b.", "a b"},
		{"all equivalent", []analysis.Cell{cell("a", analysis.Equivalent, 1.01), cell("b", analysis.Equivalent, 0.99)},
			beside + "the same CPU, within 5 %, with b and a.", "b a"},
		{"all open", []analysis.Cell{cell("a", analysis.Inconclusive, 1), cell("b", analysis.Inconclusive, 2)},
			"At 1 Gbit/s upload with 100 clients, what a [0.90, 1.10] and b [1.80, 2.20] cost, this run leaves open.", "a b"},
		{"several loads", []analysis.Cell{cell("a", analysis.Different, 3), elsewhere},
			"Compared with a clean router, carrying the same bit takes from 2.00 times the CPU with half at 500 Mbit/s upload " +
				"with 100 clients to 3.00 times with a at 1 Gbit/s upload with 100 clients.", "half a"},
		{"one rejected", []analysis.Cell{rejected, cell("a", analysis.Different, 3)},
			beside + "3.00 times the CPU with a; what broken costs, this run leaves open.", "a broken"},
		{"all rejected", []analysis.Cell{rejected}, "No trial was accepted, so there is nothing to compare.", "broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lead, devices := firstScreen(t, analysis.Summary{Confidence: 0.95, Delta: 0.05, Cells: tt.cells})
			if lead != tt.want || strings.Join(devices, " ") != tt.devices {
				t.Errorf("got  %s %v\nwant %s [%s]", lead, devices, tt.want, tt.devices)
			}
		})
	}
}

// TestLoginsLead: devices are ranked by logins a second, the most first. The sentence gives the share of clients that
// did not get in.
func TestLoginsLead(t *testing.T) {
	lead, devices := firstScreen(t, measure.Summarise(analysistest.Storms(7, []analysistest.LoginQueue{
		{Name: "slow", LoginMs: 100, Leaves: 4}, {Name: "mid", LoginMs: 20}, {Name: "fast", LoginMs: 2},
	}, []int{100}, 4), analysis.Options{}))
	if want := "With 100 clients, all at once, fast lets in "; !strings.HasPrefix(lead, want) ||
		!strings.Contains(lead, ", and slow lets in ") ||
		!strings.HasSuffix(lead, "and leaves 25.0 % out.") || strings.Contains(lead, "mid") {
		t.Errorf("%s", lead)
	}
	if !slices.Equal(devices, []string{"fast", "mid", "slow"}) {
		t.Errorf("%v", devices)
	}
}

// TestCeilingsOrder: devices are ranked by the load that they carry. Of two that carry the same load, the one without a
// failure at a higher load is first. A device that fails at the lowest load is last.
func TestCeilingsOrder(t *testing.T) {
	s := analysis.Summary{Confidence: 0.95, Delta: 0.05}
	for i, c := range []struct{ carries, fails float64 }{{0, 250}, {500, 1000}, {1000, 1500}, {1000, 0}, {500, 750}} {
		dut := fmt.Sprint("d", i)
		known := func(v float64) analysis.Number {
			if v == 0 {
				return analysis.Absent()
			}
			return analysis.Number(v)
		}
		s.Cells = append(s.Cells, cell(dut, analysis.Different, 2))
		s.Ceilings = append(s.Ceilings, analysis.Ceiling{Cell: s.Cells[i].Without(result.OfferedMbps), CarriesMbps: known(
			c.carries), FailsMbps: known(c.fails), Why: result.FlagLossy})
	}
	lead, devices := firstScreen(t, s)
	if lead != "Alone on the machine and without loss, d3 carries at least 1 Gbit/s, and d0 less than 250 Mbit/s." ||
		!slices.Equal(devices, []string{"d3", "d2", "d1", "d4", "d0"}) {
		t.Errorf("%s %v", lead, devices)
	}
}
