package measure_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The stored runs in testdata/version1 were recorded and summarised by the last program of version 1. A summary of that
// version had other names and another structure. Most of this file says under which path a figure of version 1
// ("before") is found in a summary of today ("now"). Paths are such as "metrics.rtt_p50_us.device.mean".

// TestVersion1: the records of version 1 give the same figures now, under the metrics' new names.
func TestVersion1(t *testing.T) {
	folders, err := filepath.Glob("testdata/version1/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no stored runs: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			run, err := measure.ReadRun(unpacked(t, folder))
			if err != nil {
				t.Fatal(err)
			}
			now := asJSON(t, measure.Summarise(run, analysis.Options{}))
			var before map[string]any
			if err := json.Unmarshal(gunzip(t, filepath.Join(folder, "summary.json.gz")), &before); err != nil {
				t.Fatal(err)
			}
			c := summaryComparison{t: t}
			c.summary(before, now)
			if c.figures < 100 {
				t.Errorf("only %d figures were compared", c.figures)
			}
			t.Logf("%d figures compared", c.figures)
		})
	}
}

// unpacked copies a stored run into a new folder, with the file names of a run, and returns the folder.
func unpacked(t *testing.T, folder string) string {
	dir := t.TempDir()
	files := map[string][]byte{result.TrialsFile: gunzip(t, filepath.Join(folder, "trials.jsonl.gz"))}
	for _, name := range []string{result.EnvironmentFile, result.ExperimentFile} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gunzip(t *testing.T, path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func asJSON(t *testing.T, s analysis.Summary) (out map[string]any) {
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// summaryComparison compares a summary of version 1 with one of today, and counts the compared figures.
type summaryComparison struct {
	t       *testing.T
	figures int
}

// summary compares whole summaries. Version 1 listed cells of login storms apart, under "storms".
func (c *summaryComparison) summary(before, now map[string]any) {
	for _, key := range []string{"experiment", "mode", "confidence", "delta", "trials", "skipped", "rejects", "limits"} {
		c.same(key, before[key], now[key])
	}
	if before["measure"] == nil {
		for _, key := range []string{"aa", "multiplicity", "stability"} {
			c.same(key, before[key], now[key])
		}
	}
	for _, list := range []string{"sweeps", "quotients", "cost_models", "ceilings", "failed_blocks"} {
		old, _ := before[list].([]any)
		new, _ := now[list].([]any)
		if len(old) != len(new) {
			c.t.Errorf("%d %s, before %d", len(new), list, len(old))
			continue
		}
		for i := range old {
			c.dimensioned(fmt.Sprintf("%s[%d]", list, i), old[i].(map[string]any), new[i].(map[string]any))
		}
	}
	cells, _ := before["cells"].([]any)
	storms, _ := before["storms"].([]any)
	new, _ := now["cells"].([]any)
	if len(cells)+len(storms) != len(new) {
		c.t.Fatalf("%d cells, before %d and %d login storms", len(new), len(cells), len(storms))
	}
	for i, cell := range append(cells, storms...) {
		name := fmt.Sprintf("cells[%d]", i)
		cell := namedCounts(cell.(map[string]any))
		for path, value := range leafValues("", cell) {
			c.leaf(name, path, value, new[i].(map[string]any), len(storms) > 0)
		}
	}
	c.warnings(before, now)
}

// namedCounts changes a cell of version 1 where today's form is not only another name. The list of a device's own
// counts becomes fields count_before.NAME and count_after.NAME, and the bool device_leases becomes 1 or 0.
func namedCounts(cell map[string]any) map[string]any {
	if churn, ok := cell["churn"].(map[string]any); ok {
		for _, count := range churn["counts"].([]any) {
			c := count.(map[string]any)
			churn["count_before."+c["name"].(string)], churn["count_after."+c["name"].(string)] = c["before"], c["after"]
		}
		delete(churn, "counts")
	}
	if leases, ok := cell["device_leases"].(bool); ok {
		cell["device_leases"] = map[bool]any{true: 1.0, false: 0.0}[leases]
	}
	return cell
}

// warnings requires the same warnings, compared up to the first ": ". After it come names of cells, which may differ.
func (c *summaryComparison) warnings(before, now map[string]any) {
	heads := func(of any) map[string]bool {
		out := map[string]bool{}
		for _, w := range of.([]any) {
			head, _, _ := strings.Cut(w.(string), ": ")
			out[head] = true
		}
		return out
	}
	if diff := cmp.Diff(heads(before["warnings"]), heads(now["warnings"])); diff != "" {
		c.t.Errorf("warnings (-before +now):\n%s", diff)
	}
}

// dimensioned compares a record whose dimensions were fields in version 1. Today they are fields of "dimensions".
func (c *summaryComparison) dimensioned(name string, before, now map[string]any) {
	dimensions, _ := now["dimensions"].(map[string]any)
	for key, old := range before {
		switch key {
		case "dut", "clients", "offered_mbps", "direction", "profile":
			if now[key] != nil { // a ratio of two cells has these fields today too
				c.same(name+"."+key, old, now[key])
			} else if new, ok := dimensions[key]; ok || !absent(old) {
				c.same(name+"."+key, old, new)
			}
		default:
			c.same(name+"."+key, old, now[key])
		}
	}
}

// absent reports whether a value of version 1 stands for "nothing": today such values are left out.
func absent(v any) bool { return v == nil || v == 0.0 || v == "" }

// same requires that all leaves of two JSON values are equal.
func (c *summaryComparison) same(name string, before, now any) {
	if list, ok := before.([]any); ok && len(list) == 0 && now == nil {
		return // an empty list is left out
	}
	for path, old := range leafValues(name, before) {
		c.figures++
		if diff := cmp.Diff(untimed(old), untimed(leafValues(name, now)[path])); diff != "" && !absent(old) {
			c.t.Errorf("%s (-before +now):\n%s", path, diff)
		}
	}
}

// untimed returns a value without the time that a run took, whose unit has changed in texts.
func untimed(v any) any {
	if text, ok := v.(string); ok {
		return regexp.MustCompile(`over the \d.* of the run`).ReplaceAllString(text, "over the run")
	}
	return v
}

// leaf requires that a figure of a cell of version 1, at a path, has the same value in the cell of today. storm means
// that the cell is of login storms.
func (c *summaryComparison) leaf(cell, path string, before any, now map[string]any, storm bool) {
	if path == "blocks_needed" || path == "verdict_note" {
		return // today's estimate of how many more blocks are needed is more cautious
	}
	new := leafValues("", now)
	names := renamed(path, storm)
	c.figures++
	for _, name := range names {
		if value, ok := new[name]; ok && cmp.Equal(value, before) {
			return
		} else if ok {
			c.t.Errorf("%s: %s was %v, %s is %v", cell, path, before, name, value)
			return
		}
	}
	if !absent(before) && before != false {
		c.t.Errorf("%s: %s was %v and is gone (looked for %q)", cell, path, before, names)
	}
}

// estimates maps paths of version 1 to the paths of today.
var estimates = map[string]string{
	"overhead_ratio": "metrics.cpu_ns_per_bit.change", "rtt_us.p50": "metrics.rtt_p50_median_us.device.mean",
	"rtt_us.p99":       "metrics.rtt_p99_median_us.device.mean",
	"clean_rtt_us.p50": "metrics.rtt_p50_median_us.clean.mean", "clean_rtt_us.p99": "metrics.rtt_p99_median_us.clean.mean",
	"verdict": "verdict.word", "verdict_note": "verdict.note", "p_different": "verdict.p_different",
	"p_equivalent":  "verdict.p_equivalent",
	"blocks_needed": "verdict.blocks_needed", "sd_log": "verdict.sd_log", "storms": "pairs", "died": "counts.died",
	"device_leases": "counts.device_leases",
	"crowd.blocks":  "counts.client_blocks", "crowd.leased": "counts.leased", "crowd.logged_in": "counts.logged_in",
	"crowd.connected":       "counts.connected",
	"crowd.clean_connected": "counts.clean_connected", "crowd.addresses": "texts.addresses",
	"crowd.clean_addresses": "texts.clean_addresses",
	"churn.blocks":          "counts.guest_blocks", "churn.settled": "counts.guest_blocks_settled",
	"churn.told": "counts.guest_blocks_counted", "churn.came": "counts.guests_came",
	"churn.in": "counts.guests_in", "churn.gone": "counts.guests_gone", "churn.missed": "counts.guests_missed",
	"churn.per_second": "metrics.guests_per_second.device.mean",
}

// ofPhase lists the paths of today for a figure of a storm's phase (lease, login); nil for other figures.
func ofPhase(path string) []string {
	for _, phase := range []string{"lease", "login"} {
		if rest, ok := strings.CutPrefix(path, phase+"."); ok {
			name, tail, list := strings.Cut(rest, "[")
			switch {
			case name == "curve":
				return []string{"curves." + phase + "_through[" + tail}
			case list:
				return []string{"tallies." + phase + "_" + rest}
			}
			figure, bound, _ := strings.Cut(rest, ".")
			return []string{"metrics." + phase + "_" + figure + ".device." + bound, "counts." + phase + "_" + rest}
		}
	}
	return nil
}

// renamed lists the paths in a cell of today under which a figure of version 1 may be found.
func renamed(path string, storm bool) []string {
	if to, ok := estimates[path]; ok {
		return []string{to}
	}
	if list := ofPhase(path); storm && list != nil {
		return list
	}
	if rest, ok := strings.CutPrefix(path, "deaths["); ok {
		return []string{"tallies.deaths[" + rest}
	}
	if rest, ok := strings.CutPrefix(path, "churn.failures["); ok {
		return []string{"tallies.guest_failures[" + rest}
	}
	for from, to := range estimates {
		if rest, ok := strings.CutPrefix(path, from+"."); ok {
			return []string{to + "." + rest}
		}
	}
	for _, part := range []string{"intervals.", "block_figures.", "streams.", "crowd.", "churn.", ""} {
		rest, ok := strings.CutPrefix(path, part)
		if !ok {
			continue
		}
		figure, bound, estimate := strings.Cut(rest, ".")
		if !estimate {
			bound = "mean"
		}
		if strings.HasPrefix(figure, "count_") {
			last := strings.LastIndex(rest, ".")
			figure, bound = rest[:last], rest[last+1:]
		}
		names := []string{
			"dimensions." + path, path, "metrics.guest_" + figure + ".device." + bound, "metrics." + figure + ".device." + bound}
		if part != "churn." {
			names = slices.Delete(names, 2, 3)
		}
		if clean, ok := strings.CutPrefix(figure, "clean_"); ok {
			names = append(names, "metrics."+clean+".clean."+bound)
		}
		return names
	}
	return nil
}

// leafValues returns the leaves of a JSON value by their path, which begins with name. An estimate whose mean is null
// has no leaves.
func leafValues(name string, v any) map[string]any {
	out := map[string]any{}
	add := func(key string, part any) {
		for path, leaf := range leafValues(key, part) {
			out[path] = leaf
		}
	}
	switch x := v.(type) {
	case map[string]any:
		if mean, estimate := x["mean"]; estimate && mean == nil {
			return nil
		}
		for key, part := range x {
			if name != "" {
				key = name + "." + key
			}
			add(key, part)
		}
	case []any:
		for i, part := range x {
			add(fmt.Sprintf("%s[%d]", name, i), part)
		}
	default:
		out[name] = v
	}
	return out
}
