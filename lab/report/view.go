package report

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	rates "github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/roaming"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
)

// view has the parts of a report that differ between measures.
type view struct {
	mode    func(analysis.Summary) string // mode of the run, after the date: "duet"
	columns func(analysis.Summary) []cellColumn
	remarks func(analysis.Summary) []string // lines below the terminal's table
	reading func(analysis.Summary) string   // explanation of the table
	// first returns the sentence and the picture of the page's first screen.
	first func(*drawing) (lead string, r ranking)
	// fill adds the page's sections that only this measure has.
	fill func(*pageData, *drawing, analysis.Summary)
}

// views has the measures with a view of their own. Other measures are shown by their list of metrics.
var views = map[string]view{
	cost.Name:       costView,
	logins.Name:     loginsView,
	capture.Name:    captureView,
	throughput.Name: searchView,
	rates.Name:      ratesView,
	transfer.Name:   transferView,
	transition.Name: transitionView,
	failover.Name:   failoverView,
	roaming.Name:    roamingView,
}

// measureOf is view.mode for measures with one mode only: it returns the measure's name.
func measureOf(s analysis.Summary) string { return s.Measure }

// nothingRecorded is the page's text in place of figures for a run without records. noun is what a record is called.
func nothingRecorded(noun string) string {
	return "No " + noun + " was recorded, so there is nothing to show. The sections below say what was skipped, " +
		"rejected or went wrong."
}

func viewOf(s analysis.Summary) view {
	if v, ok := views[s.Measure]; ok {
		return v
	}
	return plainView
}
