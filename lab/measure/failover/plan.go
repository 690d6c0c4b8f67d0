package failover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Name is the measure's name in experiments and records.
const Name = "failover"

// defaultTopology has room for two gateways, and two client hosts.
const defaultTopology = "pair"

// Keys of the measure.
var (
	faults = experiment.Key[[]string]{
		Name: "faults", Parse: experiment.List(strict.Word(dut.Faults()...)), Default: []string{
			string(dut.FaultNone), string(dut.FaultRestart), string(dut.FaultKill)},
		Meaning: "what happens to the gateway, each in a lab of its own. `restart`: it is asked to end, and started again " +
			"at once. `kill`: kill -9 of the active gateway's daemon; one alone is started again at once. `link`: the active " +
			"gateway's link to the clients goes down. `power`: all that the active gateway's machine has ends at once. " +
			"`store`: kill -9 of the store's server. `switch`: the operator has the other gateway take over. `none`: nothing"}
	watched = experiment.Key[int]{Name: "watch_s", Parse: strict.Integer(2, 600), Default: 12,
		Meaning: "s after the fault in which packets and logins are watched"}
	arrivals = experiment.Key[int]{Name: "newcomers_per_second", Parse: strict.Integer(1, 50), Default: 4,
		Meaning: "people who come in all the time, lease an address and log in"}
)

// before is how long pulses and logins are watched before the fault.
const before = 2 * time.Second

// Measure measures what users notice when a gateway fails.
type Measure struct{}

// Records lists the measure's one kind of records: a fault.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindFault, New: func() any { return new(Trial) }}}
}

// Rules returns the rules of experiments that measure failovers.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Roles: topology.PortalRoles,
		Keys:          []experiment.Field{faults.Field(), watched.Field(), arrivals.Field()},
		Uses:          []string{"clients", "client.kind"},
		Why:           "clients send little, and no clean router stands beside the device",
		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Reduce: reduce, Duration: duration,
		Describe: description,
	}
}

// applyDefaults sets the measure's defaults for keys that are not set.
func applyDefaults(e *experiment.Experiment) {
	e.Windows = 1 // a block has one fault
	if !e.IsSet("topology") {
		e.Topology = defaultTopology
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	if e.Topology != defaultTopology {
		report("topology", "%q does not go with %s: it needs %q, which has room for two gateways", e.Topology, only,
			defaultTopology)
	}
	if k := client.KindOf(e.Client.Kind); !k.Leases || !k.Programs {
		report("client.kind", "%q does not go with %s: it takes clients that lease and have namespaces of their own, %s",
			e.Client.Kind, only, words.Listed(client.Kinds(func(k client.Kind) bool { return k.Leases && k.Programs })))
	}
	if slices.Contains(e.DUTs, experiment.Clean) {
		report("duts", "%q does not go with %s: it has no login", experiment.Clean, only)
	}
}

// settings lists all combinations of clients and faults. A block measures one fault.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	for _, n := range e.Clients {
		for _, f := range faults.Value(e) {
			cell := result.NewCell(result.Clients, n, Fault, f)
			list = append(list, experiment.Setting{Cell: cell, Cells: []result.Cell{cell}})
		}
	}
	return list
}

// reduce leaves out faults that a device cannot have. The run's notes say why: see noteRefused.
func reduce(e *experiment.Experiment, name string, s experiment.Setting) (experiment.Setting, bool) {
	return s, refusal(e, name, dut.Fault(s.Cell.Text(Fault))) == ""
}

// refusal says why a device cannot have a fault, as the end of a sentence; empty: it can, or the device cannot be
// measured at all, which fits says.
func refusal(e *experiment.Experiment, name string, f dut.Fault) string {
	d, err := dut.New(name, 1, e)
	if err != nil {
		return ""
	}
	if failing, ok := d.(dut.Failing); ok {
		return failing.Refused(f)
	}
	return ""
}

// fits refuses devices of which the lab cannot cause any of the experiment's faults.
func fits(e *experiment.Experiment, name string, t dut.Traits) error {
	d, err := dut.New(name, 1, e)
	if err != nil {
		return err
	}
	if _, ok := d.(dut.Failing); !ok || t.PPPoE || t.Admission.Kind == client.AdmitNone {
		return fmt.Errorf("the lab has no way to make it fail, or its clients do not log in: %w", dut.ErrNotSupported)
	}
	var why error
	for _, f := range faults.Value(e) {
		reason := refusal(e, name, dut.Fault(f))
		if reason == "" {
			return nil
		}
		why = cmp.Or(why, fmt.Errorf("%s: %s: %w", f, reason, dut.ErrNotSupported))
	}
	return cmp.Or(why, errors.New("no fault is named"))
}

// newcomers is how many people come in while a fault is watched.
func newcomers(e *experiment.Experiment) int {
	return int((before + watchTime(e)).Seconds()) * arrivals.Value(e)
}

func watchTime(e *experiment.Experiment) time.Duration {
	return time.Duration(watched.Value(e)) * time.Second
}

// labOverhead is the time besides that of watching: building the lab, logins, the end of all sessions.
const labOverhead = 8 * time.Second

// duration estimates how long the blocks of a group take if none is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	n := time.Duration(g.Cell.Int(result.Clients) + newcomers(e))
	each := client.KindOf(e.Client.Kind).Times
	return time.Duration(g.Blocks) * (labOverhead + before + watchTime(e) + n*each.Storm + n*each.Login/4)
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	return experiment.Description{Block: "fault", Doing: fmt.Sprintf("send a packet every 10 ms; %s: watched for %s",
		words.Listed(faults.Value(e)), watchTime(e))}
}
