package studies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Units of CPU: ours is exact and of the router alone, the study's is what
// mpstat says of the whole machine.
const (
	unitHere      = "% of a core"
	unitPublished = "% of 8 threads"
)

// tables are in the study's order: chapter 5, both experiments, then appendix A.
func tables(s study1) []Table {
	var out []Table
	for _, x := range []experiment{s.load, s.clients} {
		if x.measured() {
			out = append(append(out, x.comparison()), x.perRouter(x.Steps, x.stepTable)...)
		}
	}
	for _, x := range []experiment{s.load, s.clients} {
		if x.measured() {
			out = append(out, x.perRouter(x.Sampled, x.sampledTable)...)
		}
	}
	return out
}

// perRouter makes one table a router: the study's under their numbers, those of
// other devices as "As table 5.3", after the first portal's.
func (x experiment) perRouter(numbers [3]string, table func(router) Table) []Table {
	var out []Table
	for i, r := range x.Routers {
		t := table(r)
		if i < len(numbers) {
			t.ID, t.Title = "table-"+numbers[i], "Table "+numbers[i]
		} else {
			t.ID, t.Title = "table-"+numbers[1]+"-"+r.DUT, "As table "+numbers[1]
		}
		out = append(out, t)
	}
	return out
}

// column is a Column with what fills it.
type column struct {
	Column
	value func(at float64) Value
}

// comparison is table 5.1 or 5.5: normalised CPU of all routers, then the
// portals' increase over the clean one; then the same for other devices.
func (x experiment) comparison() Table {
	var columns []column
	own, others := x.Routers[:len(scenarios)], x.Routers[len(scenarios):]
	for _, r := range own {
		columns = append(columns, r.cpuColumn("CPU "+r.Heading, normalised))
	}
	for _, r := range own[1:] {
		columns = append(columns, x.increaseColumn(r))
	}
	for _, r := range others {
		columns = append(columns, r.cpuColumn("CPU "+r.Heading, normalised), x.increaseColumn(r))
	}
	t := x.table(columns)
	t.ID, t.Title = "table-"+x.Compare, "Table "+x.Compare
	t.Caption = fmt.Sprintf("Normalised CPU against %s, %s, and its increase over the clean router", x.word(), x.Place)
	t.Note = x.note(x.Routers, x.units(), "An increase measured here is the overhead ratio less one: taken pair by pair and per delivered bit, "+
		"so it does not follow to the last digit from the two columns it compares.")
	return t
}

// stepTable is one of tables 5.2 to 5.4 and 5.6 to 5.8.
func (x experiment) stepTable(r router) Table {
	t := x.table([]column{
		r.cpuColumn("CPU", normalised),
		x.stepColumn(r, "Net increase", "percentage points of a core", "percentage points", netIncrease,
			func(inc analysis.Increment) analysis.Estimate { return inc.NetPct }),
		x.stepColumn(r, "Relative increase", "%", "%", relativeIncrease,
			func(inc analysis.Increment) analysis.Estimate { return inc.RelativePct }),
	})
	t.Caption = fmt.Sprintf("%s: normalised CPU against %s, %s, and its increase from one level to the next", opening(r.Name), x.word(), x.Place)
	t.Note = x.note([]router{r})
	return t
}

// sampledTable is one of tables A.1 to A.6.
func (x experiment) sampledTable(r router) Table {
	link := column{Column: r.column("Bandwidth sampled", "Mbit/s", "Mbit/s"), value: func(at float64) Value {
		return r.value(at, func(l level) analysis.Estimate { return l.LinkMbps }, func(p publishedRow) float64 { return p.LinkMbps })
	}}
	t := x.table([]column{link, r.cpuColumn("CPU sampled", sampled), r.cpuColumn("CPU normalised", normalised)})
	t.Caption = fmt.Sprintf("%s: sampled bandwidth and CPU, and CPU normalised to the limit, against %s, %s", opening(r.Name), x.word(), x.Place)
	t.Note = x.note([]router{r})
	return t
}

