package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Survey is what the machines of an experiment have and lack.
type Survey struct {
	Sites    []*Site
	Devices  []DeviceHere // nil if the router's machine was not reached
	Problems []string     // why these machines cannot carry out the experiment
	Here     bool         // a run would measure something
	// FolderMiB is the approximate size of a run's folder.
	FolderMiB float64
}

// Site is a machine of an experiment.
type Site struct {
	*backend.Reached
	Kind    string          // kind of the host that it carries: "client"; empty: it carries all hosts
	Machine machine.Machine // zero if it was not reached
	Ahead   time.Duration   // by how much its clock is ahead of this machine's
	Within  time.Duration   // largest error of Ahead: half of a request's round trip
	Needs   []NeedHere
	Limits  []LimitHere
	Busiest []machine.User // programs that used CPU time during one second
	// Unmetered says why the CPU time of its router is not read, if the experiment can do without. It is empty if the time
	// is read.
	Unmetered string
	// Unkept says why the quality of its clock is unknown, if the experiment asks for it. Kept is that quality.
	Unkept error
	Kept   machine.Clock
}

// NeedHere is a program or kernel feature that the experiment needs, and what the machine has of it.
type NeedHere struct {
	dut.Need
	machine.Found
	Users []string // what needs it: "the lab", "opennds"
	Lab   bool     // the lab needs it, so no run is possible without it
}

// SurveyOf looks at all machines of an experiment at the same time. It starts no lab, and needs no rights on this
// machine.
func SurveyOf(ctx context.Context, m Measure, e *experiment.Experiment, o backend.Options) (s Survey, err error) {
	list, done, can, err := reached(ctx, e, o)
	if err != nil {
		return s, err
	}
	defer done()
	e, _, unfit := Fit(can, e)
	for _, problem := range parts(unfit) {
		s.Problems = append(s.Problems, problem.Error())
	}
	for _, r := range list {
		site := &Site{Reached: r}
		if r.Host != "" {
			site.Kind = kindOf(r.Host)
		}
		s.Sites = append(s.Sites, site)
	}
	var whole Preview
	whole.extend(e)
	s.FolderMiB = whole.FolderMiB
	demand := DemandOf(e)
	err = backend.Each(s.Sites, func(_ int, site *Site) error { return site.look(ctx, e, demand, can.AtOnce) })
	if err != nil {
		return s, err
	}
	s.Devices, err = s.devices(ctx, m, e)
	s.Here = err == nil && s.fit()
	return s, err
}

// reached returns the machines of an experiment, each with an agent if it could be reached. done ends the agents. can
// describes the backend.
func reached(ctx context.Context, e *experiment.Experiment, o backend.Options) (
	list []*backend.Reached, done func() error, can backend.Description, err error) {
	if e.Backend.Remote() {
		list, done, err = machinesOf(e).Survey(ctx, o)
		return list, done, backend.Description{AtOnce: e.Backend.LabsAtOnce(), Cables: true}, err
	}
	local, err := backend.Local(ctx, o)
	if err != nil {
		return nil, nil, can, err
	}
	h, err := local.Machine(ctx)
	if err != nil {
		return nil, nil, can, errors.Join(err, local.Close())
	}
	done = func() error { return errors.Join(h.Stop(), local.Close()) }
	return []*backend.Reached{{Agent: h}}, done, local.Describe(), nil
}

