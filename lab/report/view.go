package report

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	rates "github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
)

// view is how the runs of one measure are shown. Everything else of a report is the
// same for all measures.
type view struct {
	how     func(analysis.Summary) string // after the date: "duet"
	columns func(analysis.Summary) []cellColumn
	remarks func(analysis.Summary) []string // lines below the terminal's table
	reading func(analysis.Summary) string   // how to read it
	// first is the picture on the page's first screen and the sentence above it.
	first func(*drawing) (lead string, r ranking)
	// fill adds the sections of the page that only this measure has.
	fill func(*pageData, *drawing, analysis.Summary)
}

// views is the table of measures that have a view of their own; others are shown by
// their list of metrics.
var views = map[string]view{
	cost.Name:       costView,
	logins.Name:     loginsView,
	capture.Name:    captureView,
	throughput.Name: searchView,
	rates.Name:      ratesView,
	transfer.Name:   transferView,
	transition.Name: transitionView,
}

func viewOf(s analysis.Summary) view {
	if v, ok := views[s.Measure]; ok {
		return v
	}
	return plainView
}
