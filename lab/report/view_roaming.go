package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/roaming"
	"github.com/gateweigh/gateweigh/lab/result"
)

// roamingView shows what users notice when they go from one gateway to another: a row for each device and number of
// clients.
var roamingView = view{
	mode:    measureOf,
	columns: roamingColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(analysis.Summary) string { return roamingReading },
	first:   roamingScreen,
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "What users notice"
		data.Empty = nothingRecorded("move")
		data.ModeNote = "Each move has a lab of its own, and no other lab stands beside it."
		data.Results = build("What users notice: means over moves, their intervals in brackets", s, s.Cells,
			device(roaming.AgainPct, "Log in again", "*"), device(roaming.AdmitMs, "Let in", "* after, median client"),
			device(roaming.AdmitMaxMs, "Worst", "*"),
			device(roaming.BlockedMs, "Blocked at the former", "* after, median client"),
			device(roaming.BlockedMaxMs, "Worst", "*"), device(roaming.OpenPct, "Still open", "*"),
			pairsColumn("Moves"), rejectedColumn("Rejected"))
		data.Further = tables(s, []cellTable{{"What the RADIUS server was told" + intervals, failover.AcctPct, []cellColumn{
			device(failover.AcctLost, "Not told", "*"), device(failover.AcctDoubled, "Told twice", "*"),
			device(failover.AcctPct, "Accounted", "* of bytes"),
		}}, {"The address at the new gateway" + intervals, "", []cellColumn{
			device(roaming.LeaseMs, "Address", "* after, median client"),
		}}})
	},
}

const roamingReading = "those who log in again got no packet at the new gateway until the end; a client is let " +
	"in when, after its first packet with its new address, one of the server's comes back; it is blocked at the " +
	"former gateway " +
	"so long after that as the last packet passes there: less than nothing when that was before; not told are Starts " +
	"and Stops that the RADIUS server was not told of the sessions at both gateways, and accounted the bytes of which " +
	"it was told, of those that passed both as IP packets."

// roamingColumns returns the columns of the terminal's table.
func roamingColumns(s analysis.Summary) []cellColumn {
	cols := append([]cellColumn{textColumn("DUT", analysis.Cell.DUT)}, settingColumns(roaming.Dimensions)...)
	mean := func(metric, name string) cellColumn { return meanColumn(s.Metrics, metric, name, analysis.Cell.Device) }
	return append(cols,
		mean(roaming.AgainPct, "again %"), mean(roaming.AdmitMs, "let in ms"), mean(roaming.AdmitMaxMs, "worst"),
		mean(roaming.BlockedMs, "blocked ms"), mean(roaming.BlockedMaxMs, "worst").dropFirst(4),
		mean(failover.AcctLost, "not told").dropFirst(3), mean(failover.AcctDoubled, "twice").dropFirst(1),
		mean(failover.AcctPct, "accounted").dropFirst(2))
}

// roamingScreen ranks all devices and numbers of clients by who must log in again.
func roamingScreen(d *drawing) (lead string, r ranking) {
	s := d.summary
	r = ranking{Title: "Clients that must log in again at the other gateway, %", Order: "the fewest first",
		ReachText: intervalText(s)}
	cells := withFigure(s.Cells, deviceOf(roaming.AgainPct))
	if len(cells) == 0 {
		return "", ranking{}
	}
	rankBy(cells, func(c analysis.Cell) analysis.Number { return c.Device(roaming.AgainPct).Mean })
	none := 0
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(roaming.AgainPct)
		row.Figure, row.Value, row.Interval = e, digits3(e.Mean), bounds(e, digits3)
		row.Note = s.Dimensions.Label(c.Without(result.DUT))
		if in := c.Device(roaming.AdmitMaxMs); in.Mean > 0 {
			row.Note += fmt.Sprintf(": let in after %s ms at most", digits3(in.Mean))
		}
		r.Rows = append(r.Rows, row)
		if e.Mean == 0 {
			none++
		}
	}
	lead = fmt.Sprintf("In %d of %d rows nobody must log in again.", none, len(cells))
	return keepTogether(lead), r
}
