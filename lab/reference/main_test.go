package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// TestPagesAreWhatTheCodeSays: make generate would change none of the pages.
func TestPagesAreWhatTheCodeSays(t *testing.T) {
	for _, p := range pages {
		want, err := p.page("../..")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../docs/reference", p.name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("docs/reference/%s is not what the code says (-code +page): make generate\n%s", p.name, diff)
		}
	}
}

// TestKeysHaveMeanings: every key says what it takes and what it means, and is used by some measure.
func TestKeysHaveMeanings(t *testing.T) {
	for _, k := range measure.Catalogue().Reference() {
		if k.Meaning == "" || k.Accepts == "" || len(k.Measures) == 0 {
			t.Errorf("%s: %+v", k.Key, k)
		}
	}
	for _, k := range experiment.DUTReference() {
		if k.Meaning == "" || k.Accepts == "" {
			t.Errorf("dut.NAME.%s: %+v", k.Key, k)
		}
	}
}

// TestPagesNameWhatThereIs: keys with their bounds and defaults, metrics and fields of records.
func TestPagesNameWhatThereIs(t *testing.T) {
	for name, rows := range map[string][]string{
		"experiment-keys.md": {
			"| `blocks` | a whole number from 1 to 1000 | `6` | how often the labs are rebuilt",
			"| `window` | a duration such as \"1s\", from 200ms to 10m | `\"1s\"` (cost, " +
				"throughput, rate); `\"2s\"` (capture) | length of one | cost, throughput, capture, rate " +
				"|",
			"| `search_width` |",
		},
		"device-keys.md": {
			"| `ready_timeout` | a duration such as \"1s\", from 1s to 10m | `\"20s\"` | how long `ready` may take |"},
		"metrics.md": {
			"| `cpu_ns_per_bit` | ns/bit | router | window | less | router CPU per " +
				"delivered bit; device against clean router by ratio |",
			"| `ndr_kpps` |"},
		"records.md": {"| `napi_ns` | integer | threaded-NAPI", "### kind: storm", "| `snap_length` | of a capture"},
	} {
		text, err := os.ReadFile(filepath.Join("../../docs/reference", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if !strings.Contains(string(text), "\n"+row) {
				t.Errorf("%s lacks %q", name, row)
			}
		}
	}
}
