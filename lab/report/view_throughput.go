package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// searchView is the view of runs with the measure "throughput": how many frames a second each device forwards.
var searchView = view{
	mode:    measureOf,
	columns: searchColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(s analysis.Summary) string { return fmt.Sprintf(searchReading, cpuOrRTTText(s)) },
	first:   searchScreen,
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "How many frames each device forwards"
		data.Empty = nothingRecorded("search")
		data.ModeNote = "Each search has a lab of its own, and no clean router stands beside the device: clean is the " +
			"router without one."
		var columns []cellColumn
		for _, g := range goalsOf(s) {
			columns = append(columns, device(g.prefix+throughput.Kpps, g.name, "*"), device(g.prefix+throughput.Mbps, g.name,
				"*"), device(g.prefix+throughput.Layer1, "Layer 1", "*"), device(g.prefix+throughput.LinePct, "Of the line", "*"),
				device(g.prefix+throughput.CorePct, "Router CPU there", "*"), device(g.prefix+throughput.RTTUs, "RTT there", "*"),
				device(g.prefix+throughput.RTTTailUs, "RTT p99 there", "*"))
		}
		columns = append(columns, textColumn("Limit", limitOf), pairsColumn("Searches"), rejectedColumn("Rejected"))
		data.Results = build("Every device: means over searches, their intervals in brackets", s, s.Cells, columns...)
	},
}

const searchReading = "NDR is what a device forwards at the highest load of which it loses no frame, in at least " +
	"half of the trials; PDR the same where it may lose that share; " +
	"%s at that load; at least: the generator's limit, or max_kpps, was reached first."

// searchGoal is a goal of a run's searches, such as the highest load without loss (NDR).
type searchGoal struct {
	prefix string // of the names of its metrics: "ndr_"
	name   string // "NDR"
}

// goalsOf finds the goals by the metrics that a run has.
func goalsOf(s analysis.Summary) (list []searchGoal) {
	for _, m := range s.Metrics {
		if prefix, found := strings.CutSuffix(m.Name, throughput.Kpps); found {
			list = append(list, searchGoal{prefix, words.Or(m.Short, m.Name)})
		}
	}
	return list
}

// limitOf is "at least" if something other than the device limited a cell's searches, so that the device forwards that
// much or more; otherwise it is empty.
func limitOf(c analysis.Cell) string {
	if c.Flagged(throughput.AtLeast) {
		return "at least"
	}
	return ""
}

// searchColumns are the columns of the terminal's table.
func searchColumns(s analysis.Summary) []cellColumn {
	cols := []cellColumn{textColumn("DUT", analysis.Cell.DUT), textColumn("frames", func(c analysis.Cell) string {
		return words.Frames(c.Text(result.FrameSize))
	})}
	cols = append(cols, settingColumns(throughput.Dimensions, result.FrameSize)...)
	for i, g := range goalsOf(s) {
		cols = append(cols,
			estimateColumn(g.name+" kframes/s", "", digits3,
				func(c analysis.Cell) analysis.Estimate { return c.Device(g.prefix + throughput.Kpps) }).dropFirst(3*i),
			numberColumn("Mbit/s", "", "", digits3,
				func(c analysis.Cell) analysis.Number { return c.Device(g.prefix + throughput.Mbps).Mean }).dropFirst(3*i+2),
			cpuOrRTTColumn(s, g).dropFirst(3*i+1))
	}
	return append(cols, textColumn("limit", limitOf))
}

// withoutCPU reports whether the router's CPU is not known.
func withoutCPU(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool {
		return c.Flagged(throughput.NoAgent) || c.Flagged(throughput.Unmetered)
	})
}

// cpuOrRTTText explains the column cpuOrRTTColumn.
func cpuOrRTTText(s analysis.Summary) string {
	if withoutCPU(s) {
		return "RTT is the median round-trip time of probes beside the frames"
	}
	return "CPU is the router's"
}

