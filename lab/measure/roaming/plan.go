package roaming

import (
	"fmt"
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
const Name = "roaming"

// defaultTopology has two gateways with a LAN each.
const defaultTopology = "roaming"

// moved is the measure's key of the time after a move.
var moved = experiment.Key[int]{Name: "moved_s", Parse: strict.Integer(1, 600), Default: 5,
	Meaning: "s after clients have gone to the other gateway in which their packets are watched"}

// before is how long clients send at the first gateway before they move. A gateway tells the store of a session within
// a second.
const before = 2500 * time.Millisecond

// Measure measures what users notice when they go from one gateway to another.
type Measure struct{}

// Records lists the measure's one kind of records: a move.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindMove, New: func() any { return new(Trial) }}}
}

// Rules returns the rules of experiments that measure roaming.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Roles: topology.PortalRoles, Keys: []experiment.Field{moved.Field()},
		Uses:          []string{"clients", "client.kind"},
		Why:           "clients send little, and no clean router stands beside the device",
		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Duration: duration, Describe: description,
	}
}

// applyDefaults sets the measure's defaults for keys that are not set.
func applyDefaults(e *experiment.Experiment) {
	e.Windows = 1 // a block has one move
	if !e.IsSet("topology") {
		e.Topology = defaultTopology
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	if e.Topology != defaultTopology {
		report("topology", "%q does not go with %s: it needs %q, which has two gateways", e.Topology, only, defaultTopology)
	}
	if k := client.KindOf(e.Client.Kind); !k.Leases || !k.Programs {
		report("client.kind", "%q does not go with %s: it takes clients that lease and have namespaces of their own, %s",
			e.Client.Kind, only, words.Listed(client.Kinds(func(k client.Kind) bool { return k.Leases && k.Programs })))
	}
}

// settings lists all numbers of clients. A block measures one move.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	for _, n := range e.Clients {
		cell := result.NewCell(result.Clients, n)
		list = append(list, experiment.Setting{Cell: cell, Cells: []result.Cell{cell}})
	}
	return list
}

// fits refuses devices that are not two gateways.
func fits(e *experiment.Experiment, name string, _ dut.Traits) error {
	d, err := dut.New(name, 1, e)
	if err != nil {
		return err
	}
	if _, ok := d.(dut.Doubled); !ok {
		return fmt.Errorf("it is not two gateways with a LAN each: %w", dut.ErrNotSupported)
	}
	return nil
}

func watchTime(e *experiment.Experiment) time.Duration {
	return time.Duration(moved.Value(e)) * time.Second
}

// labOverhead is the time besides that of watching: building the lab, logins, the end of all sessions.
const labOverhead = 10 * time.Second

// duration estimates how long the blocks of a group take if none is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	n := time.Duration(g.Cell.Int(result.Clients))
	each := client.KindOf(e.Client.Kind).Times
	return time.Duration(g.Blocks) * (labOverhead + before + watchTime(e) + n*(2*each.Storm+each.Login))
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	return experiment.Description{Block: "move", Doing: fmt.Sprintf(
		"log in at one gateway and go to the other one; each sends a packet every 10 ms; watched for %s", watchTime(e))}
}
