package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// kibPerPersona is the memory of a persona with a stream, its far end and what the
// agents know of it, KiB.
const kibPerPersona = 20

// mostPersonas is the shipped experiment with the most clients of kind persona.
func mostPersonas(all []*experiment.Experiment) (most demand) {
	for _, e := range all {
		if n := slices.Max(e.Clients); n > most.clients && e.Client.Kind == experiment.ClientPersona {
			most = demand{experiment: e.Name, clients: n, labs: labsOfDuet}
			if e.Measure == result.MeasureLogins {
				most.labs = 1
			}
		}
	}
	return most
}

// personas compares the machine with what the most personas take: memory, and
// files, which several processes share. Their addresses take no room in the
// machine's table of neighbours.
func (x examination) personas(files int64) Line {
	need := int64(x.crowd.labs*(hosts*memoryPerHost)) + int64(x.crowd.labs*x.crowd.clients*kibPerPersona)>>10
	l := Line{
		Key: "limit.personas", State: OK, What: "personas",
		Found: fmt.Sprintf("%s takes %d MiB and %d processes a host under the hard limit of %d files",
			x.crowd, need, agent.Workers(x.crowd.clients), files),
		Means: "clients of kind persona share namespace, link and files",
	}
	m, err := parseMeminfo(strings.NewReader(x.sys.text("/proc/meminfo")))
	if err == nil && m.available>>10 < need {
		l.State, l.Means = Warn, ""
		l.Do = fmt.Sprintf("fewer clients: --set clients=%d", max(1, (m.available-int64(x.crowd.labs*hosts*memoryPerHost)<<10)/int64(x.crowd.labs*kibPerPersona)))
	}
	return l
}
