package transfer

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Bounds of the measure's keys.
const (
	maxClients   = 250
	maxFileMB    = 10_000
	maxTransfers = 1000
	minInterval  = 50 * time.Millisecond
	maxInterval  = time.Minute
	// maxCellTime bounds the transfers of one cell.
	maxCellTime = 2 * time.Hour
)

// Keys of the measure. The defaults of the first three are study 3's. The study sampled once a second, and its
// transfers took five to twenty seconds. Here a transfer takes less than a second, so samples are more frequent.
var (
	linkMbps = experiment.Key[float64]{
		Name: "link_mbps", Parse: strict.Within(experiment.MinOfferedMbps, experiment.MaxOfferedMbps, "a number of Mbit/s"),
		Default: 100,
		Meaning: "how fast the server and the client hosts send, Mbit/s of frames without FCS",
	}
	fileMB = experiment.Key[float64]{
		Name: "file_mb", Parse: strict.Within(0.01, maxFileMB, "a number of MB"), Default: 10,
		Meaning: "size of the file, MB",
	}
	transfers = experiment.Key[int]{
		Name: "transfers", Parse: strict.Integer(1, maxTransfers), Default: 5,
		Meaning: "how often each client fetches it, over one login",
	}
	interval = experiment.Key[time.Duration]{
		Name: "interval", Parse: experiment.Duration(minInterval, maxInterval), Default: 250 * time.Millisecond,
		Meaning: "time between two samples of the router",
	}
	speeds = experiment.Key[[]float64]{
		Name: keySpeeds, Parse: experiment.List(strict.Within(experiment.MinSpeed, 1, "a share of the router's CPU")),
		Default: []float64{1},
		Meaning: "shares of their CPU that the routers have, each a series of cells",
	}
)

const keySpeeds = "router_speeds"

// onlyTopology is the topology that the measure needs: one router between clients and server.
const onlyTopology = "portal"

// fileBytes returns the size of the file, bytes.
func fileBytes(e *experiment.Experiment) int64 { return int64(fileMB.Value(e) * 1e6) }

// Measure is the measure "transfer".
type Measure struct{}

// Records lists the measure's one kind of records: transfers of all clients at the same time.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindTransfer, New: func() any { return new(Transfer) }}}
}

// Rules returns the rules of experiments that measure transfers.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Clean: true, Roles: topology.PortalRoles,
		Keys: []experiment.Field{linkMbps.Field(), fileMB.Field(), transfers.Field(), interval.Field(), speeds.Field()},
		Uses: slices.Concat(experiment.ClientKeys, experiment.UntilKeys),
		Why:  "clients fetch files as fast as link and router let them, and no clean router stands beside the device",

		ApplyDefaults: func(e *experiment.Experiment) { e.Windows = 1 },
		Check:         check, Settings: settings, Duration: duration, Describe: description,
	}
}

// check reports settings with which no transfers can be measured, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", Name)
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with %s", only)
	}
	if e.Router.Speed > 0 {
		report("router.speed", "does not go with %s: list it in %s, which has several", only, keySpeeds)
	}
	if e.Topology != onlyTopology {
		report("topology", "%q does not go with %s: one router is sampled, in %q", e.Topology, only, onlyTopology)
	}
	for _, n := range e.Clients {
		if n > maxClients {
			report("clients", "%d: at most %d with %s, each with a program of its own", n, maxClients, only)
			return
		}
		if took := fullLinkTime(e, n); took > maxCellTime {
			report("file_mb", "%s %s for their files at %g Mbit/s, more than %s",
				words.Agreed(n, "client takes", "clients take"), took.Round(time.Second), linkMbps.Value(e), maxCellTime)
			return
		}
	}
}

// fullLinkTime returns how long n clients take for all their files if the link is always full.
func fullLinkTime(e *experiment.Experiment, n int) time.Duration {
	return time.Duration(
		float64(n) * float64(transfers.Value(e)) * float64(fileBytes(e)) * 8 / (linkMbps.Value(e) * 1e6) * float64(
			time.Second))
}

// settings lists the routers' speeds. A block measures all numbers of clients, in one lab with the highest number.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	if len(e.Clients) == 0 {
		return nil
	}
	for _, speed := range speeds.Value(e) {
		s := experiment.Setting{Cell: result.NewCell(result.Clients, slices.Max(e.Clients), RouterSpeed, speed)}
		for _, n := range e.Clients {
			s.Cells = append(s.Cells, result.NewCell(result.Clients, n, RouterSpeed, speed))
		}
		list = append(list, s)
	}
	return list
}

// Time besides the transfers, for the estimate before a run.
const (
	labOverhead  = 3 * time.Second
	cellOverhead = 500 * time.Millisecond
	linkOverhead = 1.12 // factor on fullLinkTime: headers, and the time between two transfers
)

// duration estimates how long the blocks of a group take if no trial is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	block := labOverhead + time.Duration(g.Cell.Int(result.Clients))*client.KindOf(e.Client.Kind).Times.Stay/2
	for _, c := range g.Cells {
		block += cellOverhead + time.Duration(linkOverhead*float64(fullLinkTime(e, c.Int(result.Clients))))
	}
	return time.Duration(g.Blocks) * block
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	text := fmt.Sprintf(
		"fetch a file of %g MB %s over links of %g Mbit/s", fileMB.Value(e), words.Counted(transfers.Value(e),
			"time"), linkMbps.Value(e))
	if list := speeds.Value(e); len(list) > 1 || list[0] != 1 {
		text += ", routers with " + experiment.Series(list) + " of their CPU"
	}
	return experiment.Description{Block: "block", Doing: text}
}
