package throughput

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Bounds of the measure's keys.
const (
	minKpps, maxKpps = 1, 100_000
	mostWidth        = 0.5
	mostTrials       = 1000
	maxLoss          = 0.5
)

// Keys of the measure.
var (
	losses = experiment.Key[[]float64]{
		Name: "loss_ratios", Parse: experiment.List(strict.Within(0, maxLoss, "a share of the frames that may be lost")),
		Default: []float64{0, 0.005},
		Meaning: "shares of the frames that may be lost, each a goal; 0 is the no-drop rate",
	}
	width = experiment.Key[float64]{
		Name: "search_width", Parse: strict.Within(0.001, mostWidth, "a share of the load at which a search ends"),
		Default: 0.02,
		Meaning: "how close the bounds of a goal are at the end, as a share of the upper one",
	}
	trials = experiment.Key[int]{
		Name: "trials", Parse: strict.Integer(1, mostTrials), Default: 5,
		Meaning: "trials of one `window` that settle a load",
	}
	maxFrameRate = experiment.Key[float64]{
		Name: "max_kpps", Parse: strict.Within(minKpps, maxKpps, "a number of thousand frames a second"), Default: 5000,
		Meaning: "the highest load, thousand frames a second",
	}
)

// Measure is the measure "throughput".
type Measure struct{}

// Records lists the measure's one kind of records: searches.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindSearch, New: func() any { return new(Search) }}}
}

// Rules returns the rules of experiments that measure throughput.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Clean: true, Agentless: true, Roles: topology.PortalRoles,
		Keys: []experiment.Field{losses.Field(), width.Field(), trials.Field(), maxFrameRate.Field()},
		Uses: slices.Concat([]string{"directions", "profiles", "frame_sizes", "window", "traffic.kind", "traffic.protocol",
			"traffic.burst_segments", "traffic.gaps", "traffic.seed", experiment.FamilyKey},
			experiment.ClientKeys, experiment.UntilKeys),
		Why:           "its loads are searched, and no clean router stands beside the device",
		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Duration: duration, Bounds: bounds,
		Describe: description,
	}
}

// applyDefaults sets frames as the traffic, and one window a block, which is a search.
func applyDefaults(e *experiment.Experiment) {
	e.Windows = 1
	if !e.IsSet("traffic.kind") {
		e.Traffic.Kind = traffic.KindFrames
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	if !traffic.KindOf(e.Traffic.Kind).Frames {
		report("traffic.kind", "%q does not go with %s: it needs %q, whose rate does not depend on what arrives",
			e.Traffic.Kind, only, traffic.KindFrames)
	}
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with %s", only)
	}
}

// settings lists all combinations of clients, directions, profiles and frame sizes. A block has one search.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	e.EachFlow(func(flow result.Cell, clients int) {
		e.EachLoad(clients, func(size string, _ []float64) {
			cell := flow.With(result.FrameSize, size)
			list = append(list, experiment.Setting{Cell: cell, Cells: []result.Cell{cell}})
		})
	})
	return list
}

// Figures for the estimate of a search with two goals. A search begins with short trials of at most a second, and then
// settles loads with trials of one window. If the device loses nothing, one load is settled after the speed checks. If
// the machine's CPUs are often away, trials are repeated.
const (
	labOverhead   = 2 * time.Second
	trialOverhead = 600 * time.Millisecond
	firstTrials   = 7 // short trials
	lastLoads     = 6 // loads that are settled
	trialsFactor  = 3 // mean number of attempts for a trial, on a machine whose CPUs are often away
)

// duration estimates how long the searches of a group take if no trial is repeated.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	return searches(e, g, firstTrials, lastLoads, 1)
}

// bounds estimates the least and the most time of a group's searches.
func bounds(e *experiment.Experiment, g experiment.Group) (least, most time.Duration) {
	return searches(e, g, speedChecks, 1, 1), searches(e, g, firstTrials, lastLoads, trialsFactor)
}

// searches estimates how long the searches of a group take. first is the number of short trials, loads the number of
// loads that are settled, made the number of attempts for each trial.
func searches(e *experiment.Experiment, g experiment.Group, first, loads, made int) time.Duration {
	clients := time.Duration(g.Cell.Int(result.Clients)) * client.KindOf(e.Client.Kind).Times.Stay / 2
	firstLength, lastLength := min(time.Second, e.Window)+trialOverhead, e.Window+trialOverhead
	search := time.Duration(first)*firstLength + time.Duration(loads*(trials.Value(e)/2+1))*lastLength
	return time.Duration(g.Blocks) * (labOverhead + clients + time.Duration(made)*search)
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	var goals []string
	for _, loss := range losses.Value(e) {
		goals = append(goals, GoalName(loss))
	}
	return experiment.Description{
		Block:    "search",
		Contents: fmt.Sprintf(" with %s of %g s", words.Counted(trials.Value(e), "final trial"), e.Window.Seconds()),
		Doing:    "for " + words.Listed(goals) + ", frames of " + words.Listed(e.FrameSizes),
	}
}
