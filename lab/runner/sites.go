package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// sites are the machines of the labs' hosts, by the hosts' names. router is the machine with the metered hosts. If
// there is only one machine, it carries all hosts.
type sites struct {
	router *backend.Host
	// closed is true if the routers have no agent. router is then the machine of the servers.
	closed bool
	others []*backend.Host
}

// openSites starts an agent on each machine. On an error it leaves none running.
func openSites(ctx context.Context, b backend.Backend) (s sites, err error) {
	if s.router, err = b.Machine(ctx); err != nil {
		return s, err
	}
	if s.others, err = b.Others(ctx); err != nil {
		s.close()
	}
	return s, err
}

func (s sites) close() {
	for _, h := range append([]*backend.Host{s.router}, s.others...) {
		if h != nil {
			h.Stop()
		}
	}
}

// Find looks for programs and features on the machines that need them. For those that several machines may need, it
// asks the router's machine.
func (s sites) Find(ctx context.Context, q machine.Query) ([]machine.Found, error) {
	found, err := s.router.Find(ctx, q)
	for _, h := range s.others {
		part := machine.Query{Versions: q.Versions}
		var places []int
		for i, n := range q.Needs {
			if n.On != "" && !runsOn(n, s.carried()) && runsOn(n, kindOf(h.Name)) {
				part.Needs, places = append(part.Needs, n), append(places, i)
			}
		}
		if err != nil || len(part.Needs) == 0 {
			continue
		}
		var foundThere []machine.Found
		if foundThere, err = h.Find(ctx, part); err == nil {
			for i, place := range places {
				found[place] = foundThere[i]
			}
		}
	}
	return found, err
}

// kindOf returns the kind of a host, for Need.On: "client" for client2.
func kindOf(host string) string { return strings.TrimRight(host, "0123456789") }

// carried returns the kind of host that the machine called router carries.
func (s sites) carried() string {
	if s.closed {
		return onServer
	}
	return onRouter
}

// check returns one error with everything that the experiment needs and the machines lack, each with the key of its
// host. It returns the router's machine, and all machines by their hosts if there are several.
func (s sites) check(ctx context.Context, e *experiment.Experiment, d Demand, atOnce int) (
	machine.Machine, map[string]machine.Machine, error) {
	if len(s.others) == 0 {
		m, err := checkMachine(ctx, s.router, e, d)
		return m, nil, err
	}
	router, errs := machine.Machine{}, []error{}
	all := map[string]machine.Machine{}
	for _, h := range append([]*backend.Host{s.router}, s.others...) {
		host := s.carried()
		if h != s.router {
			host = h.Name
		}
		m, err := checkSite(ctx, h, e, d.on(kindOf(host), atOnce), kindOf(host))
		for _, part := range parts(err) {
			errs = append(errs, e.Blame(e.HostKeySet(host, "address"), part.Error()))
		}
		if all[host] = m; h == s.router {
			router = m
		}
	}
	return router, all, errors.Join(errs...)
}

// on returns the part of a demand that the machine of one kind of host must meet.
func (d Demand) on(kind string, atOnce int) Demand {
	d.Lab.Hosts, d.Apart = 1, kind
	if atOnce < len(d.Sides) {
		most := slices.IndexFunc(d.Sides, func(s experiment.Side) bool { return s.Clients == d.Clients() })
		d.Sides = d.Sides[most : most+1]
	}
	return d
}

// needsOn returns the needs on hosts of a kind. "" means all kinds.
func needsOn(needs []dut.Need, kind string) []dut.Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n dut.Need) bool {
		return kind != "" && !runsOn(n, kind)
	})
}

// runsOn reports whether a program runs on hosts of a kind.
func runsOn(n dut.Need, kind string) bool {
	return n.On == "" || slices.Contains(strings.Split(n.On, ","), kind)
}

// sitesOf describes the machines of a run, for environment.json.
func sitesOf(e *experiment.Experiment, found map[string]machine.Machine) map[string]result.Site {
	list := map[string]result.Site{}
	for host, m := range found {
		h := e.Backend.Hosts[host]
		site := result.Site{
			Address: h.Address, Kernel: m.Kernel, Arch: m.Arch, CPUModel: m.CPUModel, CPUs: m.Online, Uses: h.CPUs,
			MemoryMiB: m.Memory.Total >> 10, Virtualisation: m.Virtualisation, AgentSHA256: m.Program,
			Interfaces: slices.Concat(h.LAN, h.WAN, h.Interface),
		}
		if len(site.Uses) == 0 {
			site.Uses = m.Usable
		}
		site.Governors = governors(m, site.Uses)
		list[host] = site
	}
	return list
}

// noteSites notes once in what the machines differ.
func (s *Session) noteSites() {
	kernels := map[string][]string{}
	for _, host := range slices.Sorted(maps.Keys(s.env.Machines)) {
		release, _, _ := strings.Cut(s.env.Machines[host].Kernel, " ")
		kernels[release] = append(kernels[release], host)
	}
	if len(kernels) < 2 {
		return
	}
	var texts []string
	for _, release := range slices.Sorted(maps.Keys(kernels)) {
		texts = append(texts, fmt.Sprintf("%s on %s", release, words.Listed(kernels[release])))
	}
	note := "The machines have different kernels: " + strings.Join(texts, "; ") + "."
	if !slices.Contains(s.env.Notes, note) {
		s.Notice("%s", note)
		s.Note(note)
	}
}
