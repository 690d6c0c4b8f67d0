package logins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// maxRate is the highest login rate, clients a second. A higher number is taken for a typing mistake.
const maxRate = 10_000

// rates is the key of the login rates: clients a second that lease, and then log in; 0 means all at the same moment.
var rates = experiment.Key[[]float64]{
	Name: "login_rates", Parse: experiment.List(experiment.PerSecond(maxRate, "0 for all at once", "clients a second")),
	Default: []float64{0},
	Meaning: "clients that arrive a second; 0 is all at the same moment",
}

// Measure is the measure "logins".
type Measure struct{}

// Records lists the measure's one kind of records: login storms.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindStorm, New: func() any { return new(Storm) }}}
}

// Rules returns the rules of experiments that measure logins.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Alone: true, Roles: topology.PortalRoles,
		Keys:          []experiment.Field{rates.Field()},
		Uses:          slices.Concat([]string{experiment.FamilyKey}, experiment.ClientKeys, experiment.UntilKeys),
		Why:           "no payload is sent and no clean router stands beside the device",
		ApplyDefaults: func(e *experiment.Experiment) { e.Windows = 1 }, // a block has one storm
		Check:         check, Settings: settings, Duration: duration, Describe: description,
	}
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	var texts []string
	for _, rate := range rates.Value(e) {
		texts = append(texts, rateText(rate))
	}
	return experiment.Description{Block: "storm", Doing: "log in " + strings.Join(texts, ", ")}
}

// check reports settings of clients and devices with which no storm is possible, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	if !client.KindOf(e.Client.Kind).Leases {
		report("client.kind", "%q does not go with %s: these clients lease no addresses", e.Client.Kind, only)
	}
	if e.Client.Churn > 0 {
		report("client.churn", "does not go with %s: no client sends meanwhile", only)
	}
	if slices.Contains(e.DUTs, experiment.Clean) {
		report("duts", "%q does not go with %s: it has no login", experiment.Clean, only)
	}
}

// settings lists all combinations of numbers of clients and rates. A block measures one storm.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	for _, clients := range e.Clients {
		for _, rate := range rates.Value(e) {
			cell := result.NewCell(result.Clients, clients, LoginRate, rate)
			list = append(list, experiment.Setting{Cell: cell, Cells: []result.Cell{cell}})
		}
	}
	return list
}

// Times for the estimate before a run: means with 100 to 1000 clients. The table of client kinds has the time of a
// client.
const (
	labOverhead  = 1700 * time.Millisecond // to build and remove a lab with its device
	unknownLogin = 60 * time.Millisecond   // a login at a device without a known time
)

// duration estimates how long the storms of a group take if none is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	n, rate := g.Cell.Int(result.Clients), g.Cell.Number(LoginRate)
	lease, login := time.Duration(n)*client.KindOf(e.Client.Kind).Times.Storm,
		time.Duration(n)*loginOf(e, g.Cell.Text(result.DUT))
	if rate > 0 {
		least := time.Duration(float64(n) / rate * float64(time.Second))
		lease, login = max(lease, least), max(login, least)
	}
	return time.Duration(g.Blocks) * (labOverhead + lease + login)
}

// loginOf returns the time of a login that the device's traits give; unknownLogin if they give none.
func loginOf(e *experiment.Experiment, name string) time.Duration {
	d, err := dut.New(name, 1, e)
	if err != nil {
		return unknownLogin
	}
	return cmp.Or(d.Traits().Login, unknownLogin)
}

// rateText renders the rate at which clients arrive.
func rateText(perSecond float64) string {
	if perSecond == 0 {
		return "all at once"
	}
	return fmt.Sprintf("%g a second", perSecond)
}
