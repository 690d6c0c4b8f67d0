// This data path as package datapath knows it: its name, and what the gateway can ask of it.

package ebpf

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

const name = "ebpf"

// Kind is this kind of data path.
var Kind = datapath.Kind{
	Traits: datapath.Traits{Name: name, Keys: []string{"forward", "flow_cache", "shaping"}, PPPoE: true,
		Outside: true, IPv6: true, Networks: true, Visits: true},
	Open:         open,
	Check:        func(s datapath.Setup) error { return Check(config(s)) },
	Left:         func(s datapath.Setup) bool { return Attached(config(s)) },
	Leave:        removePrograms,
	LeavesClosed: true,
	InSight:      func(s datapath.Setup) error { return InSight(config(s)) },
	Shares:       []datapath.Shared{datapath.Neighbours, datapath.Routes, datapath.Guarding},
	Pins:         true,
	Capabilities: []int{unix.CAP_BPF},
	Opening:      []int{unix.CAP_PERFMON},
	OwnWAN:       true,
	Outlives:     datapath.Forever,
}

func open(s datapath.Setup) (datapath.Running, error) {
	d, err := Open(config(s))
	if err != nil {
		return datapath.Running{}, err
	}
	if err := s.LeaveFormer(); err != nil {
		return datapath.Running{}, errors.Join(err, d.Close())
	}
	return d.running(), nil
}

func (d *Datapath) running() datapath.Running {
	return datapath.Running{
		Forwarder: d, Wait: d.Wait, Portal: d.Portal, Requests: d.Requests, OpenPort: d.OpenPort, OpenFor: d.OpenFor,
		Moved: d.Moved, Forget: d.Forget, Repairs: func() map[string]uint64 { return d.Repairs().Counts() }, Bypassed: d,
		IPv6: d.ipv6(),
	}
}

// ipv6 is what the data path does for a network with IPv6; nil: the network has none.
func (d *Datapath) ipv6() datapath.IPv6 {
	if d == nil || !d.has6() {
		return nil
	}
	return d
}

// Counts returns them by name.
func (r Repairs) Counts() map[string]uint64 {
	return map[string]uint64{
		"taken-off": r.Removed, "attached-again": r.Attached, "pinned-again": r.Pinned, "guarded-again": r.Guarded,
		"error": r.Errors,
	}
}

func config(s datapath.Setup) Config {
	return Config{
		Networks: s.Networks, WAN: s.WAN, PortalPorts: s.PortalPorts,
		Forward: Forward(s.Forward), FlowCache: FlowCache(s.FlowCache), Shaping: Shaping(s.Shaping), PinDir: s.PinDir,
		Shared: s.Shared, Reaches: s.Reaches, StayClosed: s.StayClosed,
		Newcomer: s.Newcomer, DHCP: s.DHCP, PPPoE: s.PPPoE, Flows: s.Flows, ForeignPins: s.ForeignPins, Log: s.Log,
	}
}

// removePrograms removes programs and pins. Pins belong to the machine and not to the network namespace: those of a
// gateway that has another kind now are removed only with the programs on this LAN.
func removePrograms(s datapath.Setup) error {
	if c := config(s); s.Kind == name || Attached(c) {
		return Remove(c)
	}
	return nil
}
