// Tests of whole outcomes, compared with files in testdata. simulate makes a run from a description and a course
// (measuredCourse), which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such
// runs over loads and over numbers of clients (simulated_test.go).

package studies_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// stored reads a run that was measured on a real machine.
func stored(t *testing.T, name string) analysis.Summary {
	t.Helper()
	run, forget, err := measure.Open(t.Context(), filepath.Join("testdata", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	return measure.Summarise(run, analysis.Options{})
}

// recorded are runs by name: measured ones, and simulated ones that reach every
// sentence of a finding. Long: a line or two for each run.
func recorded(t *testing.T) map[string][]analysis.Summary {
	t.Helper()
	load, many := stored(t, "portal-bandwidth"), stored(t, "portal-clients")
	runs := map[string][]analysis.Summary{
		"stored bandwidth": {load}, "stored clients": {many}, "stored bandwidth with clients": {load, many},
		"stored clients with bandwidth": {many, load},
		"no run":                        nil,
	}
	chilli, nfqueue, tun := portal("coovachilli", 5), portal("gateway-nfqueue", 5), portal("gateway-tun", 5)
	nds, ebpf, mine := portal("opennds", 2.5), portal("gateway-ebpf", 0.8), portal("mine", 1.1)
	slow := func(d analysistest.DUT, most float64) analysistest.DUT { d.MaxMbps = most; return d }
	courses := map[string]measuredCourse{
		"proportional": proportional,
		"root": overLoad(
			map[float64]float64{100: 1, 200: 0.7071, 300: 0.577, 400: 0.5, 800: 0.3536, 900: 0.33, 1000: 0.3162}),
		"dearer":       overLoad(map[float64]float64{100: 1, 200: 1, 300: 1, 400: 1, 800: 1, 900: 1.1, 1000: 1.2}),
		"as the study": overClients(map[int]float64{1: 0.68, 10: 0.94, 50: 0.99, 75: 0.995, 100: 1}),
		"growing":      overClients(map[int]float64{1: 1, 10: 1.1, 50: 1.5, 75: 1.7, 100: 2}),
		"falling":      overClients(map[int]float64{1: 1, 10: 1, 50: 0.8, 75: 0.75, 100: 0.7}),
		"steep":        overClients(map[int]float64{1: 0.05, 10: 0.2, 50: 0.5, 75: 0.7, 100: 1}),
		"narrowing":    onlyDevice("gateway-nfqueue", overClients(map[int]float64{1: 1.3, 10: 0.9, 50: 1, 75: 1, 100: 1})),
		"widening": onlyDevice(
			"gateway-nfqueue", overClients(map[int]float64{1: 1, 10: 1.1, 50: 1.2, 75: 1.25, 100: 1.3})),
	}
	sets := map[string][]analysistest.DUT{
		"all": {chilli, nfqueue, nds}, "ours": {tun, nfqueue, ebpf, mine}, "slow": {slow(chilli, 500), slow(nds, 700)},
		"slow pair": {slow(tun, 600), slow(nfqueue, 350)}, "without nfqueue": {chilli, nds},
		"double": {portal("coovachilli", 2), portal("opennds", 1.7), portal("gateway-nfqueue", 8)},
	}
	for name, c := range courses {
		for set, duts := range sets {
			if set != "all" && name != "growing" && name != "narrowing" {
				continue
			}
			full := clients(c, duts...)
			runs[name+", "+set] = []analysis.Summary{bandwidth(c, duts...), full}
			if name == "growing" || name == "narrowing" {
				runs[name+", "+set+", lighter"] = []analysis.Summary{
					full, runAtOtherLoad(300, c, duts...), bandwidth(c, duts...), runAtOtherLoad(400, c, duts...)}
			}
		}
		if name == "dearer" || name == "falling" || name == "steep" || name == "widening" {
			continue
		}
		finer := clientsSpec(chilli, nds)
		finer.Clients = []int{1, 10, 50, 75, 100}
		steps := bandwidthSpec(chilli, nds)
		steps.Offered, steps.Profiles = []float64{100, 200, 300, 400, 800, 900, 1000}, []string{"bulk"}
		runs[name+", finer"] = []analysis.Summary{simulate("portal-clients", finer, c), simulate("mine", steps, c)}
		few := clientsSpec(chilli, nfqueue)
		few.Blocks, few.Windows, few.AABlocks = 2, 1, 0
		lone := bandwidthSpec(chilli, nfqueue)
		lone.Blocks = 1
		runs[name+", few"] = []analysis.Summary{simulate("portal-clients", few, c), simulate("portal-bandwidth", lone, c)}
		three := bandwidthSpec(chilli)
		three.Offered = []float64{100, 200, 400}
		runs[name+", three"] = []analysis.Summary{
			simulate("portal-bandwidth", three, c), clients(c, slow(tun, 500)), runAtOtherLoad(300, c, nfqueue)}
	}
	solo := bandwidth(proportional, nds)
	solo.Mode = result.ModeSolo
	runs["two of one name"] = []analysis.Summary{bandwidth(proportional, chilli), solo}
	runs["clean alone"] = []analysis.Summary{bandwidth(proportional)}
	quick := bandwidthSpec(chilli)
	quick.Clients = []int{20}
	runs["neither sweep"] = []analysis.Summary{simulate("quick", quick, proportional)}
	return runs
}

// comparesWhole reports whether the tables and figures of runs are compared as well; those
// of the others differ from these in figures alone.
func comparesWhole(name string) bool {
	return !strings.Contains(name, ", ") || strings.HasPrefix(name, "root, ") || strings.HasPrefix(name, "growing, slow")
}

// TestOutcomes compares everything that is said of recorded runs, field by field,
// with what was said of them before.
func TestOutcomes(t *testing.T) {
	const path = "testdata/outcomes.json.gz"
	got := map[string]any{}
	for name, runs := range recorded(t) {
		said := studies.Beside(runs...)[0]
		if !comparesWhole(name) {
			said.Tables, said.Figures = nil, nil
		}
		data, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		var fields any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		got[name] = fields
	}
	if *goldentest.Update {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err := json.NewEncoder(w).Encode(got); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	shown := 0
	differences("", got, want, func(at string, got, want any) {
		if shown++; shown <= 40 {
			t.Errorf("%s\n got %v\nwant %v", at, got, want)
		}
	})
	if shown > 40 {
		t.Errorf("%d differences in all", shown)
	}
}

// differences calls report with every place at which two JSON values differ.
func differences(path string, got, want any, report func(path string, got, want any)) {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			keys := slices.Sorted(maps.Keys(w))
			for key := range g {
				if _, known := w[key]; !known {
					report(path+"/"+key, g[key], nil)
				}
			}
			for _, key := range keys {
				differences(path+"/"+key, g[key], w[key], report)
			}
			return
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				differences(fmt.Sprintf("%s/%d", path, i), g[i], w[i], report)
			}
			return
		}
	default:
		if got == want {
			return
		}
	}
	report(path, got, want)
}
