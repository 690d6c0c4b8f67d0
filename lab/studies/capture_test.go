package studies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// captures are simulated runs of the three experiments on capturing, on hosts with a tenth of a CPU.
func captures(experiment string) analysistest.Captures {
	none := analysistest.Sniffer{
		Name: "no-capture", Less: []result.Dimension{capture.BufferKiB, capture.CPUs, capture.Filter, capture.Work}}
	tcpdump := func(name string, us float64, less ...result.Dimension) analysistest.Sniffer {
		return analysistest.Sniffer{Name: name, FrameUs: us, Less: less, Factor: func(c result.Cell) float64 {
			return 1 + map[string]float64{"complex": 0.04}[c.Text(capture.Filter)] +
				map[string]float64{"memcpy": 1.6, "gzip": 40}[c.Text(capture.Work)]
		}}
	}
	s := analysistest.Captures{Seed: 5, Experiment: experiment, Blocks: 3, ReceiveUs: 0.6, Share: 0.1,
		Sniffers: []analysistest.Sniffer{none, tcpdump("tcpdump", 1)}}
	switch experiment {
	case "capture-gateway":
		s.ReceiveUs, s.Sink, s.Offered = 1.2, true, []float64{1, 6, 20, 100, 200, 500, 1000, 1500}
		s.Settings = []result.Cell{result.NewCell(result.FrameSize, "1514")}
		s.Sniffers = []analysistest.Sniffer{none, tcpdump("tcpdump-68", 1), tcpdump("tcpdump-1500", 1.4)}
	case "capture-systems":
		s.Offered, s.Sniffers = []float64{50, 200, 400, 650, 800, 920}, append(s.Sniffers, tcpdump("sink-mmap", 0.3))
		for _, cpus := range []int{1, 2} {
			for _, kib := range []int{0, 10240} {
				s.Settings = append(
					s.Settings, result.NewCell(result.FrameSize, "study5", capture.CPUs, cpus, capture.BufferKiB, kib))
			}
		}
	case "capture-beyond":
		s.Offered, s.Share, s.Sniffers = []float64{100}, 1,
			append(s.Sniffers, tcpdump("tcpdump-disk", 1.05, capture.Filter, capture.Work), tcpdump("ids", 1))
		plain := result.NewCell(
			result.FrameSize, "study5", capture.Filter, "none", capture.Work, "none", capture.Programs, 1, result.BackgroundPct,
			0)
		s.Settings = []result.Cell{plain, plain.With(capture.Filter, "simple"), plain.With(capture.Filter, "complex"),
			plain.With(capture.Work, "memcpy"), plain.With(capture.Work, "gzip")}
	}
	return s
}

func captured(experiment string, change func(*analysistest.Captures)) analysis.Summary {
	s := captures(experiment)
	if change != nil {
		change(&s)
	}
	return measure.Summarise(s.Run(), analysis.Options{})
}

// said writes tables, figures and findings of a study as a reader would.
func said(o studies.Outcome) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, t := range o.Tables {
		line("%s: %s", t.Title, t.Caption)
		for _, c := range t.Columns {
			line("  column %s, %s", c.Name, c.Unit)
		}
		for _, r := range t.Rows {
			line("  %s", r.Name)
			for _, v := range r.Values {
				line("    here %v %v, published %v", v.Here.Mean, v.Flags, v.Published)
			}
		}
		line("  %s", t.Note)
	}
	for _, f := range o.Figures {
		line("%s: %s; %s, stacked %v, logarithmic %v", f.Title, f.Caption, f.XLabel, f.Stacked, f.LogX)
		for _, p := range f.Panels {
			line("  %s: %s", p.Title, p.YLabel)
			for _, s := range p.Series {
				line("    %s", s.Name)
				for _, at := range s.Points {
					line("      %v: %.4g", at.X, float64(at.Y.Mean))
				}
			}
		}
	}
	for _, f := range o.Findings {
		word := "not tested"
		if f.Open {
			word = "left open"
		} else if f.Holds != nil {
			word = map[bool]string{true: "holds", false: "does not hold"}[*f.Holds]
		}
		line("%s: %s\n  %s\n  %s", f.ID, word, f.Claim, f.Here)
		if f.Expect != "" {
			line("  %s", f.Expect)
		}
	}
	for _, text := range o.Missing {
		line("%s", text)
	}
	return b.String()
}

// TestCaptureStudies compares what is said of simulated runs with what was said before: of slow hosts, of one on
// which nothing is lost, and of a run of one block, which has no intervals.
func TestCaptureStudies(t *testing.T) {
	none := (func(*analysistest.Captures))(nil)
	for name, of := range map[string]struct {
		run    analysis.Summary
		number int
	}{
		"capture-gateway": {captured("capture-gateway", none), 2},
		"capture-systems": {captured("capture-systems", none), 5},
		"capture-beyond":  {captured("capture-beyond", none), 2},
		"capture-fast":    {captured("capture-gateway", func(s *analysistest.Captures) { s.Share = 1 }), 2},
		"capture-once":    {captured("capture-systems", func(s *analysistest.Captures) { s.Blocks = 1 }), 5},
		"capture-lossy":   {captured("capture-gateway", func(s *analysistest.Captures) { s.Share = 0.002 }), 2},
	} {
		o, number := studies.Beside(of.run), of.number
		goldentest.Compare(t, "testdata/"+name+".txt",
			said(o[slices.IndexFunc(o, func(o studies.Outcome) bool { return o.Study == number })]))
	}
}
