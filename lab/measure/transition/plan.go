package transition

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Topology is the measure's default topology: two gateways with a tunnel between them.
const Topology = "tunnel"

// Keys of the measure.
var (
	probes = experiment.Key[int]{Name: "probes", Parse: strict.Integer(10, 10_000), Default: 200, // as many as in study 4
		Meaning: "of a step: so many from host to host, and as many from gateway to gateway"}
	probeGap = experiment.Key[int]{Name: "probe_gap_us", Parse: strict.Integer(500, 1_000_000), Default: 5000,
		Meaning: "mean time between two probes, µs, each up to a quarter shorter or longer"}
	probe = experiment.Key[int]{
		Name: "probe_bytes", Parse: strict.Integer(transition.MinBytes, transition.MaxBytes-Apart), Default: 200,
		Meaning: fmt.Sprintf("TCP payload of a probe, bytes; those from gateway to gateway have %d more", Apart)}
	idle = experiment.Key[bool]{Name: "without_background", Parse: strict.Boolean, Default: true,
		Meaning: "a step without background, besides `offered_mbps`"}

	busyPct = experiment.Key[[]int]{Name: "gateways_busy_pct", Parse: experiment.List(strict.Integer(0, 100*burn.Most)),
		Meaning: "percent of the gateways' CPU that other work has; each value makes blocks of its own"}
	busyKinds = experiment.Key[[]string]{Name: "gateways_busy_by", Parse: experiment.List(strict.Word(BusyProgram,
		BusyRealTime)), Default: []string{BusyProgram},
		Meaning: "`program`: a program of ordinary priority that works for 10 ms at a time; `real-" +
			"time`: one that goes before all others, for 100 µs at a time"}
)

// Kinds of background work that keep the gateways' CPUs busy: burn.Program, as study 4's tool, or burn.RealTime.
const (
	BusyProgram  = "program"
	BusyRealTime = "real-time"
)

// Apart is the number of bytes by which the gateways' probes are longer than the hosts'. It is more than any tunnel's
// padding, so the lengths of their packets always differ.
const Apart = 64

// Measure is the measure "transition".
type Measure struct{}

// Records lists the measure's one kind of records: steps.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindStep, New: func() any { return new(Step) }}}
}

// Rules returns the rules of experiments that measure transition times.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Clean: true, ComparesTimes: true, Roles: topology.PortalRoles,
		Keys: []experiment.Field{
			probes.Field(), probeGap.Field(), probe.Field(), idle.Field(), busyPct.Optional(), busyKinds.Field()},
		Uses: append([]string{"offered_mbps", "profiles", "windows", "warmup", "traffic.kind", "traffic.protocol",
			"traffic.burst_segments", "traffic.pacing"}, experiment.ClientKeys...),
		Why: "its figures are times of single packets, and no second lab stands beside the device's",

		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Duration: duration, Describe: description,
	}
}

// applyDefaults sets datagrams of clients of the simplest kind as the background traffic, as in study 4.
func applyDefaults(e *experiment.Experiment) {
	if !e.IsSet("topology") {
		e.Topology = Topology
	}
	if !e.IsSet("client.kind") {
		e.Client.Kind = client.KindVeth
	}
	if !e.IsSet("windows") {
		e.Windows = 1
	}
	if !e.IsSet("traffic.protocol") {
		e.Traffic.Protocol = experiment.ProtocolUDP
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	if build, err := topology.Named(e.Topology); err == nil && !build(topology.Spec{}).Gateways() {
		report("topology", "%q has one router: measure = %q needs two gateways, topology = %q", e.Topology, Name, Topology)
	}
	if !traffic.KindOf(e.Traffic.Kind).Counts || traffic.KindOf(e.Traffic.Kind).Frames {
		report("traffic.kind", "%q does not go with measure = %q: it needs %q", e.Traffic.Kind, Name, traffic.KindStreams)
	}
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with measure = %q", Name)
	}
	if len(e.OfferedMbps) == 0 && !idle.Value(e) {
		report("without_background", "false, and offered_mbps is missing: there is nothing to measure")
	}
	if !slices.Equal(busyKinds.Value(e), busyKinds.Default) && len(busyPct.Value(e)) == 0 {
		report(busyKinds.Name, "needs %s: without it the gateways have no other work", busyPct.Name)
	}
	for _, pct := range busyPct.Value(e) {
		if pct > 0 && e.Router.Speed > 0 {
			report("gateways_busy_pct", "does not go with router.speed: both take of the gateways' CPUs")
			break
		}
	}
}

// settings lists all combinations of clients, profiles and background work. A block measures all loads.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	for _, clients := range e.Clients {
		for _, profile := range e.Profiles {
			for _, cell := range busyCells(e, result.NewCell(result.Clients, clients, result.Profile, profile)) {
				s := experiment.Setting{Cell: cell}
				for _, mbps := range loads(e, clients) {
					s.Cells = append(s.Cells, cell.With(result.OfferedMbps, mbps))
				}
				list = append(list, s)
			}
		}
	}
	return list
}

// busyCells returns the cell with each kind and share of background work; the cell alone if the experiment has none.
func busyCells(e *experiment.Experiment, cell result.Cell) (list []result.Cell) {
	seen := false // a share of 0 is listed once: its kind means nothing
	for _, kind := range busyKinds.Value(e) {
		for _, pct := range busyPct.Value(e) {
			switch with := cell.With(result.BackgroundPct, pct); {
			case pct > 0:
				list = append(list, with.With(BackgroundKind, kind))
			case !seen:
				seen, list = true, append(list, with)
			}
		}
	}
	if len(list) == 0 {
		list = []result.Cell{cell}
	}
	return list
}

// loads returns the loads of the background traffic, Mbit/s; 0 means none.
func loads(e *experiment.Experiment, clients int) []float64 {
	if idle.Value(e) {
		return append([]float64{0}, e.Loads(clients)...)
	}
	return e.Loads(clients)
}

// hostRun returns the probes from host to host of a step, without number and addresses.
func hostRun(e *experiment.Experiment) transition.Run {
	return transition.Run{
		Count: probes.Value(e), Bytes: probe.Value(e), Gap: time.Duration(probeGap.Value(e)) * time.Microsecond}
}

// gatewayRun returns the probes from gateway to gateway of a step, without number and addresses.
func gatewayRun(e *experiment.Experiment) transition.Run {
	r := hostRun(e)
	r.Bytes += Apart
	return r
}

// Time besides the probes, for the estimate before a run.
const (
	labOverhead  = 3 * time.Second        // to build the lab, start the device and calibrate the taps
	stepOverhead = 400 * time.Millisecond // to start and stop the traffic and read the meters
)

// duration estimates how long the blocks of a group take if no step is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	step := 2*time.Duration(probes.Value(e)*probeGap.Value(e))*time.Microsecond + stepOverhead
	block := labOverhead + time.Duration(len(g.Cells))*(time.Duration(e.Windows)*step+e.Warmup)
	return time.Duration(g.Blocks) * block
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	var under []string
	if idle.Value(e) {
		under = append(under, "without background")
	}
	if len(e.OfferedMbps) > 0 {
		under = append(under, "under "+experiment.Series(e.OfferedMbps)+" Mbit/s")
	}
	return experiment.Description{
		Block: "block", Contents: fmt.Sprintf(" with %s a step and end", words.Counted(probes.Value(e),
			"probe")), Doing: words.Listed(under)}
}
