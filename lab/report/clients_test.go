// Tests of totals by client in a report. simulate makes a run from a description such as portalSpec or single, without
// measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// manyClientsRun is a run with that many clients, all connected at the same time. In one block three streams broke.
func manyClientsRun(clients int) result.Run {
	run := analysistest.Run(single())
	for i := range run.Trials {
		run.Trials[i].Cell = run.Trials[i].Cell.With(result.Clients, clients)
	}
	for i := range run.Blocks {
		b := &run.Blocks[i]
		b.Clients = clients
		stay := cost.StayOf(*b)
		stay.Addresses, stay.CleanAddresses, stay.Leased, stay.LoggedIn = result.FromDevice, result.Static, clients, clients
		shared := cost.Fairness{Streams: clients, Jain: 0.9, Even: 0.95}
		s := cost.Stretch{OfferedMbps: 500, WarmupSeconds: 33.2, Fairness: shared, CleanFairness: shared,
			Memory: cost.Memory{MiB: 2000, Clients: 2 * clients}}
		if b.Block == 1 {
			s.Fairness.Broken = 3
		}
		stay.Stretches = []cost.Stretch{s}
	}
	return run
}

// TestClientTotals: with 65,000 clients, a line below the terminal's table and the page say whether all were connected
// at the same time. With a hundred clients they do not.
func TestClientTotals(t *testing.T) {
	const want = "All at once: ebpf with 65 000 clients at 500 Mbit/s up: all 65 000 had an address, leased from it; " +
		"all 65 000 were logged in; " +
		"64 997 of 65 000 streams were connected at once, and 65 000 at the clean router; Jain's index is 0.9000 of at " +
		"most 0.9500; "
	s := measure.Summarise(manyClientsRun(65_000), analysis.Options{Confidence: 0.95})
	var terminal bytes.Buffer
	if err := report.Terminal(&terminal, s, 0); err != nil {
		t.Fatal(err)
	}
	if text := plainSpaces(terminal.String()); !strings.Contains(text, want) ||
		!strings.Contains(text, "both labs took 15.8 KiB of the machine's memory a client.") {
		t.Errorf("under the table:\n%s", text)
	}
	var page bytes.Buffer
	if err := report.HTML(&page, manyClientsRun(65_000), s); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"64 997 of 65 000 streams", "All clients at once, of several blocks", `data-sort="64997"`, `data-sort="33.2"`} {
		if !strings.Contains(plainSpaces(page.String()), part) {
			t.Errorf("the page does not have %q", part)
		}
	}
	var few bytes.Buffer
	if err := report.Terminal(
		&few, measure.Summarise(manyClientsRun(100), analysis.Options{Confidence: 0.95}), 0); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(few.String(), "All at once") {
		t.Errorf("a hundred clients:\n%s", few.String())
	}
}

// plainSpaces replaces narrow and no-break spaces by ordinary ones.
func plainSpaces(text string) string {
	return strings.NewReplacer("\u202f", " ", "\u00a0", " ").Replace(text)
}
