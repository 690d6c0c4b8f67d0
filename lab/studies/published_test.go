// Tests of values that studies have published. simulate makes a run from a description and a course (measuredCourse),
// which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and
// over numbers of clients (simulated_test.go).

package studies

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// printed are the derived columns of the study's tables, as it prints them, in
// the order of the levels; the first level has no increase.
var printed = map[string]map[string][]float64{
	"portal-bandwidth": {
		"coovachilli over clean":         {112.09, 117.22, 123.65, 139.25, 146.85}, // table 5.1
		"proprietary-nfqueue over clean": {190.11, 181.11, 168.26, 178.33, 154.45},
		"clean net":                      {0.89, 1.54, 2.52, 3.36}, // table 5.2
		"clean relative":                 {97.80, 85.56, 75.45, 57.34},
		"coovachilli net":                {1.98, 3.56, 6.55, 8.74}, // table 5.3
		"coovachilli relative":           {102.59, 91.05, 87.68, 62.34},
		"proprietary-nfqueue net":        {2.42, 3.90, 7.35, 7.15}, // table 5.4
		"proprietary-nfqueue relative":   {91.67, 77.08, 82.03, 43.84},
	},
	"portal-clients": {
		"coovachilli over clean":         {128.39, 142.15, 145.48, 146.85}, // table 5.5
		"proprietary-nfqueue over clean": {189.79, 123.25, 148.42, 154.45},
		"clean net":                      {2.46, 0.46, 0.03}, // table 5.6
		"clean relative":                 {39.23, 5.27, 0.33},
		"coovachilli net":                {6.82, 1.42, 0.20}, // table 5.7
		"coovachilli relative":           {47.63, 6.72, 0.89},
		"proprietary-nfqueue net":        {1.32, 3.34, 0.63}, // table 5.8
		"proprietary-nfqueue relative":   {7.26, 17.14, 2.76},
	},
}

// TestPublishedDerivedColumns holds the study's tables against themselves: every
// increase it prints follows from the values beside it, to the last digit.
func TestPublishedDerivedColumns(t *testing.T) {
	for _, x := range repetitions() {
		derived := map[string][]float64{}
		derive := func(name string, r router, of derivation, m Metric, levels []float64) {
			for _, level := range levels {
				e, _ := of(x, r.published, m, level)
				derived[name] = append(derived[name], float64(published(e)))
			}
		}
		for i, r := range x.Routers {
			if i > 0 {
				derive(r.Published+" over clean", r, asIncrease, overhead, x.Levels)
			}
			derive(r.Published+" net", r, netStep, normalised, x.Levels[1:])
			derive(r.Published+" relative", r, relativeStep, normalised, x.Levels[1:])
		}
		columns := printed[x.Run]
		if len(derived) != len(columns) {
			t.Errorf("%s: %d derived columns, want %d", x.Run, len(derived), len(columns))
		}
		for name, want := range columns {
			if !slices.Equal(derived[name], want) {
				t.Errorf("%s: %s is %v, the study prints %v", x.Run, name, derived[name], want)
			}
		}
	}
}

// repetitions are the study's sweeps with what it printed alone.
func repetitions() []repetition {
	var out []repetition
	for _, s := range study1.Sweeps {
		out = append(out, s.published(study1.Scenarios))
	}
	return out
}

// TestPublishedNormalised: tables A.1 to A.6 follow from equation 5.1.
func TestPublishedNormalised(t *testing.T) {
	for _, x := range repetitions() {
		rows := 0
		for _, r := range x.Routers {
			for _, level := range x.Levels {
				limit := analysis.Number(x.Fixed.With(x.Along, level).Number(result.OfferedMbps))
				of := func(m Metric) analysis.Number { return r.published.estimate(m, level).Mean }
				got, want := published(exactEstimate(of(sampled)*limit/of(link))), of(normalised)
				if math.Abs(float64(got-want)) > 1e-9 {
					t.Errorf("%s at %s: equation 5.1 gives %g, the study prints %g", r.Name, x.levelText(level), float64(got),
						float64(want))
				}
				rows++
			}
		}
		if want := 3 * len(x.Levels); rows != want || rows == 0 {
			t.Errorf("%s has %d rows, want %d", x.Run, rows, want)
		}
	}
}

const goodCSV = `# a comment
scenario,clients,link_mbps,cpu_sampled_pct,cpu_normalised_pct
clean,1,987.61,6.19,6.27
clean,10,998.62,8.72,8.73
`

func parse(text string) (map[string]*measuredCourse, error) {
	return clients.readPublished(strings.NewReader(text), study1.Scenarios)
}

