package experiment_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/gateweigh/gateweigh/lab/experiment"
)

const manual = "../../docs/adding-a-dut.md"

// TestManualBlocksLoad loads every TOML block of the manual.
func TestManualBlocksLoad(t *testing.T) {
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(text), "```toml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
		if _, err := known.Parse("block.toml", []byte(block)); err != nil {
			t.Errorf("%v\nin:\n%s", err, block)
		}
	}
	if len(blocks) < 2 {
		t.Fatalf("%d TOML blocks found", len(blocks))
	}
	// The first block is the shipped file without its opening comment.
	shipped, err := BuiltinFiles.ReadFile("builtin/allowlist.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(shipped), "\n"+blocks[0]) {
		t.Errorf("%s shows another allowlist than the one that ships", manual)
	}
	_, device, _ := strings.Cut(blocks[0], "[dut.")
	if n := strings.Count(device, "\n"); n > 20 {
		t.Errorf("the example takes %d lines", n)
	}
}

// TestManualIsComplete: the table of the manual names every variable there is, and none that is not.
func TestManualIsComplete(t *testing.T) {
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ := strings.Cut(rest, "`")
			rows = append(rows, key)
		}
	}
	slices.Sort(rows)
	want := slices.Sorted(slices.Values(Vars))
	if !slices.Equal(rows, want) {
		t.Errorf("manual has %v\nlab has    %v", rows, want)
	}
}

// TestExperimentsOfTheManual: the manual says what experiments of two unlike labs measure, and its examples load.
func TestExperimentsOfTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range known.Builtins() {
		if (e.Beside != Beside{}) && !strings.Contains(string(text), "`"+e.Name+"`") {
			t.Errorf("the reference does not say what %s measures", e.Name)
		}
	}
	for _, part := range strings.Split(string(text), "```toml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		if _, err := known.Parse("block.toml", []byte(block)); err != nil {
			t.Errorf("%v\nin:\n%s", err, block)
		}
	}
}
