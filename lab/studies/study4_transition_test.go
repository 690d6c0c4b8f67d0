package studies

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	probes "github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// TestTransitionClaims: OpenVPN that takes twice as long as the direct path doubles it, IPsec that takes as long is
// similar, and both are far below propagation.
func TestTransitionClaims(t *testing.T) {
	defer func(before []Study, shipped fs.FS) { allStudies, files = before, shipped }(allStudies, files)
	allStudies, files = []Study{{
		Number: 4, Scenarios: []Scenario{
			{Published: "direct", DUT: analysis.Clean, Name: "the direct path"}, {Published: "ipsec", DUT: "ipip", Name: "ipip"},
			{Published: "openvpn", DUT: "openvpn-none", Name: "openvpn-none"},
		},
		Sweeps: []*Sweep{tunnelTimes}, Claims: claimsTransition, Figures: transitionFigures,
		Units: func(int) string { return "" },
	}}, os.DirFS(".")
	var lines []result.Entry
	for block := range 4 {
		for dut, us := range map[string]int64{analysis.Clean: 30, "ipip": 31, "openvpn-none": 60} {
			for _, mbps := range []float64{0, 50, 90, 500} {
				parts := map[string]probes.Distribution{}
				for _, p := range transition.Parts {
					jitter := 1000*us + int64(100*block)
					if mbps > mostBackground {
						jitter *= 1000 // beyond the study's loads, and no matter
					}
					parts[p.Name] = probes.Distribute([]int64{jitter, jitter, jitter})
				}
				s := &transition.Step{Cell: result.NewCell(result.DUT, dut, result.Clients, 1, result.OfferedMbps, mbps),
					DeliveredMbps: mbps, LoadSeconds: 1, Gateways: transition.Ends{Parts: parts}}
				s.Block, s.Accepted = block, true
				lines = append(lines, result.Entry{Head: s.Head, Cell: s.Cell, Record: s})
			}
		}
	}
	run := result.Run{MeasureRecords: lines}
	run.Environment.Experiment = "tunnel-transition"
	s := transition.Measure{}.Summarise(run, analysis.Options{Confidence: 0.95})
	got := map[string]string{}
	for _, f := range Beside(s)[0].Findings {
		got[f.ID] = map[bool]string{true: "holds", false: "fails"}[f.Holds != nil && *f.Holds]
	}
	for id, want := range map[string]string{
		"openvpn-doubles-ethernet-to-tcp/openvpn-none": "holds", "openvpn-doubles-ethernet-to-tcp/ipip": "",
		"ipsec-similar-to-direct/ipip": "holds", "ipsec-similar-to-direct/openvpn-none": "",
		"transition-negligible/openvpn-none": "holds", "transition-negligible/clean": "holds",
	} {
		if got[id] != want {
			t.Errorf("%s: %q, want %q; all: %v", id, got[id], want, got)
		}
	}
	s.Mark = "emulated"
	for _, f := range Beside(s)[0].Findings {
		ratio := !strings.HasPrefix(f.ID, "transition-negligible/")
		if judged := f.Holds != nil; judged != (ratio && got[f.ID] == "holds") {
			t.Errorf("%s of an emulated CPU: judged %t", f.ID, judged)
		}
	}
}
