package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// stormsByFamily are storms of clients of IPv4, and of both families, which take a quarter more time.
func stormsByFamily() (run result.Run) {
	for family, ms := range map[string]float64{"4": 2, "both": 2.5} {
		queue := []analysistest.LoginQueue{{Name: "gate", LoginMs: ms}}
		one := analysistest.Storms(uint64(len(family)), queue, []int{100}, 8)
		for _, e := range one.MeasureRecords {
			s := e.Record.(*logins.Storm)
			s.Dimensions = s.Cell().With(result.Family, family)
			e.Cell = s.Cell()
			run.MeasureRecords = append(run.MeasureRecords, e)
		}
		run.Environment = one.Environment
	}
	return run
}

// capturesByFamily are captures of frames of both families.
func capturesByFamily() result.Run {
	setting := result.NewCell(result.FrameSize, "1514")
	return analysistest.Captures{
		Seed: 3, Experiment: "capture-gateway", Blocks: 3, ReceiveUs: 1.2, Share: 0.1, Sink: true,
		Offered:  []float64{100, 500, 1500},
		Settings: []result.Cell{setting.With(result.Family, "4"), setting.With(result.Family, "6")},
		Sniffers: []analysistest.Sniffer{{Name: "no-capture"}, {Name: "tcpdump-68", FrameUs: 1}},
	}.Run()
}

// TestFamiliesAreTold: page and terminal tell the families of storms and of captures apart, and storms are compared.
func TestFamiliesAreTold(t *testing.T) {
	for name, tt := range map[string]struct {
		run             result.Run
		page, terminals []string
	}{
		"storms": {stormsByFamily(),
			[]string{"100 clients of IPv4, all at once", "100 clients of IPv4 and IPv6, all at once",
				"By IPv6, and by both, over IPv4", "storm_per_second, clients/s"},
			[]string{"IPv4 and IPv6, 100 clients, all at once: storm_per_second × 0.79", "n = 8."}},
		"captures": {capturesByFamily(), []string{"IPv4, 1514-byte frames", "IPv6, 1514-byte frames"},
			[]string{"tcpdump-68 6 1.5 Gbit/s"}},
	} {
		dir, _ := write(t, tt.run)
		page, err := os.ReadFile(filepath.Join(dir, report.HTMLFile))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := report.Terminal(&b, measure.Summarise(tt.run, analysis.Options{}), 0); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range tt.page {
			if !strings.Contains(string(page), want) {
				t.Errorf("the page of %s lacks %q", name, want)
			}
		}
		for _, want := range tt.terminals {
			if !strings.Contains(text, want) {
				t.Errorf("the terminal of %s lacks %q:\n%s", name, want, b.String())
			}
		}
	}
}