// TestReadPublished: columns are found by their names, in whatever order, and rows
// at another value of what the sweep holds are left out.
func TestReadPublished(t *testing.T) {
	for name, text := range map[string]string{
		"as it ships":           goodCSV,
		"columns in turn":       "clients,cpu_normalised_pct,scenario,link_mbps\n1,6.27,clean,987.61\n10,8.73,clean,998.62\n",
		"of several dimensions": "scenario,offered_mbps,clients,link_mbps,cpu_normalised_pct\nclean,1000,1,987.61,6.27\nclean,500,1,490,3\nclean,1000,10,998.62,8.73\n",
	} {
		p, err := parse(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := p["clean"]
		if !slices.Equal(c.levels, []float64{1, 10}) || c.estimate(link, 10).Mean != 998.62 ||
			c.estimate(normalised, 1).Mean != 6.27 || c.estimate(normalised, 1).HasInterval() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestReadPublishedRefuses(t *testing.T) {
	for _, tt := range []struct{ name, from, to, err string }{
		{"nothing", goodCSV, "", "published/portal-clients.csv: no rows"},
		{"no rows", goodCSV[strings.Index(goodCSV, "clean,1,"):], "", "no rows of clean below a header"},
		{"unknown column", "clients", "users", "users is no metric"},
		{"a column twice", "cpu_sampled_pct", "link_mbps", "there twice"},
		{"a placeholder for the level", "clients", "level", "header"},
		{"another dimension for the level", "clients", "offered_mbps", "want scenario, clients"},
		{"no metric", ",link_mbps,cpu_sampled_pct,cpu_normalised_pct", "", "want scenario, clients and metrics"},
		{"one column fewer", ",cpu_normalised_pct", "", "wrong number of fields"},
		{"unknown scenario", "clean,10", "nginx,10", `line 4: scenario "nginx"`},
		{"level twice", "clean,10", "clean,1", "line 4: clients: level 1 of clean does not ascend"},
		{"no number", "998.62", "fast", `published/portal-clients.csv: line 4: link_mbps: "fast"`},
		{"infinite", "998.62", "inf", "line 4: link_mbps"},
		{"not a number", "998.62", "NaN", "line 4: link_mbps"},
		{"zero", "8.72", "0", "line 4: cpu_sampled_pct"},
		{"negative", "8.73", "-1", "line 4: cpu_normalised_pct"},
		{"field missing", ",8.73", "", "wrong number of fields"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(goodCSV, tt.from) {
				t.Fatalf("%q is not in the good file", tt.from)
			}
			_, err := parse(strings.Replace(goodCSV, tt.from, tt.to, 1))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestReadFreePublished: a free sweep has single figures of systems, also 0, and gaps.
func TestReadFreePublished(t *testing.T) {
	const good = "scenario,system,offered_mbps,loss_pct,captured_offered_pct\nno-tcpdump,ARM,759,0,\ntcpdump-68,ARM,500,20,\ntcpdump-68,ARM,759,,50\n"
	p, err := gatewaySweep.readPublished(strings.NewReader(good), study2.Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	c := p["tcpdump-68/ARM"]
	if c.estimate(endToEnd, 500).Mean != 20 || c.estimate(captured, 500).Mean.Known() ||
		c.estimate(captured, 759).Mean != 50 || p["no-tcpdump/ARM"].estimate(endToEnd, 759).Mean != 0 {
		t.Errorf("%+v", c)
	}
	for from, want := range map[string]string{"68,ARM,500": `line 3: scenario "tcpdump-6/ARM" is not`,
		",ARM,759,0": `line 2: scenario "no-tcpdump/ARM64"`, "759,0": "offered_mbps", ",20,": "loss_pct"} {
		to := map[string]string{
			"68,ARM,500": "6,ARM,500", ",ARM,759,0": ",ARM64,759,0", "759,0": "fast,0", ",20,": ",-1,"}[from]
		if _, err := gatewaySweep.readPublished(strings.NewReader(strings.Replace(good, from, to, 1)),
			study2.Scenarios); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", to, err, want)
		}
	}
}

func FuzzReadPublished(f *testing.F) {
	f.Add(goodCSV)
	f.Add("scenario,offered_mbps,clients,link_mbps\ncoovachilli,1e3,1,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(text)
		if err != nil {
			return
		}
		for name, c := range p {
			if !slices.IsSorted(c.levels) || len(c.levels) > len(c.figures) {
				t.Errorf("%s: levels %v of %v", name, c.levels, c.figures)
			}
			for at, e := range c.figures {
				if !(e.Mean > 0) || !e.Mean.Known() {
					t.Errorf("%s: accepted %v %v", name, at, e.Mean)
				}
			}
		}
		if len(p["clean"].levels) == 0 {
			t.Error("accepted no rows")
		}
	})
}
