package doctor

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// mostPersonas is the shipped experiment with the most clients of a kind that shares what its host has.
func mostPersonas(all []*experiment.Experiment) runner.Demand {
	return most(all, func(kind string) bool { return client.KindOf(kind).Shared })
}

// personas compares the machine with what the most personas take: memory, and
// files, which several processes share. Their addresses take no room in the
// machine's table of neighbours.
func (x examination) personasLine() Line {
	need := x.personas.MemoryKiB()
	l := Line{
		Key: "limit.personas", State: OK, What: "personas",
		Found: fmt.Sprintf("%s takes %d MiB and %d processes a host under the hard limit of %d files",
			x.personas, need>>10, agent.Workers(x.personas.Clients(), x.machine.Limits.FilesHard), x.machine.Limits.FilesHard),
		Means: "clients of kind persona share namespace, link and files",
	}
	if m := x.machine.Memory; m.Total > 0 && m.Available < need {
		l.State, l.Means = Warn, ""
		l.Do = fmt.Sprintf("fewer clients: --set clients=%d", x.personas.Fits(m.Available, runner.Demand.MemoryKiB))
	}
	return l
}
