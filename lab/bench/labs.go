package bench

import (
	"context"
	"errors"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Labs says what the labs of a block are built from.
type Labs struct {
	Backend    backend.Backend
	Experiment *experiment.Experiment
	DUT        string            // name of the device
	DUTLab     string            // "a" or "b"
	Like       string            // another device, as whose the links are set; empty: DUT
	Sides      []experiment.Side // the device's lab, and the one that it is compared with where there is one
	Aggregate  bool              // the routers' links aggregate packets
	Between    agent.Shape       // shape of the link between two gateways
	// UrgentRouters gives the polling threads of the routers' links real-time priority: see topology.Topology.
	UrgentRouters bool
	BusyWait      bool          // senders of frames never rest, and use the faster engine: see agent.Frames
	Ends          agent.Shape   // shape of what clients and server send: see topology.Spec
	Slowed        *backend.Host // the routers' machine if their CPUs are slowed down, else nil
	Speed         float64       // share of their time that slowed CPUs keep
	CPUs          int           // of the routers' machine
	// CPUOptional means that the measure has figures even without the routers' CPU time: see agent.Meter.
	CPUOptional bool
	// Built is called with each lab that was built, before its device starts. It may be nil.
	Built func(context.Context, *topology.Lab)
	// Prepare is called with the device of a lab before anything is built. It may be nil.
	Prepare func(dut.DUT)
	// Left is called with an error of leaving the labs. The measured values stay valid.
	Left func(err error)
}

// Admitted opens the device's lab, admits its clients, calls work, and leaves the lab.
func (l Labs) Admitted(ctx context.Context, work func(*Bench) error) error {
	s, err := l.openDevice(ctx)
	if err != nil {
		return err
	}
	if err := s.admit(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	if err = work(s); err != nil {
		err = CauseOf(err, s.Lab)
	}
	return End(ctx, err, l.Left, s)
}

// Started opens the device's lab, calls work, and stops the device without logging clients out. It returns an error of
// work unchanged, because that names the phase in which a host was lost.
func (l Labs) Started(ctx context.Context, work func(*Bench) error) error {
	s, err := l.openDevice(ctx)
	if err != nil {
		return err
	}
	return End(ctx, work(s), l.Left, keepAdmitted{s})
}

// keepAdmitted is a lab whose clients do not log out when it is left.
type keepAdmitted struct{ *Bench }

func (s keepAdmitted) Leave(ctx context.Context) error {
	if s.Abandoned {
		return nil
	}
	return s.StopDevice(ctx)
}

// Pair opens the labs of the device and of a clean router, admits their clients, calls work with both, and leaves them.
func (l Labs) Pair(ctx context.Context, work func(device, clean *Bench) error) error {
	device, clean, err := l.OpenPair(ctx)
	if err != nil {
		return err
	}
	return End(ctx, work(device, clean), l.Left, device, clean)
}

// openDevice builds the device's lab and starts the device; there are no clients yet. On error
// nothing is left.
func (l Labs) openDevice(ctx context.Context) (*Bench, error) {
	d, err := l.device()
	if err != nil {
		return nil, err
	}
	links := d
	if l.Like != "" {
		if links, err = dut.New(l.Like, l.Sides[0].Clients+l.Experiment.Client.Guests(), l.Experiment); err != nil {
			return nil, err
		}
	}
	return l.open(ctx, l.DUTLab, d, links, l.Sides[0])
}

// OpenPair builds both labs at once and admits their clients. Networks, queues and the links'
// settings are alike on both sides. On error nothing is left.
func (l Labs) OpenPair(ctx context.Context) (device, clean *Bench, err error) {
	d, err := l.device()
	if err != nil {
		return nil, nil, err
	}
	labs := [2]string{l.DUTLab, map[string]string{"a": "b", "b": "a"}[l.DUTLab]}
	sides, err := Each([]dut.DUT{d, dut.Clean{}}, func(i int, own dut.DUT) (*Bench, error) {
		s, err := l.open(ctx, labs[i], own, d, l.Sides[i])
		if err != nil {
			return nil, err
		}
		return s, s.admit(ctx)
	})
	if err == nil {
		return sides[0], sides[1], nil
	}
	for _, s := range sides {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return nil, nil, err
}

func (l Labs) device() (dut.DUT, error) {
	d, err := dut.New(l.DUT, l.Sides[0].Clients+l.Experiment.Client.Guests(), l.Experiment)
	if err == nil && l.Prepare != nil {
		l.Prepare(d)
	}
	return d, err
}

// open builds one lab and starts routerDUT in it. Links and packet sizes are set as device needs them, so they are
// alike in both labs of a pair.
func (l Labs) open(ctx context.Context, lab string, routerDUT, device dut.DUT, has experiment.Side) (*Bench, error) {
	s, built, err := l.side(routerDUT, device, has)
	if err != nil {
		return nil, err
	}
	return s, s.open(ctx, l.Backend, built, lab)
}

// OpenToInspect opens a lab with its clients for somebody who wants to see it, also one that does not work: fault is
// why the device did not start, or its clients were not admitted. On err nothing is left.
func (l Labs) OpenToInspect(ctx context.Context) (s *Bench, fault, err error) {
	d, err := l.device()
	if err != nil {
		return nil, nil, err
	}
	s, built, err := l.side(d, d, l.Sides[0])
	if err == nil {
		err = s.build(ctx, l.Backend, built, l.DUTLab)
	}
	if err != nil {
		return nil, nil, err
	}
	if fault = s.startDevice(ctx); fault == nil {
		fault = s.admitClients(ctx)
	}
	return s, fault, nil
}

// side is one lab that is not built yet, and its topology.
func (l Labs) side(routerDUT, device dut.DUT, has experiment.Side) (*Bench, topology.Topology, error) {
	shared := device.Traits()
	s := &Bench{
		DUT: routerDUT, Side: has, Clock: l.Backend.Describe().Clock, slowed: l.Slowed, speed: l.Speed, cpus: l.CPUs,
		busyWait: l.BusyWait, built: l.Built, cpuOptional: l.CPUOptional,
		Guests: l.Experiment.Client.Guests(), addsNeighbours: EntersNeighbours(l.Sides...),
		singly: client.KindOf(l.Experiment.Client.Kind).PPPoE,
	}
	if d, ok := device.(dut.Encapsulating); ok {
		s.mtu = d.MTU()
	}
	for _, side := range l.Sides {
		s.maxClients = max(s.maxClients, side.Clients)
	}
	// A measure without a clean router measures the leases, so the addresses must not be static.
	s.static = len(l.Sides) > 1 && hasStatic(has, s.addsNeighbours, routerDUT.Traits()) ||
		l.Experiment.Backend.AgentlessRouter()
	lan, wan := l.Experiment.Backend.AgentlessAddresses()
	build, err := topology.Named(l.Experiment.Topology)
	if err != nil {
		return nil, topology.Topology{}, err
	}
	return s, build(topology.Spec{
		Family: has.Family, Aggregate: l.Aggregate, LAN: routerDUT.Traits().LAN, Clients: s.maxClients + s.Guests,
		ClientHosts: l.Experiment.Client.Hosts, Closed: [2]netip.Prefix{lan, wan},
		Cables:        l.Backend.Describe().Cables,
		Urgent:        traffic.KindOf(has.Traffic.Kind).Frames,
		UrgentRouters: l.UrgentRouters, Between: l.Between, Ends: l.Ends,
		NoAggregation: shared.NoAggregation, NoTxChecksum: shared.NoTxChecksum,
	}), nil
}