// look fills in what a reached machine is, and which of the experiment's needs it meets.
func (s *Site) look(ctx context.Context, e *experiment.Experiment, d Demand, atOnce int) (err error) {
	if s.Agent == nil {
		return nil
	}
	begin := time.Now()
	if s.Machine, err = s.Agent.Machine(ctx); err != nil {
		return fmt.Errorf("looking at the machine %s: %w", s.Address, err)
	}
	way := time.Since(begin) / 2
	s.Machine.Bars, s.Unmetered = barsFor(e, s.Machine, s.Kind)
	s.Ahead, s.Within = s.Machine.Clock.Sub(begin.Add(way)), way
	if s.Kind != "" {
		d = d.on(s.Kind, atOnce)
	}
	if e.Backend.Clock != "" && s.Kind != onRouter {
		s.Kept, s.Unkept = s.Agent.Clock(ctx)
	}
	s.Limits = limitsHere(s.Machine, d)
	if s.Needs, err = needsHere(e, s.Kind); err != nil {
		return err
	}
	needs := make([]dut.Need, len(s.Needs))
	for i, n := range s.Needs {
		needs[i] = n.Need
	}
	found, err := s.Agent.Find(ctx, machine.Query{Needs: needs, Features: true})
	if err != nil {
		return fmt.Errorf("looking for programs on %s: %w", s.Address, err)
	}
	for i := range found {
		s.Needs[i].Found = found[i]
	}
	if s.Busiest, err = s.Agent.Busiest(ctx); err != nil {
		return fmt.Errorf("looking at other programs of %s: %w", s.Address, err)
	}
	return nil
}

// needsHere returns what the lab and the devices need on hosts of a kind, each once. kind "" means all kinds.
func needsHere(e *experiment.Experiment, kind string) (list []NeedHere, err error) {
	add := func(user string, lab bool, needs ...dut.Need) {
		for _, n := range needs {
			i := slices.IndexFunc(list, func(o NeedHere) bool {
				return o.Program == n.Program && o.KernelFeature() == n.KernelFeature()
			})
			if i < 0 {
				i = len(list)
				list = append(list, NeedHere{Need: n})
			}
			if !slices.Contains(list[i].Users, user) {
				list[i].Users = append(list[i].Users, user)
			}
			list[i].Lab = list[i].Lab || lab
		}
	}
	add("the lab", true, needsOn(Needs(e), kind)...)
	for _, name := range e.DUTs {
		d, err := dut.New(name, 1, e)
		if err != nil {
			return nil, err
		}
		for _, n := range slices.Concat(d.Traits().Needs, linkNeeds(e.Link)) {
			if kind == "" || kind == onRouter && (n.On == "" || runsOn(n, kind)) || n.On != "" && runsOn(n, kind) {
				add(name, false, n)
			}
		}
	}
	return list, nil
}

// devices returns the experiment's devices, each with whether the reached machines can run it.
func (s Survey) devices(ctx context.Context, m Measure, e *experiment.Experiment) (list []DeviceHere, err error) {
	on := sites{closed: e.Backend.AgentlessRouter()}
	for _, site := range s.Sites {
		if site.Kind == on.carried() || site.Kind == "" {
			on.router = site.Agent
		} else if site.Agent != nil {
			on.others = append(on.others, site.Agent)
		}
	}
	if on.router == nil {
		return nil, nil
	}
	session := &Session{Experiment: e, Machine: on.router, sites: on, cfg: Config{Measure: m, Experiment: e}}
	for _, name := range e.DUTs {
		here, err := session.deviceHere(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, here)
	}
	return list, nil
}

// fit reports whether a run would measure something.
func (s Survey) fit() bool {
	return len(s.Problems) == 0 && slices.ContainsFunc(s.Devices, func(d DeviceHere) bool { return d.Here }) &&
		!slices.ContainsFunc(s.Sites, func(site *Site) bool { return !site.Fit() })
}

// Name returns the machine's name for messages.
func (s *Site) Name() string {
	if s.Host == "" {
		return "this machine"
	}
	return fmt.Sprintf("%s (%s)", s.Host, s.Address)
}

// Fit reports whether the machine lacks nothing without which a run is refused.
func (s *Site) Fit() bool {
	return s.Agent != nil && len(s.Faults) == 0 && s.Unkept == nil && s.Machine.Root && len(s.Machine.Bars) == 0 &&
		!slices.ContainsFunc(s.Links, func(l backend.LinkState) bool { return l.Refused != "" }) &&
		!slices.ContainsFunc(s.Needs, func(n NeedHere) bool { return n.Lab && n.Absent(n.Found) }) &&
		!slices.ContainsFunc(s.Limits, func(l LimitHere) bool { return !l.Enough && l.Refuses })
}
