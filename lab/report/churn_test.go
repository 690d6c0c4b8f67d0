// Tests of what a report says of guests, clients that come and go. simulate makes a run from a description such as
// portalSpec or single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// guestsRun is a run with guests: clients that come, log in and leave during the measurement. Afterwards the device
// ebpf counts as many clients as before, and opennds more clients but no more sessions. coovachilli reports no counts.
func guestsRun() result.Run {
	run := analysistest.Run(single())
	for i := range run.Blocks {
		b := &run.Blocks[i]
		if b.AA {
			continue
		}
		state := func(clients, flows int) cost.DeviceState {
			s := cost.DeviceState{PSSMiB: 9, RuleLines: 40, Flows: flows}
			if b.DUT != "coovachilli" {
				s.Counts = map[string]int{"clients": clients, "sessions": 20}
			}
			return s
		}
		churn := &cost.Churn{PerSecond: 5, Came: 10, In: 10, Gone: 10, LoginP50Ms: 12, LoginP99Ms: 40,
			Before: state(20, 101), After: state(20, 101)}
		cost.StayOf(*b).Churn = churn
		if b.DUT == "opennds" {
			churn.In, churn.Gone, churn.After = 9, 8, state(51, 379)
		}
	}
	return run
}

// TestGuests: rows below the picture say how many guests logged in and left, and which counts and connections the
// device has afterwards. The picture says so if some guests were not admitted.
func TestGuests(t *testing.T) {
	run := guestsRun()
	s := measure.Summarise(run, analysis.Options{})
	var page, text bytes.Buffer
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	if err := report.Terminal(&text, s, 0); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(page.String(), "<h3")
	for _, want := range []string{
		`data-head="Guests">all 60 guests got in, and it forgot them all (clients 20 → 20, sessions 20 → 20); half were in within 12.0 ms</td>`,
		`data-head="Guests">54 of 60 guests got in, 48 left in order; it forgot them all in 0 of 6 blocks (clients 20 → 51, sessions 20 → 20); half`,
		`data-head="Guests">all 60 guests got in; the device does not report whom it knows`,
		`data-head="Tracked connections">101 → 379</td>`, "54 of 60 guests got in</span>",
	} {
		if !strings.Contains(plainSpaces(first), want) {
			t.Errorf("above the first heading the page does not say %q:\n%s", want, first)
		}
	}
	var table bytes.Buffer
	if err := report.CSV(&table, s); err != nil {
		t.Fatal(err)
	}
	if got := csvColumn(t, table.Bytes(), "count_after.clients"); !slices.Equal(got, []string{"", "20", "51"}) {
		t.Errorf("clients that devices know in the end, by the CSV: %q", got)
	}
	for _, want := range []string{
		"Guests: opennds with 20 clients: 5 a second in 6 blocks, 54 of 60 guests got in", "tracked connections 101 → 379"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
}

// csvColumn returns a column of a CSV table by its name, without the heading.
func csvColumn(t *testing.T, table []byte, name string) (values []string) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	index := slices.Index(rows[0], name)
	if index < 0 {
		t.Fatalf("no column %q", name)
	}
	for _, row := range rows[1:] {
		values = append(values, row[index])
	}
	return values
}

// TestWarningWithoutGuests: if no guest came to a device, the report does not say that all got in. A warning says that
// nothing is known of guests.
func TestWarningWithoutGuests(t *testing.T) {
	run := guestsRun()
	for i := range run.Blocks {
		if c := cost.StayOf(run.Blocks[i]).Churn; c != nil && run.Blocks[i].DUT == "opennds" {
			c.Came, c.In, c.Gone, c.LoginP50Ms, c.LoginP99Ms = 0, 0, 0, 0, 0
		}
	}
	s := measure.Summarise(run, analysis.Options{})
	var text bytes.Buffer
	if err := report.Terminal(&text, s, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "5 a second in 6 blocks, no guest came") ||
		strings.Contains(text.String(), "all 0 guests") {
		t.Errorf("of guests that did not come:\n%s", text.String())
	}
	about := slices.DeleteFunc(
		slices.Clone(s.Warnings), func(w string) bool { return !strings.HasPrefix(w, "No guest came") })
	if len(about) != 1 || !strings.Contains(about[0], "opennds") || strings.Contains(about[0], "coovachilli") {
		t.Errorf("warnings about guests: %q", about)
	}
}
