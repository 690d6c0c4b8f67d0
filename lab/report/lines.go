package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// gatewayNames names the gateway of each metric of CPU.
var gatewayNames = map[string]string{cost.EnterCPU: "where the load enters", cost.LeaveCPU: "where it leaves"}

// linesGrid is the table of the straight lines that are fitted to each gateway's CPU over the payload rate.
func linesGrid(s analysis.Summary) grid {
	g := newGrid(fmt.Sprintf(
		"Each gateway's CPU over the payload: straight lines, one a block, loads up to %d Mbit/s where there are three",
		cost.LinesTo), "<Router", "<Direction", "Clients", "<Gateway",
		"Slope|% of a core per Gbit/s", "At no load|% of a core", "R²", "Slope over the direct path's|×")
	for _, sweep := range s.Sweeps {
		for _, l := range sweep.Trends {
			g.add(sweep.Cell.String()+" "+l.Metric, routerCell(sweep.Cell),
				textCell(words.Direction(sweep.Cell.Text("direction"))), textCell(sweep.Cell.Text("clients")),
				textCell(words.Or(gatewayNames[l.Metric], l.Metric)), estimateCell(l.Slope, digits3),
				estimateCell(l.Intercept, digits3), numberCell(l.R2, fraction4), estimateCell(l.OverClean, ratio))
		}
	}
	return g
}

// lineRemarks describes the slopes of those lines, in one sentence for each device.
func lineRemarks(s analysis.Summary) (out []string) {
	for _, sweep := range s.Sweeps {
		enter, ok := sweep.TrendOf(cost.EnterCPU)
		leave, also := sweep.TrendOf(cost.LeaveCPU)
		if !ok || !also {
			continue
		}
		one := func(l analysis.Trend) string {
			return fmt.Sprintf("%s %% of a core%s (R² %s)", withBounds(l.Slope, digits3), words.When(l.OverClean.Mean.Known(),
				", × "+withBounds(l.OverClean, ratio)+" the direct path's"), fraction4(l.R2))
		}
		out = append(out, fmt.Sprintf("%s: a Gbit/s takes %s where it enters, %s where it leaves.", s.Dimensions.Label(
			sweep.Cell), one(enter), one(leave)))
	}
	return out
}