// table puts the columns' values in rows, one a level of the study whether it was
// measured here or not, so that every table has the study's shape.
func (x experiment) table(columns []column) Table {
	level := Column{Name: x.Level, Measured: true, Published: true}
	if x.Along == analysis.AlongLoad {
		level.Unit, level.PublishedUnit = "Mbit/s", "Mbit/s"
	}
	t := Table{Columns: []Column{level}}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Column)
	}
	for _, at := range x.Levels {
		row := Row{Level: analysis.Number(at)}
		for _, c := range columns {
			row.Values = append(row.Values, c.value(at))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// quantity is a figure that both the runs and the study have at each level.
type quantity struct {
	here      func(level) analysis.Estimate
	published func(publishedRow) float64
}

var (
	normalised = quantity{func(l level) analysis.Estimate { return l.CPUNormalised }, func(p publishedRow) float64 { return p.CPUNormalised }}
	sampled    = quantity{func(l level) analysis.Estimate { return l.CPUSampled }, func(p publishedRow) float64 { return p.CPUSampled }}
)

// column heads figures of the router; which of the two kinds it has is the same
// for all its columns.
func (r router) column(name, unit, publishedUnit string) Column {
	return Column{
		Name: name, Unit: unit, PublishedUnit: publishedUnit, DUT: r.DUT,
		Measured: r.measured(), Published: len(r.Published) > 0, Run: r.Run,
	}
}

// cpuColumn is CPU at each level, in the two units that have no common scale.
func (r router) cpuColumn(name string, q quantity) column {
	return column{r.column(name, unitHere, unitPublished), func(at float64) Value { return r.value(at, q.here, q.published) }}
}

// value is what was measured at a level beside what the study has there.
func (r router) value(at float64, here func(level) analysis.Estimate, published func(publishedRow) float64) Value {
	v := Value{Here: nothing(), Published: analysis.Absent()}
	if l, ok := r.levels[at]; ok {
		v.Here, v.Flags = here(l), l.Flags
	}
	if p, ok := r.published(at); ok {
		v.Published = analysis.Number(published(p))
	}
	return v
}

// increaseColumn is the increase over the clean router, per cent. The study has
// it from the columns of its table; here it comes from the overhead ratio, whose
// interval knows nothing of the drift that both routers share.
func (x experiment) increaseColumn(r router) column {
	clean := x.Routers[0]
	return column{r.column(r.Heading+" Incr.", "%", "%"), func(at float64) Value {
		v := r.value(at, func(l level) analysis.Estimate { return increase(l.Ratio) }, func(publishedRow) float64 { return math.NaN() })
		p, ok := r.published(at)
		if base, known := clean.published(at); ok && known {
			v.Published = relativeIncrease(base, p)
		}
		return v
	}}
}

// stepColumn is the increment that leads to a level, empty at the first. A run
// that lacks the level before took another step, which is not shown.
func (x experiment) stepColumn(r router, name, unit, publishedUnit string,
	published func(from, to publishedRow) analysis.Number, here func(analysis.Increment) analysis.Estimate) column {
	return column{r.column(name, unit, publishedUnit), func(at float64) Value {
		v := Value{Here: nothing(), Published: analysis.Absent()}
		i := slices.Index(x.Levels, at)
		if i == 0 {
			return v
		}
		before := x.Levels[i-1]
		if inc, ok := r.step(before, at); ok {
			v.Here = here(inc)
			v.Flags = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.levels[before].Flags, r.levels[at].Flags))))
		}
		from, hasFrom := r.published(before)
		to, hasTo := r.published(at)
		if hasFrom && hasTo {
			v.Published = published(from, to)
		}
		return v
	}}
}

// netIncrease and relativeIncrease are of normalised CPU, in percentage points
// and per cent, with the two decimals the study prints.
func netIncrease(from, to publishedRow) analysis.Number {
	return twoDecimals(to.CPUNormalised - from.CPUNormalised)
}

