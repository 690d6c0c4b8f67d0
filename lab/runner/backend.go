package runner

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// open opens the run's backend.
func (c Config) open(ctx context.Context) (backend.Backend, error) {
	if c.VM != nil && c.Experiment.Backend.Remote() {
		return nil, c.Experiment.Blame("backend.kind", "a guest of --kernel reaches no other machines: measure without")
	}
	open := c.Backend
	if open == nil {
		open = OpenFor(c.Experiment)
	}
	b, err := open(ctx, backend.Options{
		Run: filepath.Base(c.Dir), LogDir: filepath.Join(c.Dir, result.LogsFolder), SecondCPU: c.Experiment.CPUs() > 1,
	})
	return b, blamed(c.Experiment, err)
}

// OpenFor opens the backend that an experiment names.
func OpenFor(e *experiment.Experiment) backend.Open {
	if !e.Backend.Remote() {
		return backend.Local
	}
	return machinesOf(e).Open
}

// machinesOf returns the machines that an experiment reaches by ssh.
func machinesOf(e *experiment.Experiment) backend.SSH {
	s := backend.SSH{Config: e.Backend.Config, Chrony: e.Backend.Clock == experiment.ClockChrony}
	for host, h := range e.Backend.Hosts {
		if h.Address == "" {
			continue // a router without an agent
		}
		links := map[string][]string{}
		for port, list := range map[string][]string{"": h.Interface, topology.PortLAN: h.LAN, topology.PortWAN: h.WAN} {
			if len(list) > 0 {
				links[port] = list
			}
		}
		s.Machines = append(s.Machines, backend.Remote{
			Host: host, Address: h.Address, Links: links, Sudo: backend.Sudo(cmp.Or(h.Sudo, string(backend.SudoAuto))),
			CPUs: h.CPUs})
	}
	return s
}

// blamed adds the experiment's keys to a backend's errors about hosts, in the order of their lines. Other errors stay
// as they are.
func blamed(e *experiment.Experiment, err error) error {
	list := backend.HostErrors(err)
	if len(list) == 0 {
		return err
	}
	var problems strict.Problems
	for _, one := range list {
		problems = append(problems, e.Blame(e.HostKeySet(one.Host, one.Key), one.Err.Error()))
	}
	return problems.Err()
}

// Fit returns the experiment as a backend can carry it out. If the experiment asks for two labs at a time and the
// backend has one router, fit is interleaved and note says so. Otherwise fit is e and note is empty. err says what the
// backend cannot carry out.
func Fit(can backend.Description, e *experiment.Experiment) (fit *experiment.Experiment, note string, err error) {
	if e.ComparesTimes() && !can.Clock.Common {
		return e, "", e.Blame("measure", fmt.Sprintf("this backend's hosts have no common clock, and measure = %q "+
			"compares times of several hosts", e.Measure))
	}
	if e.LabsAtOnce() <= can.AtOnce {
		return e, "", nil
	}
	fit, err = e.WithOneLab()
	note = fmt.Sprintf("Measured with mode = %q instead of %q: there is one router here, so devices and clean routers "+
		"take turns, one lab at a time.", fit.Mode, e.Mode)
	return fit, note, err
}

// slow slows the routers' CPUs down if the experiment asks for it, until the agent of their machine ends. The clients
// need other CPUs: a slow client looks like a slow router.
func slow(ctx context.Context, machine *backend.Host, p backend.Placement, e *experiment.Experiment) error {
	if e.Router.Speed == 0 {
		return nil
	}
	return slowTo(ctx, machine, p, e, e.Router.Speed, "router.speed")
}

// slowTo slows the routers' CPUs down to speed, a share of their time. Errors name key.
func slowTo(ctx context.Context, machine *backend.Host, p backend.Placement, e *experiment.Experiment, speed float64,
	key string) error {
	if p.Shared() {
		return e.Blame(key, "needs a CPU for the routers alone, and labs may use only one here")
	}
	cpus := p.Router
	if !p.SecondShared() {
		cpus = slices.Concat(cpus, p.Second)
	}
	if err := machine.Slow(
		ctx, agent.Slow{CPUs: cpus, Speed: speed, OwnCPUs: p.Beside(), How: burn.RealTime}); err != nil {
		return e.Blame(key, err.Error())
	}
	return nil
}

// noteClosed notes once what is unknown about a router without an agent.
func (s *Session) noteClosed() {
	const note = "The router has no agent: throughput, loss and round-trip times only. Its CPU, its kernel and its " +
		"settings " +
		"are not known."
	if s.Experiment.Backend.AgentlessRouter() && !slices.Contains(s.env.Notes, note) {
		s.Notice("%s", note)
		s.Note(note)
	}
}

// noteUnmetered notes once why the router's CPU is not measured, if it is not.
func (s *Session) noteUnmetered() {
	_, why := barsFor(s.Experiment, s.found, s.sites.carried())
	note := "The router's CPU is not measured: " + why + ". Throughput, loss and round-trip times are."
	if why != "" && !slices.Contains(s.env.Notes, note) {
		s.Notice("%s", note)
		s.Note(note)
	}
}

// noteClock notes once what the hosts' clocks mean for the times between hosts that the measure compares.
func (s *Session) noteClock() {
	figures := s.Experiment.TimesBetweenHosts()
	note := s.Clock.Note(figures)
	if figures == "" || note == "" || slices.Contains(s.env.Notes, note) {
		return
	}
	s.Notice("%s", note)
	s.Note(note)
}
