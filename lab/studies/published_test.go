package studies

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// printed are the derived columns of the study's tables, as it prints them, in
// the order of the levels; the first level has no increase.
var printed = map[string]map[string][]float64{
	"portal-bandwidth.csv": {
		"coovachilli over clean":         {112.09, 117.22, 123.65, 139.25, 146.85}, // table 5.1
		"proprietary-nfqueue over clean": {190.11, 181.11, 168.26, 178.33, 154.45},
		"clean net":                      {0.89, 1.54, 2.52, 3.36}, // table 5.2
		"clean relative":                 {97.80, 85.56, 75.45, 57.34},
		"coovachilli net":                {1.98, 3.56, 6.55, 8.74}, // table 5.3
		"coovachilli relative":           {102.59, 91.05, 87.68, 62.34},
		"proprietary-nfqueue net":        {2.42, 3.90, 7.35, 7.15}, // table 5.4
		"proprietary-nfqueue relative":   {91.67, 77.08, 82.03, 43.84},
	},
	"portal-clients.csv": {
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
	for file, columns := range printed {
		p := readPublished(file)
		derived := map[string][]float64{}
		for name, rows := range p.Rows {
			for i, row := range rows {
				if name != "clean" {
					derived[name+" over clean"] = append(derived[name+" over clean"], float64(relativeIncrease(p.Rows["clean"][i], row)))
				}
				if i > 0 {
					derived[name+" net"] = append(derived[name+" net"], float64(netIncrease(rows[i-1], row)))
					derived[name+" relative"] = append(derived[name+" relative"], float64(relativeIncrease(rows[i-1], row)))
				}
			}
		}
		if len(derived) != len(columns) {
			t.Errorf("%s: %d derived columns, want %d", file, len(derived), len(columns))
		}
		for name, want := range columns {
			if !slices.Equal(derived[name], want) {
				t.Errorf("%s: %s is %v, the study prints %v", file, name, derived[name], want)
			}
		}
	}
}

// TestPublishedNormalised: tables A.1 to A.6 follow from equation 5.1.
func TestPublishedNormalised(t *testing.T) {
	for _, d := range designs {
		rows := 0
		for name, list := range readPublished(d.File).Rows {
			for _, row := range list {
				limit := d.Load
				if d.Along == analysis.AlongLoad {
					limit = row.Level
				}
				got := float64(twoDecimals(row.CPUSampled * limit / row.LinkMbps))
				if math.Abs(got-row.CPUNormalised) > 1e-9 {
					t.Errorf("%s at %s: equation 5.1 gives %g, the study prints %g", name, d.at(row.Level), got, row.CPUNormalised)
				}
				rows++
			}
		}
		if want := 3 * len(newExperiment(d, nil).Levels); rows != want {
			t.Errorf("%s has %d rows, want %d", d.File, rows, want)
		}
	}
}

const goodCSV = `# a comment
scenario,clients,sampled_mbps,cpu_sampled_pct,cpu_normalised_pct
clean,1,987.61,6.19,6.27
clean,10,998.62,8.72,8.73
`

func TestParsePublished(t *testing.T) {
	p, err := parsePublished(strings.NewReader(goodCSV))
	if err != nil {
		t.Fatal(err)
	}
	want := publishedRow{Level: 10, LinkMbps: 998.62, CPUSampled: 8.72, CPUNormalised: 8.73}
	if p.Along != analysis.AlongClients || len(p.Rows["clean"]) != 2 || p.Rows["clean"][1] != want {
		t.Errorf("parsed %+v", p)
	}
}

func TestParsePublishedRefuses(t *testing.T) {
	for _, tt := range []struct{ name, from, to, err string }{
		{"nothing", goodCSV, "", "no header"},
		{"no rows", goodCSV[strings.Index(goodCSV, "clean,1,"):], "", "no rows"},
		{"unknown column", "clients", "users", `header "scenario,users`},
		{"columns in another order", "sampled_mbps,cpu_sampled_pct", "cpu_sampled_pct,sampled_mbps", "header"},
		{"a placeholder for the level", "clients", "level", "header"},
		{"one column fewer", ",cpu_normalised_pct", "", "header"},
		{"unknown scenario", "clean,10", "nginx,10", `line 4: scenario "nginx"`},
		{"level twice", "clean,10", "clean,1", "line 4: level 1 of clean does not ascend"},
		{"no number", "998.62", "fast", `line 4: sampled_mbps: "fast"`},
		{"infinite", "998.62", "inf", "line 4"},
		{"not a number", "998.62", "NaN", "line 4"},
		{"zero", "8.72", "0", "line 4: cpu_sampled_pct"},
		{"negative", "8.73", "-1", "line 4: cpu_normalised_pct"},
		{"field missing", ",8.73", "", "wrong number of fields"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(goodCSV, tt.from) {
				t.Fatalf("%q is not in the good file", tt.from)
			}
			_, err := parsePublished(strings.NewReader(strings.Replace(goodCSV, tt.from, tt.to, 1)))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func FuzzParsePublished(f *testing.F) {
	f.Add(goodCSV)
	f.Add("scenario,limit_mbps,sampled_mbps,cpu_sampled_pct,cpu_normalised_pct\ncoovachilli,1e3,1,1,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePublished(strings.NewReader(text))
		if err != nil {
			return
		}
		rows := 0
		for name, list := range p.Rows {
			last := 0.0
			for _, row := range list {
				for _, v := range []float64{row.Level, row.LinkMbps, row.CPUSampled, row.CPUNormalised} {
					if !(v > 0) || math.IsInf(v, 0) {
						t.Errorf("%s: accepted %g", name, v)
					}
				}
				if row.Level <= last {
					t.Errorf("%s: level %g after %g", name, row.Level, last)
				}
				last = row.Level
				rows++
			}
		}
		if rows == 0 || (p.Along != analysis.AlongLoad && p.Along != analysis.AlongClients) {
			t.Errorf("accepted %d rows along %q", rows, p.Along)
		}
	})
}