func relativeIncrease(from, to publishedRow) analysis.Number {
	return twoDecimals(100 * (to.CPUNormalised/from.CPUNormalised - 1))
}

func twoDecimals(v float64) analysis.Number { return analysis.Number(math.Round(100*v) / 100) }

// increase turns a ratio into an increase in per cent.
func increase(ratio analysis.Estimate) analysis.Estimate {
	of := func(n analysis.Number) analysis.Number { return 100 * (n - 1) }
	return analysis.Estimate{Mean: of(ratio.Mean), Lo: of(ratio.Lo), Hi: of(ratio.Hi), N: ratio.N}
}

// word is what the experiment goes along, in a sentence.
func (x experiment) word() string {
	if x.Along == analysis.AlongLoad {
		return "bandwidth limit"
	}
	return "number of clients"
}

// note says what must be known to read a table of these routers, after what is
// given to say first.
func (x experiment) note(routers []router, said ...string) string {
	for _, r := range routers {
		if r.measured() {
			said = append(said, x.caveats(r)...)
		} else {
			said = append(said, fmt.Sprintf("%s is not measured here: published values only.", opening(r.Name)))
		}
	}
	said = append(said, marks(routers)...)
	return strings.Join(append(said, x.sources(routers)...), " ")
}

// sources say which run the routers were measured in, where several were given.
func (x experiment) sources(routers []router) []string {
	byRun := map[string][]string{}
	var order []string
	for _, r := range routers {
		if r.measured() && byRun[r.Run] == nil {
			order = append(order, r.Run)
		}
		byRun[r.Run] = append(byRun[r.Run], r.Name)
	}
	if x.Runs < 2 {
		return nil
	}
	var said []string
	for _, run := range order {
		said = append(said, fmt.Sprintf("Of run %s: %s.", run, listed(byRun[run])))
	}
	return said
}

// units says how CPU here and CPU in the study compare.
func (x experiment) units() string {
	text := "CPU here is the exact time of the router's own threads and the device's processes, in per cent of one core"
	if x.CPUs > 1 {
		text += fmt.Sprintf(" (divided by %d: of this machine)", x.CPUs)
	}
	return text + "; published CPU is what mpstat said of a whole machine of 8 hardware threads (times 8: of one thread). " +
		"Compare ratios and steps, not the percentages themselves."
}

// caveats say what of a router's figures differs from what the table's head promises.
func (x experiment) caveats(r router) []string {
	var said []string
	if r.Profile != perPacket {
		said = append(said, fmt.Sprintf("%s was measured in profile %s.", opening(r.Name), r.Profile))
	}
	var absent []string
	for _, at := range x.Levels {
		if _, ok := r.levels[at]; !ok {
			absent = append(absent, x.at(at))
		}
	}
	if len(absent) > 0 {
		said = append(said, fmt.Sprintf("%s was not measured %s %s.", opening(r.Name), x.by(), listed(absent)))
	}
	if len(r.Extra) > 0 {
		var extra []string
		for _, at := range r.Extra {
			extra = append(extra, x.at(at))
		}
		said = append(said, fmt.Sprintf("The run also has %s %s %s, which the study does not.", r.Name, x.by(), listed(extra)))
	}
	return said
}

// marks explain the flags the routers' values carry.
func marks(routers []router) []string {
	seen := map[string]bool{}
	for _, r := range routers {
		for _, l := range r.levels {
			for _, flag := range l.Flags {
				seen[flag] = true
			}
		}
	}
	var said []string
	for _, mark := range []struct{ flag, text string }{
		{analysis.FlagShortfall, "the device carried less than 90 % of the limit, so normalised CPU there is CPU that was never spent"},
		{result.FlagSaturated, "the device could not carry the load"},
		{result.FlagLossy, "clients had to send more than 1 % of the segments again, or lost so many datagrams"},
	} {
		if seen[mark.flag] {
			said = append(said, fmt.Sprintf("Marked %s: %s.", mark.flag, mark.text))
		}
	}
	return said
}
