package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// familiesGrid compares each device with clients of other families with itself with clients of IPv4.
func familiesGrid(s analysis.Summary) grid {
	if len(s.Families) == 0 {
		return grid{}
	}
	g := newGrid("By IPv6, and by both, over IPv4: each device over itself, round by round", "<Router", "<Setting",
		"<Figure", "Over IPv4", "n")
	for _, f := range s.Families {
		g.add(f.Cell.String()+"|"+f.Metric, routerCell(f.Cell), textCell(familySetting(s, f.Cell)),
			textCell(metricText(s, f.Metric)), estimateCell(f.Ratio, digits3OfRatio), countCell(f.Ratio.N))
	}
	return g
}

// familySetting names the dimensions of a cell besides its device.
func familySetting(s analysis.Summary, c result.Cell) (text string) {
	for _, d := range s.Dimensions.Without(result.DUT) {
		if v, ok := c.Value(d.Name); ok {
			text = words.Joined(", ", text, d.Say(v))
		}
	}
	return text
}

// metricText names a metric with its unit: "login_per_second, clients/s".
func metricText(s analysis.Summary, name string) string {
	return words.Joined(", ", name, analysis.MetricNamed(s.Metrics, name).Unit)
}

// familyRemarks lists the comparisons for the terminal.
func familyRemarks(s analysis.Summary) (out []string) {
	shown, more := bounded(s.Families, familiesShown)
	for _, f := range shown {
		out = append(out, fmt.Sprintf("Over IPv4: %s, %s: %s × %s %s, n = %d.", f.Cell.Text(result.DUT),
			familySetting(s, f.Cell), f.Metric, digits3OfRatio(f.Ratio.Mean), bounds(f.Ratio, digits3OfRatio), f.Ratio.N))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("Over IPv4: %d more on the page.", more))
	}
	return out
}

// familiesShown is the largest number of comparisons in the terminal.
const familiesShown = 4
