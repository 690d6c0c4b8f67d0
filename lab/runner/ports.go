package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// notePorts records the interface settings of the sitting's first lab. A second lab has the same settings. If a host
// cannot report them, a note says so, and no trial is lost.
func (s *Session) notePorts(ctx context.Context, lab *topology.Lab) {
	s.ports.Do(func() {
		ports, err := portsOf(ctx, lab)
		if err != nil {
			s.Note(err.Error() + ".")
			return
		}
		if s.env.Ports != nil {
			s.noteChangedPorts(s.env.Ports, ports)
		}
		s.env.Ports = ports
	})
}

// portsOf asks all hosts of a lab for their interfaces. The result is by host name.
func portsOf(ctx context.Context, lab *topology.Lab) (map[string][]result.Port, error) {
	names := map[string]string{}
	for name, ifname := range lab.Ports {
		names[ifname] = name
	}
	lists := make([][]result.Port, len(lab.Hosts))
	err := backend.Each(lab.Hosts, func(i int, h *backend.Host) (err error) {
		lists[i], err = h.ReadPorts(ctx, h.Ifs)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the settings of the links are not known: %w", err)
	}
	all := map[string][]result.Port{}
	for i, h := range lab.Hosts {
		for n := range lists[i] {
			if lists[i][n].Name = names[h.Ifs[n]]; lists[i][n].Name == "" {
				lists[i][n].Name = strconv.Itoa(n + 1)
			}
		}
		all[strings.TrimPrefix(h.Name, lab.Name+"/")] = lists[i]
	}
	return all, nil
}

// noteChangedPorts notes the settings in which the links differ from those of earlier sittings.
func (s *Session) noteChangedPorts(before, after map[string][]result.Port) {
	old, now := result.PortSettings(before), result.PortSettings(after)
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if old[key] != now[key] {
			s.Note(fmt.Sprintf("The setting %s has changed since the run began (then %s).", key, old[key]))
		}
	}
}

// governors returns the frequency governors of CPUs, each once with its driver, sorted. It is empty where the clock
// rates are fixed.
func governors(m machine.Machine, cpus []int) (list []string) {
	for _, cpu := range cpus {
		c := m.CPUs[cpu]
		if c.Governor == "" {
			continue
		}
		text := c.Governor
		if c.Driver != "" {
			text += " (" + c.Driver + ")"
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return list
}
