package admin

import (
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/units"
)

// Sizes of a chart in its own units, which the page stretches.
const (
	chartWidth  = 960.
	chartHeight = 200.
	leftEdge    = 62.
	bottomEdge  = 24.
	topEdge     = 8.
)

// chart is bars over time: what clients received, with what they sent on top.
type chart struct {
	Title    string
	Width    float64
	Height   float64
	Bars     []bar
	Lines    []gridLine
	Labels   []label
	Total    string
	Baseline float64
	Left     float64
}

// bar is a slot: its place, and its text for pointers and screen readers.
type bar struct {
	X, Width              float64
	DownY, DownHeight     float64
	UpY, UpHeight         float64
	When, Down, Up, Total string
	Clients               int
	Drawn                 bool // it is not 0
}

type gridLine struct {
	Y    float64
	Text string
}

type label struct {
	X    float64
	Text string
}

// hourChart shows the last 48 hours.
func hourChart(all []Slot, now time.Time) chart {
	const shown = 48
	first := now.Truncate(time.Hour).Add(-(shown - 1) * time.Hour)
	var begins []time.Time
	for i := range shown {
		begins = append(begins, first.Add(time.Duration(i)*time.Hour))
	}
	return newChart("Last 48 hours", begins, all, func(t time.Time) string { return t.Local().Format("Mon 15:04") },
		func(t time.Time) string {
			if t.Local().Hour()%6 != 0 {
				return ""
			}
			if t.Local().Hour() == 0 {
				return t.Local().Format("Mon 2")
			}
			return t.Local().Format("15:04")
		})
}

// dayChart shows the last 30 days.
func dayChart(all []Slot, now time.Time) chart {
	const shown = 30
	y, m, d := now.Date()
	var begins []time.Time
	for i := range shown {
		begins = append(begins, time.Date(y, m, d-shown+1+i, 0, 0, 0, 0, now.Location()))
	}
	return newChart("Last 30 days", begins, all, func(t time.Time) string { return t.Format("Mon 2 Jan") },
		func(t time.Time) string {
			if t.Weekday() != time.Monday {
				return ""
			}
			return t.Format("2 Jan")
		})
}

// newChart draws the slots that begin at times. name names one, and axis is its text on the axis, "" for none.
func newChart(title string, begins []time.Time, all []Slot, name, axis func(time.Time) string) chart {
	byTime := map[int64]Slot{}
	for _, s := range all {
		byTime[s.Begin.Unix()] = s
	}
	c := chart{Title: title, Width: chartWidth, Height: chartHeight, Baseline: chartHeight - bottomEdge, Left: leftEdge}
	most, total := uint64(0), uint64(0)
	for _, t := range begins {
		s := byTime[t.Unix()]
		most, total = max(most, s.UpBytes+s.DownBytes), total+s.UpBytes+s.DownBytes
	}
	c.Total = units.Bytes(total)
	top, step := scale(most)
	height := func(n uint64) float64 { return float64(n) / top * (c.Baseline - topEdge) }
	for v := 0.; v <= top; v += step {
		c.Lines = append(c.Lines, gridLine{c.Baseline - v/top*(c.Baseline-topEdge), units.Bytes(uint64(v))})
	}
	slot := (chartWidth - leftEdge) / float64(len(begins))
	for i, t := range begins {
		s := byTime[t.Unix()]
		x := leftEdge + float64(i)*slot
		b := bar{X: x + slot*.12, Width: slot * .76, When: name(t), Clients: s.Clients, Down: units.Bytes(s.DownBytes),
			Up: units.Bytes(s.UpBytes), Total: units.Bytes(s.UpBytes + s.DownBytes), Drawn: s.UpBytes+s.DownBytes > 0}
		b.DownHeight, b.UpHeight = height(s.DownBytes), height(s.UpBytes)
		b.DownY = c.Baseline - b.DownHeight
		b.UpY = b.DownY - b.UpHeight
		c.Bars = append(c.Bars, b)
		if text := axis(t); text != "" {
			c.Labels = append(c.Labels, label{min(x+slot/2, chartWidth-20), text})
		}
	}
	return c
}

// scale returns the top of an axis that shows most bytes, and the step of its lines: 1, 2 or 5 of a power of ten.
func scale(most uint64) (top, step float64) {
	step = 1
	for factor := 0; step*4 < float64(max(most, 4)); factor++ {
		step *= []float64{2, 2.5, 2}[factor%3]
	}
	for top = step; top < float64(most); top += step {
	}
	return top, step
}

// XY is a number as SVG has it.
func (chart) XY(v float64) string { return fmt.Sprintf("%.1f", v) }
