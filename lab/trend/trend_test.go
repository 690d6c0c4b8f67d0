package trend_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/trend"
)

// digest is a run of a day whose device has a ratio; change changes its environment.
func digest(day int, ratio float64, change func(*result.Environment)) trend.Digest {
	run := analysistest.Run(analysistest.Spec{
		Seed: uint64(day), DUTs: []analysistest.DUT{{Name: "opennds", Ratio: ratio}, {Name: "allowlist", Ratio: 1.2}},
		Clients: []int{20}, Offered: []float64{100, 1000}, Blocks: 4, Windows: 2, AABlocks: 2, BlockSD: 0.01, WindowSD: 0.01,
	})
	env := &run.Environment
	env.Experiment, env.Measure, env.GateweighVersion = "quick", "cost", fmt.Sprintf("v0.%d", day)
	env.Start = env.Start.AddDate(0, 0, day)
	if change != nil {
		change(env)
	}
	return trend.DigestOf(fmt.Sprintf("day%d", day), run, measure.Summarise(run, analysis.Options{}))
}

func course(t *testing.T, digests []trend.Digest, opts trend.Options) trend.Trend {
	t.Helper()
	c, err := trend.TrendOf(digests, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// month returns a month of runs: a device becomes dearer on the fourth day, the kernel changes on the fifth, and one
// run is of another experiment.
func month() []trend.Digest {
	return []trend.Digest{
		digest(4, 3, nil), digest(1, 2, nil), digest(2, 2, nil), // in no order
		digest(3, 2, func(e *result.Environment) { e.Tools = map[string]string{"nftables": "1.0.9"} }),
		digest(5, 3, func(e *result.Environment) { e.Kernel = "6.19.0" }),
		digest(6, 2, func(e *result.Environment) { e.Experiment = "other" }),
		digest(7, 3, func(e *result.Environment) { e.Kernel, e.Interrupted = "6.19.0", true }),
	}
}

func TestRunsStandInGroups(t *testing.T) {
	digests := month()
	digests[5].Summary.Experiment = "other"
	c := course(t, slices.Delete(slices.Clone(digests), 5, 6), trend.Options{})
	var days []string
	for _, r := range c.Runs {
		days = append(days, fmt.Sprintf("%s %s", r.Name, c.Groups[r.Group].Letter))
	}
	if got := strings.Join(days, ", "); got != "day1 A, day2 A, day3 A, day4 A, day5 B, day7 B" {
		t.Errorf("runs: %s", got)
	}
	if len(c.Groups) != 2 || len(c.Groups[0].Apart) != 0 || !slices.Equal(c.Groups[1].Apart,
		[]string{"kernel: 6.18.0, then 6.19.0"}) {
		t.Errorf("groups: %+v", c.Groups)
	}
	if got := strings.Join(c.Runs[2].Changed, "; "); !strings.Contains(got, "tool nftables: 1.0.6, then 1.0.9") ||
		!strings.Contains(got, "gateweigh version: v0.2, then v0.3") {
		t.Errorf("changed on the third day: %s", got)
	}
	if len(c.Series) != 8 { // two devices, two loads, two groups
		t.Errorf("%d series", len(c.Series))
	}
	for _, s := range c.Series {
		for _, p := range s.Points {
			want := 1.2
			if s.Cell.Text(result.DUT) == "opennds" {
				want = []float64{2, 2, 2, 3, 3, 3}[p.Run]
			}
			if math.Abs(float64(p.Mean)/want-1) > 0.03 || !p.HasInterval() || p.Lo > p.Mean || p.N != 4 {
				t.Errorf("%s, run %d: %+v, want %g", s.Cell, p.Run, p.Estimate, want)
			}
		}
	}
	with := course(t, append(digests, digest(8, 3, nil)), trend.Options{Devices: []string{"allowlist"}})
	if len(with.LeftOut) != 1 || with.LeftOut[0].Name != "day6" || !strings.Contains(with.LeftOut[0].Reason, "other") {
		t.Errorf("left out: %+v", with.LeftOut)
	}
	for _, s := range with.Series {
		if s.Cell.Text(result.DUT) != "allowlist" {
			t.Errorf("%s is shown", s.Cell)
		}
	}
}

func TestMetricIsChosen(t *testing.T) {
	c := course(t, month()[:3], trend.Options{Metric: "cpu_core_pct", By: trend.ByVersion})
	if c.Metric.Unit != "% of a core" || c.Label(0) != "v0.1" {
		t.Errorf("metric %+v, label %q", c.Metric, c.Label(0))
	}
	for opts, want := range map[*trend.Options]string{
		{Metric: "cpu_core_pc"}:         `no metric is called "cpu_core_pc"`,
		{By: "month"}:                   "want date or version",
		{Devices: []string{"opennd"}}:   `did you mean "opennds"`,
		{Metric: "login_p50_ms_not_it"}: "there are ",
	} {
		if _, err := trend.TrendOf(month()[:1], *opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", *opts, err)
		}
	}
	if _, err := trend.TrendOf(nil, trend.Options{}); err == nil {
		t.Error("no error without runs")
	}
}

// TestForms: each form has every figure, and says what sets runs apart.
func TestForms(t *testing.T) {
	digests := month()
	digests[1].Name = "<b>day1"
	c := course(t, digests, trend.Options{})
	var text, table, page, data bytes.Buffer
	for _, err := range []error{
		c.Text(&text), c.CSV(&table), c.HTML(&page, nil, func(name string) string { return "/" + name }),
		json.NewEncoder(&data).Encode(c)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"router CPU per delivered bit, × a clean router's, over 6 runs", "●",
		"Runs B do not stand in one row with runs A: kernel: 6.18.0, then 6.19.0.", "Left out: day6: it is of the experiment",
		"not finished"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) != 1+6*4 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for _, want := range []string{"In the latest run", "<svg", "opennds, B", "kernel: 6.18.0, then 6.19.0",
		"&lt;b&gt;day1", `<a href="/day4">`} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.String(), "<b>day1") {
		t.Error("a name is markup")
	}
	var back trend.Trend
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || len(back.Series) != len(c.Series) {
		t.Errorf("JSON: %v", err)
	}
}

// TestLatestIsSaid: an interval apart from that of the run before it heads the page.
func TestLatestIsSaid(t *testing.T) {
	for _, tt := range []struct {
		runs []trend.Digest
		want string
	}{
		{[]trend.Digest{digest(1, 2, nil), digest(2, 3, nil)},
			"intervals are apart from those of the run before it: opennds"},
		{[]trend.Digest{digest(1, 2, nil), digest(2, 2, nil)}, "no interval is apart"},
		{[]trend.Digest{digest(1, 2, nil)}, "There is one run so far."},
	} {
		c := course(t, tt.runs, trend.Options{})
		var page bytes.Buffer
		if err := c.HTML(&page, nil, func(string) string { return "" }); err != nil ||
			!strings.Contains(page.String(), tt.want) {
			t.Errorf("the page lacks %q (%v)", tt.want, err)
		}
	}
}

func TestLabelsTellRunsApart(t *testing.T) {
	c := course(t, month(), trend.Options{})
	c.Runs = c.Runs[:2]
	c.Runs[1].Start = c.Runs[0].Start.Add(time.Hour)
	if a, b := c.Label(0), c.Label(1); a == b {
		t.Errorf("both are %q", a)
	}
}
