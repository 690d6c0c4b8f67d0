package cost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Measure measures the CPU cost of forwarding: a router carries a given load, and its CPU time per delivered bit is
// compared with that of a clean router.
type Measure struct{}

// Name is the measure's name in experiments and records.
const Name = "cost"

// Records lists the kinds of record that the measure writes: a trial has Sides, a block has a Stay.
func (Measure) Records() []result.Kind {
	return []result.Kind{
		{Name: result.KindTrial, New: func() any { return new(Sides) }, Check: checkLengths},
		{Name: result.KindBlock, New: func() any { return new(Stay) }},
	}
}

// checkLengths returns an error for an accepted trial that has a window of no length.
func checkLengths(figures any) error {
	if s := figures.(*Sides); s.DUT.Seconds <= 0 || s.Clean.Seconds <= 0 && !s.lone() {
		return errors.New("trial: it is accepted, and one of its windows has no seconds")
	}
	return nil
}

// Rules says which keys an experiment that measures cost may set, and how it is checked, planned and described.
func (Measure) Rules() experiment.Measure {
	return experiment.Measure{
		Name: Name, Delays: true,
		Roles: topology.PortalRoles,
		Uses: append([]string{
			"offered_mbps", "offered_kpps", "mbps_per_client", "frame_sizes", "directions", "profiles", "aa_blocks", "windows",
			"window", "warmup", "profile_window",
			"traffic.kind", "traffic.protocol", "traffic.burst_segments", "traffic.pacing", "traffic.gaps", "traffic.seed",
			"traffic.short_per_second", "traffic.short_bytes",
			"beside.client", "beside.traffic", "beside.clients", experiment.FamilyKey,
		}, slices.Concat(experiment.ClientKeys, experiment.LinkKeys, experiment.UntilKeys)...),
		Check: check, Settings: settings, Duration: duration, Describe: description,
	}
}

// description describes a block's windows and loads for people.
func description(e *experiment.Experiment) experiment.Description {
	var loads []string
	if len(e.OfferedMbps) > 0 {
		loads = append(loads, experiment.Series(e.OfferedMbps)+" Mbit/s")
	}
	if len(e.MbpsPerClient) > 0 {
		loads = append(loads, experiment.Series(e.MbpsPerClient)+" Mbit/s each")
	}
	if len(e.OfferedKpps) > 0 {
		loads = append(loads, experiment.Series(e.OfferedKpps)+" thousand frames a second")
	}
	doing := "at " + strings.Join(loads, " and ")
	if len(e.FrameSizes) > 0 {
		doing += ", frames of " + words.Listed(e.FrameSizes)
	}
	return experiment.Description{
		Block: "block", Contents: fmt.Sprintf(" of %s of %g s", words.Counted(e.Windows, "window"), e.Window.Seconds()),
		Doing: doing,
	}
}

// check refuses experiments without a load.
func check(e *experiment.Experiment, report experiment.Report) {
	if !e.IsSet("mbps_per_client") && !e.IsSet("offered_mbps") && !e.IsSet("offered_kpps") {
		report("offered_mbps", "missing: an experiment needs it")
	}
}

// settings lists the blocks of an experiment: each combination of clients, direction, profile, frame size and link. A
// block measures all loads of its combination, one after the other.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	e.EachFlow(func(flow result.Cell, clients int) {
		e.EachLoad(clients, func(size string, loads []float64) {
			e.EachLink(flow.With(result.FrameSize, size), func(cell result.Cell) {
				s := experiment.Setting{Cell: cell}
				for _, mbps := range loads {
					s.Cells = append(s.Cells, cell.With(result.OfferedMbps, mbps))
				}
				list = append(list, s)
			})
		})
	})
	return list
}

// Times that duration assumes. They are means over 174 blocks of quick, portal-bandwidth and portal-clients with
// openNDS, CoovaChilli and an allow-list, two labs on two cores. The times of clients are in client.Kind.
const (
	blockOverhead = 500 * time.Millisecond // labs up and down
	cellOverhead  = 300 * time.Millisecond // traffic started, settled and read out
	// The average device. openNDS takes 3 s, and 0.12 s a client to log in,
	// CoovaChilli 0.5 s and 5 ms, an allow-list next to nothing.
	deviceOverhead  = 1200 * time.Millisecond
	redoneShare     = 0.12            // windows measured again: 1 % of them in quick, 14 to 31 % at 100 clients
	profileOverhead = 5 * time.Second // perf started, its samples read and named
)

// duration estimates how long a group of blocks takes. In solo mode the two windows of a pair follow each other; in
// interleaved rounds a block has one side.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	windows := time.Duration((1 + redoneShare) * float64(e.Windows) * float64(e.Window))
	name, clients, cells := g.Cell.Text(result.DUT), time.Duration(g.Cell.Int(result.Clients)), time.Duration(len(g.Cells))
	labs := e.Labs(experiment.Block{Cell: g.Cell, AA: g.AA})
	comes := max(admissionTime(labs[0]), admissionTime(labs[1]))
	if e.Interleaved() {
		comes = admissionTime(labs[0])
	}
	block := blockOverhead + comes + idleTime(e) + cells*cellOverhead
	for _, cell := range g.Cells {
		load := e.WarmupOf(cell.Number(result.OfferedMbps), cell.Text(result.Direction), labs...) + windows
		if e.Mode == result.ModeSolo {
			load *= 2
		}
		block += load
	}
	if !g.AA && !g.Clean {
		block += deviceOverhead
		if custom, ok := e.Custom[name]; !ok || custom.Like != "" || len(custom.Login)+len(custom.Admit) > 0 {
			block += clients * login(e, labs[0], name)
		}
	}
	total := time.Duration(g.Blocks) * block
	if !g.AA && e.ProfileWindow > 0 {
		total += cells * (e.ProfileWindow + profileOverhead)
	}
	return total
}

// login estimates how long one client takes to log in at a device; 0 if it need not. For kinds of client that log in
// quickly, the device's own estimate counts, else the kind's.
func login(e *experiment.Experiment, s experiment.Side, name string) time.Duration {
	times := client.KindOf(s.Client).Times
	d, err := dut.New(name, s.Clients, e)
	if err != nil {
		return times.Login
	}
	traits := d.Traits()
	if _, custom := e.Custom[name]; !custom && traits.Admission.Kind == client.AdmitNone && !traits.PPPoE {
		return 0
	}
	if times.FastLogin > 0 {
		return cmp.Or(traits.PersonaLogin, times.Login)
	}
	return times.Login
}

// admissionTime is how long a lab's clients take to come and go.
func admissionTime(s experiment.Side) time.Duration {
	return time.Duration(s.Clients) * client.KindOf(s.Client).Times.Stay
}
