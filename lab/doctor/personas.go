package doctor

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// mostPersonas is the shipped experiment with the most clients of a kind that shares what its host has.
func mostPersonas(all []*experiment.Experiment) runner.Demand {
	return most(all, func(kind string) bool { return client.KindOf(kind).Shared })
}

// personas compares the machine with what the most personas take: memory, and
// files, which several processes share. Their addresses take no room in the
// machine's table of neighbours.
func (x examination) personas(files int64) Line {
	need := x.crowd.MemoryKiB()
	l := Line{
		Key: "limit.personas", State: OK, What: "personas",
		Found: fmt.Sprintf("%s takes %d MiB and %d processes a host under the hard limit of %d files",
			x.crowd, need>>10, agent.Workers(x.crowd.Clients()), files),
		Means: "clients of kind persona share namespace, link and files",
	}
	m, err := meter.ParseMeminfo(strings.NewReader(x.sys.text("/proc/meminfo")))
	if err == nil && m.Available < need {
		l.State, l.Means = Warn, ""
		l.Do = fmt.Sprintf("fewer clients: --set clients=%d", x.crowd.Fits(m.Available, runner.Demand.MemoryKiB))
	}
	return l
}
