// Package measure is the table of what can be measured. Apart from it nothing asks which measure
// an experiment names.
package measure

import (
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/runner"
)

var table = map[string]func() runner.Measure{"cost": cost.Run, "logins": logins.Run}

func Of(e *experiment.Experiment) runner.Measure { return table[e.Measure]() }