// cpuOrRTTColumn shows the router's CPU at the load of a goal. Where that is not known it shows the round-trip time
// instead.
func cpuOrRTTColumn(s analysis.Summary, g searchGoal) cellColumn {
	if withoutCPU(s) {
		return numberColumn("RTT µs", "", "", digits3,
			func(c analysis.Cell) analysis.Number { return c.Device(g.prefix + throughput.RTTUs).Mean })
	}
	return numberColumn("CPU", "", "", percent,
		func(c analysis.Cell) analysis.Number { return c.Device(g.prefix + throughput.CorePct).Mean })
}

// searchScreen makes the page's first screen: it ranks the devices by the first goal, for the run's first frame size.
// For that size, usually the smallest, the number of frames limits devices most.
func searchScreen(d *drawing) (lead string, r ranking) {
	goals := goalsOf(d.summary)
	if len(d.summary.Cells) == 0 || len(goals) == 0 {
		return "", ranking{}
	}
	metric, name := goals[0].prefix+throughput.Kpps, goals[0].name
	setting := d.summary.Cells[0].Without(result.DUT)
	cells := slices.DeleteFunc(
		slices.Clone(d.summary.Cells), func(c analysis.Cell) bool { return c.Without(result.DUT) != setting })
	rankBy(cells, func(c analysis.Cell) analysis.Number { return -c.Device(metric).Mean })
	r = ranking{
		Title: name + ", thousand frames a second", Order: "the most first", ReachText: intervalText(d.summary),
		Load: fmt.Sprintf("%s, %s, %s", words.Frames(setting.Text(result.FrameSize)), words.Counted(setting.Int(
			result.Clients), "client"), setting.Text(result.Direction)),
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(metric)
		row.Figure, row.Value, row.Interval, row.Facts = e, digits3(e.Mean), bounds(e, digits3),
			searchFacts(c, d.summary, goals)
		switch {
		case c.Pairs == 0:
			row.Note = notAccepted(c, "search")
		case c.Flagged(throughput.AtLeast):
			row.Value, row.Note = "≥ "+row.Value, "the generator's limit"
		}
		r.Rows = append(r.Rows, row)
	}
	first, last := cells[0], cells[len(cells)-1]
	if most, least := first.Device(metric).Mean, last.Device(metric).Mean; most.Known() && least.Known() {
		lead = fmt.Sprintf("With %s, %s forwards %s%s thousand frames a second without loss", words.Frames(setting.Text(
			result.FrameSize)), first.DUT(), orMoreText(first), digits3(most))
		if len(cells) > 1 {
			lead += fmt.Sprintf(", and %s %s%s", last.DUT(), orMoreText(last), digits3(least))
		}
		lead = words.Joined("; ", lead, orderClause(withFigure(cells, deviceOf(metric)), deviceOf(metric))) + "."
	}
	return keepTogether(lead), r
}

// orMoreText is "at least " before a figure that something other than the device limited.
func orMoreText(c analysis.Cell) string {
	if c.Flagged(throughput.AtLeast) {
		return "at least "
	}
	return ""
}

// searchFacts lists a device's further figures: CPU, the other goals, and other frame sizes.
func searchFacts(c analysis.Cell, s analysis.Summary, goals []searchGoal) (facts factList) {
	if c.Pairs == 0 {
		return nil
	}
	for i, g := range goals {
		kpps, mbps, cpu := c.Device(g.prefix+throughput.Kpps), c.Device(g.prefix+throughput.Mbps).Mean,
			c.Device(g.prefix+throughput.CorePct).Mean
		if i > 0 {
			facts.add(kpps.Mean.Known(), g.name, "%s kframes/s", withBounds(kpps, digits3))
		}
		facts.add(mbps.Known(), g.name+", bits", "%s Mbit/s", digits3(mbps))
		facts.add(cpu.Known(), g.name+", router CPU", "%s of a core", percent(cpu))
		rtt := c.Device(g.prefix + throughput.RTTUs).Mean
		facts.add(rtt.Known(), g.name+", round-trip time", "%s µs", digits3(rtt))
	}
	for _, other := range s.Cells {
		e := other.Device(goals[0].prefix + throughput.Kpps)
		if other.DUT() == c.DUT() && other.Cell != c.Cell && e.Mean.Known() {
			facts.add(true, goals[0].name+", "+words.Frames(other.Text(result.FrameSize)), "%s%s kframes/s", orMoreText(other),
				withBounds(e, digits3))
		}
	}
	return facts
}
