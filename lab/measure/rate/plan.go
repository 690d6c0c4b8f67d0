package rate

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Name is the measure's name in experiments and records.
const Name = "rate"

// defaultTopology has two gateways with a link between them, whose rate the measure compares with.
const defaultTopology = "tunnel"

// defaultWarmup is long enough for TCP to find a path's rate.
const defaultWarmup = 2 * time.Second

// Measure measures the rate of a tunnel: TCP sends as fast as it can between hosts behind two gateways.
type Measure struct{}

// Records lists the kind of record that the measure writes: one Trial a window.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindRate, New: func() any { return new(Trial) }}}
}

// Rules says which keys an experiment that measures rates may set, and how it is checked, planned and described.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Clean: true, Roles: topology.PortalRoles,
		Uses: slices.Concat(
			[]string{"directions", "profiles", "windows", "window", "warmup", "traffic.kind", "traffic.protocol"},
			experiment.ClientKeys, experiment.LinkKeys, experiment.UntilKeys),
		Why:           "TCP sends as fast as it can, and no clean router stands beside the device",
		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Duration: duration, Describe: description,
	}
}

// applyDefaults sets the measure's defaults for keys that are not set.
func applyDefaults(e *experiment.Experiment) {
	if !e.IsSet("topology") {
		e.Topology = defaultTopology
	}
	if !e.IsSet("warmup") {
		e.Warmup = defaultWarmup
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	if build, err := topology.Named(e.Topology); err == nil && !build(topology.Spec{}).Gateways() {
		report("topology", "%q does not go with %s: it needs %q, whose gateways have a link between them", e.Topology, only,
			defaultTopology)
	}
	if e.Traffic.Kind != traffic.KindStreams || e.Traffic.Protocol != experiment.ProtocolTCP {
		report("traffic.kind", "%q over %s does not go with %s: it needs %q over %s, which send as fast as they can",
			e.Traffic.Kind, e.Traffic.Protocol, only, traffic.KindStreams, experiment.ProtocolTCP)
	}
	if slices.Contains(e.Directions, result.Both) {
		report("directions", "%q does not go with %s: the load enters the tunnel at one gateway", result.Both, only)
	}
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with %s", only)
	}
}

// settings lists the blocks of an experiment: each combination of clients, direction, profile and rate of the link.
// Each client has one connection.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	e.EachFlow(func(flow result.Cell, _ int) {
		e.EachLink(flow, func(cell result.Cell) {
			list = append(list, experiment.Setting{Cell: cell, Cells: []result.Cell{cell}})
		})
	})
	return list
}

// Times that the estimate before a run adds to warm-up and windows.
const (
	labOverhead    = 1500 * time.Millisecond // building and removing the lab
	deviceOverhead = 2 * time.Second         // starting a tunnel, which agrees on keys, and stopping it
)

// duration estimates how long the blocks of a group take if no window is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	block := labOverhead + time.Duration(g.Cell.Int(result.Clients))*client.KindOf(e.Client.Kind).Times.Stay/2 +
		idleTime + e.Warmup + time.Duration(e.Windows)*e.Window
	if g.Cell.Text(result.DUT) != experiment.Clean {
		block += deviceOverhead
	}
	return time.Duration(g.Blocks) * block
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	var links []string
	for _, mbps := range e.Link.Mbps {
		if mbps == 0 {
			links = append(links, "no limit")
		} else {
			links = append(links, fmt.Sprintf("%g Mbit/s", mbps))
		}
	}
	doing := "with TCP as fast as it goes"
	if len(links) > 0 {
		doing += ", the gateways' link at " + words.Listed(links)
	}
	return experiment.Description{
		Block: "block", Contents: fmt.Sprintf(" of %s of %g s", words.Counted(e.Windows, "window"),
			e.Window.Seconds()), Doing: doing}
}
