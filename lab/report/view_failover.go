package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// failoverView shows what users notice when a gateway fails: a row for each device and fault.
var failoverView = view{
	mode:    measureOf,
	columns: failoverColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(analysis.Summary) string { return failoverReading },
	first:   failoverScreen,
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "What users notice"
		data.Empty = nothingRecorded("fault")
		data.ModeNote = "Each fault has a lab of its own, and no other lab stands beside it."
		data.Results = build("What users notice: means over faults, their intervals in brackets", s, s.Cells,
			device(failover.OutageMs, "Outage", "*, median client"), device(failover.OutageMaxMs, "Worst", "*"),
			device(failover.AgainPct, "Log in again", "*"), device(failover.TCPLostPct, "TCP lost", "*"),
			device(failover.LoginsLost, "Failed logins", ""), device(failover.LoginsMs, "Logins work", "* after"),
			pairsColumn("Faults"), rejectedColumn("Rejected"))
		data.Further = tables(s, []cellTable{{"What the RADIUS server was told" + intervals, failover.AcctPct, []cellColumn{
			device(failover.AcctLost, "Not told", "*"), device(failover.AcctDoubled, "Told twice", "*"),
			device(failover.AcctPct, "Accounted", "* of bytes"),
		}}, {"The longest time between two packets" + intervals, "", []cellColumn{
			device(failover.SilenceMs, "Worst client", "*"),
		}}})
	},
}

const failoverReading = "an outage is the longest time without packets of a client, in the worse direction: of the " +
	"median client, and of the worst one; those who log in again had none until the end, so that their outage is longer " +
	"than shown; TCP connections are lost when they are reset, end, or have no answers at the end; a login fails " +
	"that is not through within 5 s; logins work after the time until somebody who came after the fault was in, and " +
	"nobody failed who came later; not told are Starts and Stops that the RADIUS server was not told, and accounted the " +
	"bytes of which it was told, of those that passed as IP packets."

// failoverColumns returns the columns of the terminal's table.
func failoverColumns(s analysis.Summary) []cellColumn {
	cols := append([]cellColumn{textColumn("DUT", analysis.Cell.DUT)}, settingColumns(failover.Dimensions)...)
	mean := func(metric, name string) cellColumn { return meanColumn(s.Metrics, metric, name, analysis.Cell.Device) }
	return append(cols,
		estimateColumn("outage ms", "", digits3,
			func(c analysis.Cell) analysis.Estimate { return c.Device(failover.OutageMs) }),
		mean(failover.OutageMaxMs, "worst"), mean(failover.AgainPct, "again %"), mean(failover.TCPLostPct, "TCP lost %"),
		mean(failover.LoginsLost, "failed logins"), mean(failover.LoginsMs, "logins after").dropFirst(4),
		mean(failover.AcctLost, "not told").dropFirst(3), mean(failover.AcctDoubled, "twice").dropFirst(1),
		mean(failover.AcctPct, "accounted").dropFirst(2))
}

// shortest is the shortest outage that shows, ms: two pulses.
const shortest = 20

// failoverScreen ranks all devices and faults by the outage of the worst client.
func failoverScreen(d *drawing) (lead string, r ranking) {
	s := d.summary
	r = ranking{Title: "Longest time without packets, the worst client, ms", Order: "the shortest first",
		ReachText: intervalText(s)}
	cells := withFigure(s.Cells, deviceOf(failover.OutageMaxMs))
	if len(cells) == 0 {
		return "", ranking{}
	}
	rankBy(cells, func(c analysis.Cell) analysis.Number { return c.Device(failover.OutageMaxMs).Mean })
	none, faults := 0, 0
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(failover.OutageMaxMs)
		row.Figure, row.Value, row.Interval = e, digits3(e.Mean), bounds(e, digits3)
		row.Note = s.Dimensions.Label(c.Without(result.DUT))
		if e.Mean < shortest {
			row.Note += ": no outage"
		}
		if again := c.Device(failover.AgainPct).Mean; again > 0 {
			row.Note += fmt.Sprintf(": %s %% must log in again", digits3(again))
		}
		r.Rows = append(r.Rows, row)
		if analysis.IsNone(result.Value{Text: c.Text(failover.Fault)}) {
			continue
		}
		faults++
		if e.Mean < shortest {
			none++
		}
	}
	if faults == 0 {
		return "", r
	}
	worst := cells[len(cells)-1]
	lead = fmt.Sprintf("Of %s of a device and a fault, %d had no outage.", words.Counted(faults, "pair"), none)
	if e := worst.Device(failover.OutageMaxMs); e.Mean >= shortest {
		lead += fmt.Sprintf(" The longest one: %s, %s ms.", s.Dimensions.Label(worst.Cell), withBounds(e, digits3))
	}
	return keepTogether(lead), r
}
