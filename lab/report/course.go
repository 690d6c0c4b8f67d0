package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// CourseCSVFile is the file in a run folder with the courses within windows, if the run recorded them.
const CourseCSVFile = "course.csv"

// coursesOf are the courses of a run by cell.
func coursesOf(run result.Run) ([]analysis.CellCourse, error) {
	counted, counts := map[result.TrialKey]bool{}, analysis.Counting(cost.TrialsOf(run.Trials))
	for i, t := range run.Trials {
		counted[t.Key()] = t.Accepted && counts[i]
	}
	return analysis.Courses(run, counted)
}

// courseFigure is one of the figures that courses have.
type courseFigure struct {
	name, title, label string // name in the CSV, title of its chart, label of the chart's axis
	print              format
	of                 func(analysis.SideCourse) []analysis.Spread
}

var courseFigures = []courseFigure{
	{cost.Link, "rate", "On the outgoing link, Mbit/s", digits3,
		func(s analysis.SideCourse) []analysis.Spread { return s.LinkMbps }},
	{cost.CPU, "router CPU", "Router CPU, % of a core", percentBare,
		func(s analysis.SideCourse) []analysis.Spread { return s.CorePct }},
	{"rtt_us", "round-trip time", "Round-trip time, µs", digits3,
		func(s analysis.SideCourse) []analysis.Spread { return s.RTTUs }},
}

// CourseCSV writes one row for each step of each side of each cell: the cell's dimensions, the side, and the time at
// which the step began. For each figure it has the median over blocks (NAME), the quartiles (NAME_lo and NAME_hi) and
// the number of blocks (NAME_blocks).
func CourseCSV(w io.Writer, courses []analysis.CellCourse) error {
	out := csv.NewWriter(w)
	var row []string
	for _, v := range courses[0].Cell.Values() {
		row = append(row, string(v.Dimension))
	}
	row = append(row, "side", "ms")
	for _, f := range courseFigures {
		row = append(row, f.name, f.name+"_lo", f.name+"_hi", f.name+"_blocks")
	}
	_ = out.Write(row) // errors stay until the end
	for _, c := range courses {
		for _, side := range []struct {
			name string
			analysis.SideCourse
		}{{"device", c.Device}, {"clean", c.Clean}} {
			for step := range courseSteps(side.SideCourse) {
				row = row[:0]
				for _, v := range courses[0].Cell.Values() {
					row = append(row, result.PrintablePage(c.Cell.Text(v.Dimension)))
				}
				row = append(row, side.name, strconv.FormatFloat(float64(step)*c.StepMs, 'f', -1, 64))
				for _, f := range courseFigures {
					s := spreadOf(f.of(side.SideCourse), step)
					row = append(row, s.Median.String(), s.Lo.String(), s.Hi.String(), strconv.Itoa(s.Blocks))
				}
				_ = out.Write(row)
			}
		}
	}
	out.Flush()
	return out.Error()
}

func courseSteps(s analysis.SideCourse) (steps int) {
	for _, f := range courseFigures {
		steps = max(steps, len(f.of(s)))
	}
	return steps
}

func spreadOf(list []analysis.Spread, step int) analysis.Spread {
	if step < len(list) {
		return list[step]
	}
	return analysis.Spread{Median: analysis.Absent(), Lo: analysis.Absent(), Hi: analysis.Absent()}
}

// courseGroups draws the courses within windows, each device against its clean router. Of each device it draws the
// heaviest load with accepted trials.
func (d *drawing) courseGroups(courses []analysis.CellCourse) (out []figureGroup) {
	for _, c := range rankedCells(d.summary) {
		i := slices.IndexFunc(courses, func(k analysis.CellCourse) bool { return k.Cell == c.Cell })
		if i < 0 {
			continue
		}
		g := figureGroup{Heading: words.Joined(" at ", c.DUT(), loadAndClients(c))}
		for _, f := range courseFigures {
			if len(f.of(courses[i].Device)) > 0 {
				g.Figures = append(g.Figures, d.courseOf(courses[i], f))
			}
		}
		if len(g.Figures) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// courseHeight of the plots, pixels: there are three for each device.
const courseHeight = 130

// courseOf draws one figure of one cell.
func (d *drawing) courseOf(c analysis.CellCourse, f courseFigure) figure {
	dut := c.Cell.Text(result.DUT)
	ch := chart.XY{Title: dut + ": " + f.title, XLabel: "Since the window began, seconds", YLabel: f.label,
		Reference: math.NaN(), Height: courseHeight, OverTime: true}
	data := newGrid("", "<Router", "After|s", f.label, "Quartiles", "Blocks")
	var tips []string
	for _, side := range []struct {
		name  string
		style chart.Style
		steps []analysis.Spread
	}{
		{"clean router", chart.Style{Number: chart.Clean, Hollow: true}, f.of(c.Clean)},
		{dut, d.style(dut), f.of(c.Device)},
	} {
		line := chart.Series{Name: side.name, Style: side.style, Area: true}
		least, most := analysis.Number(math.Inf(1)), analysis.Number(math.Inf(-1))
		for i, s := range side.steps {
			seconds := (float64(i) + 0.5) * c.StepMs / 1000
			if !s.Median.Known() {
				continue
			}
			least, most = min(least, s.Median), max(most, s.Median)
			line.Points = append(
				line.Points, chart.Point{X: seconds, Y: float64(s.Median), Lo: float64(s.Lo), Hi: float64(s.Hi)})
			data.add("", nameCell(side.name, ""), numberCell(analysis.Number(float64(i)*c.StepMs/1000), digits3),
				numberCell(s.Median, f.print), textCell(f.print(s.Lo)+" to "+f.print(s.Hi)), countCell(s.Blocks))
		}
		if len(line.Points) > 0 {
			ch.Series = append(ch.Series, line)
			tips = append(tips, fmt.Sprintf("%s: medians from %s to %s", side.name, f.print(least), f.print(most)))
		}
	}
	ch.Desc = sentences(tips)
	return d.finish(words.Capitalised(f.title), "", ch.Draw, data)
}
