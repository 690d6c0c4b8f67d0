package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	probes "github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// TestTransitions: the page ranks devices by the time from Ethernet to TCP, and compares them with the direct path.
func TestTransitions(t *testing.T) {
	var lines []result.Entry
	// step adds a record of probes whose times in every part of the path have a median of us µs.
	step := func(dut string, mbps float64, us int64) {
		parts := map[string]probes.Distribution{}
		for _, p := range transition.Parts {
			parts[p.Name] = probes.Distribute([]int64{900 * us, 1000 * us, 3000 * us})
		}
		s := &transition.Step{Cell: result.NewCell(result.DUT, dut, result.Clients, 1, result.OfferedMbps, mbps),
			LoadSeconds: 1, DeliveredMbps: mbps, Segments: 200, Retransmits: 3,
			Hosts: transition.Ends{Counts: probes.Counts{Sent: 3}, Parts: parts}}
		s.Accepted = true
		lines = append(lines, result.Entry{Head: s.Head, Cell: s.Cell, Record: s})
	}
	for _, mbps := range []float64{0, 50, 90} {
		step("clean", mbps, 20)
		step("vpn", mbps, 44)
	}
	run := result.Run{MeasureRecords: lines}
	s := transition.Measure{}.Summarise(run, analysis.Options{Confidence: 0.95})
	var text, page bytes.Buffer
	if err := report.Terminal(&text, s, 120); err != nil {
		t.Fatal(err)
	}
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Ethernet→TCP", "44.0 µs", "2.20", "none", "sent again", "1.50 %"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the terminal lacks %q:\n%s", want, text.String())
		}
	}
	var narrow bytes.Buffer
	if err := report.Terminal(&narrow, s, 60); err != nil {
		t.Fatal(err)
	}
	if table, left, cut := strings.Cut(narrow.String(), "Left out for want of width"); !cut ||
		strings.Contains(table, "×") || !strings.Contains(left, "×") {
		t.Errorf("a narrow terminal has quotients without what they are of, or does not say what it leaves out:\n%s",
			narrow.String())
	}
	first := strings.ReplaceAll(page.String(), "\u00a0", " ")
	for _, want := range []string{"a packet takes 20.0 µs with clean and 44.0 µs with vpn",
		`data-field="metrics.ethernet_to_tcp_p50_us.device.mean"`, "Distribution of Ethernet→TCP"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
