package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestSearches: the page ranks devices by the frames that they forward without loss (ndr, thousand frames a second). If
// the generator's limit ended a search (upper bound 0), the figure is marked "at least".
func TestSearches(t *testing.T) {
	var lines []result.Entry
	search := func(dut, size string, ndr, upper float64) {
		s := &throughput.Search{
			DUT: dut, Clients: 20, Direction: result.Up, Profile: result.PerPacket, FrameSize: size, Goals: []throughput.Goal{
				{LossRatio: 0, LowerKpps: ndr, ThroughputKpps: ndr, UpperKpps: upper, RouterCorePct: 90},
				{LossRatio: 0.005, LowerKpps: ndr + 10, ThroughputKpps: ndr + 10, UpperKpps: upper, RouterCorePct: 95},
			}}
		s.Accepted = true
		lines = append(lines, result.Entry{Head: s.Head, Cell: s.Cell(), Record: s})
	}
	search("slow", "60", 110, 112)
	search("fast", "60", 520, 0)
	search("slow", "1514", 105, 107)
	search("fast", "1514", 410, 0)
	run := result.Run{MeasureRecords: lines}
	s := throughput.Measure{}.Summarise(run, analysis.Options{Confidence: 0.95})
	var text, page bytes.Buffer
	if err := report.Terminal(&text, s, 120); err != nil {
		t.Fatal(err)
	}
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NDR kframes/s", "1514-byte frames", "at least"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the terminal lacks %q:\n%s", want, text.String())
		}
	}
	first := strings.ReplaceAll(page.String(), "\u00a0", " ")
	for _, want := range []string{"fast forwards at least 520 thousand frames a second", "PDR at 0.5 %",
		"at least 410 kframes/s", `data-field="metrics.ndr_kpps.device.mean"`} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if fast, slow := strings.Index(first, `class="dut">fast`), strings.Index(first, `class="dut">slow`); fast > slow {
		t.Error("the device that forwards less comes first")
	}
}
