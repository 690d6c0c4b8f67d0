// A survey of the backend SSH's machines, for gateweigh doctor.

package backend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// Reached is what Survey found out about a machine.
type Reached struct {
	Host    string // name in the topology
	Address string // argument of ssh
	User    string // "root", or "an ordinary user, by sudo"
	Agent   *Host  // answers for the machine; nil: Faults tell why there is none
	Brought bool   // the agent was copied there, because no fitting one is installed
	Links   []LinkState
	Faults  []*HostError
}

// LinkState is one of a machine's interfaces that the experiment names.
type LinkState struct {
	Port    string // name in the topology: "lan"
	Name    string // name on the machine: "enp2s0"
	Refused string // why it may not be taken; empty: it may
}

// Survey connects to all machines at the same time and examines whether each can be a host. It reports all faults of
// all machines, and takes no interfaces. done ends the agents and connections.
func (s SSH) Survey(ctx context.Context, o Options) (list []*Reached, done func() error, err error) {
	b, err := s.begin(o)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range s.Machines {
		list = append(list, &Reached{Host: r.Host, Address: r.Address})
	}
	slices.SortFunc(list, func(x, y *Reached) int { return cmp.Compare(x.Host, y.Host) })
	Each(list, func(_ int, r *Reached) error { // it returns no errors: they are in r.Faults
		b.survey(ctx, b.machines[r.Host], r)
		return nil
	})
	if twice := b.checkDistinct(); twice != nil {
		for _, e := range HostErrors(twice) {
			r := list[slices.IndexFunc(list, func(r *Reached) bool { return r.Host == e.Host })]
			r.Faults = append(r.Faults, e)
		}
	}
	return list, b.Close, context.Cause(ctx)
}

// survey examines one machine.
func (b *overSSH) survey(ctx context.Context, m *machine, r *Reached) {
	err := m.reach(ctx)
	if err == nil {
		if r.User = "root"; !m.facts.root {
			r.User = "an ordinary user, by sudo"
		}
		err = b.prepare(ctx, m)
	}
	if r.Faults = m.faults(err); len(r.Faults) > 0 {
		return
	}
	there := *m.keeper
	there.Name = m.Host
	r.Agent, r.Brought = &there, m.program != m.facts.installed
	var names []string
	for _, port := range slices.Sorted(maps.Keys(m.Links)) {
		for _, name := range m.Links[port] {
			r.Links = append(r.Links, LinkState{Port: cmp.Or(port, "interface"), Name: name})
			names = append(names, name)
		}
	}
	refused, err := m.keeper.RefusedLinks(ctx, names, m.facts.connection)
	if err != nil {
		r.Faults = m.faults(fmt.Errorf("looking at its interfaces: %w", err))
		return
	}
	for i, why := range refused {
		r.Links[i].Refused = why
	}
}

// faults lists the errors about a machine that are joined in err. Other errors count as faults of its address.
func (m *machine) faults(err error) []*HostError {
	if list := HostErrors(err); len(list) > 0 || err == nil {
		return list
	}
	return []*HostError{{m.Host, "address", err}}
}
