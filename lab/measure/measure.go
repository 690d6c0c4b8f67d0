// Package measure is the table of what the lab can measure.
package measure

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Summarise computes the summary of a run.
func Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	if run.Logins() {
		return logins.Summarise(run, opts)
	}
	return cost.Summarise(run, opts)
}
