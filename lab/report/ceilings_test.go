package report_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// A ceiling is the highest load that a router carries in full and without loss, if it runs alone (mode solo).
// portalSpec is the simulated run of most tests of this package: devices coovachilli, ebpf and opennds.

// TestTerminalCeilings: the terminal shows a table of ceilings above the table of the cells.
func TestTerminalCeilings(t *testing.T) {
	turns := portalSpec()
	turns.Mode, turns.Directions = result.ModeSolo, []string{"up", "down"}
	var b strings.Builder
	if err := report.Terminal(&b, measure.Summarise(simulate(turns), analysis.Options{}), 0); err != nil {
		t.Fatal(err)
	}
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	var lines []string
	for _, line := range strings.Split(b.String(), "\n") {
		lines = append(lines, words(line))
	}
	for _, want := range []string{
		"ceiling direction carries router CPU fails at by delivers at most",
		"clean router down ≥ 1 Gbit/s (n = 18) 8.", "coovachilli up 500 Mbit/s (n = 6) 19.5 % [",
		"ebpf up ≥ 1 Gbit/s (n = 6) 7.", "opennds down ≥ 1 Gbit/s (n = 6) 17.", "Ceilings: carried is",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line begins with %q:\n%s", want, b.String())
		}
	}
	if ceilings, cells := strings.Index(b.String(), "\nceiling"), strings.Index(b.String(), "\nDUT"); ceilings > cells {
		t.Errorf("the table begins with the cells:\n%s", b.String())
	}
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "coovachilli up 500 Mbit/s (n") &&
			!strings.HasSuffix(line, "] 1 Gbit/s (n = 6) shortfall 770 Mbit/s [770 Mbit/s, 770 Mbit/s]"),
			strings.HasPrefix(line, "ebpf up ≥") && !strings.HasSuffix(line, "] – –"): // no load failed: no most is known
			t.Errorf("%q", line)
		}
	}
}

// TestPageLeadsWithCeilings: if a device reached its ceiling, the page's picture and first sentence are about ceilings.
func TestPageLeadsWithCeilings(t *testing.T) {
	turns := portalSpec()
	turns.Mode = result.ModeSolo
	run := simulate(turns)
	var b bytes.Buffer
	if err := report.HTML(&b, run, measure.Summarise(run, analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(b.String(), "\u00a0", " ")
	for _, want := range []string{
		`<p class="lead">Alone on the machine and without loss, ebpf and opennds carry at least 1 Gbit/s, and coovachilli 500 Mbit/s but not 1 Gbit/s.</p>`,
		`<h2 id="costs">What they carry, and what they cost</h2>`, "with 20 clients, upload",
		`<b>500 Mbit/s</b>`, `<b>≥ 1 Gbit/s</b>`, "fails at 1 Gbit/s by shortfall",
		"The clean router carries at least 1 Gbit/s.",
		`data-head="Carries">500 Mbit/s (n = 6)</td>`,
		`data-head="Fails at">1 Gbit/s (n = 6) by shortfall, delivers at most 770 Mbit/s [770 Mbit/s, 770 Mbit/s]</td>`,
		`data-head="Fails at">more was not offered</td>`, `data-head="CPU per bit">4.95 × [`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
