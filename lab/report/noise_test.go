package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// TestNoiseIsShown: terminal, page and CSV say that a run was noisy, why and how much.
func TestNoiseIsShown(t *testing.T) {
	s := analysis.Summary{
		Experiment: "quick", Measure: "cost", Noun: "trial", Unit: "block", Confidence: 0.95, Delta: 0.05,
		Noise: &analysis.Noise{StealPct: 9, OthersPct: 80, WidenedPct: 12, Windows: 4},
		Cells: []analysis.Cell{{Noise: &analysis.Noise{StealPct: 9, OthersPct: 80, WidenedPct: 12}}, {}},
	}
	const badge = "noisy: a neighbour took 9 % of the machine's CPU and other programs had 80 % of the routers' CPU; " +
		"bounds of intervals are up to 12 % farther out for it"
	var out bytes.Buffer
	if err := Terminal(&out, s, 0); err != nil || !strings.Contains(out.String(), badge) {
		t.Errorf("the terminal (%v) lacks %q:\n%s", err, badge, out.String())
	}
	out.Reset()
	if err := CSV(&out, s); err != nil || !strings.Contains(out.String(),
		"noise_steal_pct,noise_others_pct,noise_widened_pct") || !strings.Contains(out.String(), "9,80,12") {
		t.Errorf("the CSV (%v) lacks the noise:\n%s", err, out.String())
	}
	if badges := s.Badges(); len(badges) != 1 || badges[0] != badge {
		t.Errorf("the page's badges are %q", badges)
	}
}
