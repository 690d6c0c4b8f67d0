// Package bench runs one lab of a block: a router with its device, admitted clients, their traffic, and the meters of
// all hosts. Every measure works with these labs, one at a time or as a pair of device and clean router:
//
//	Labs.Admitted, Started, Pair   open labs, call the measure's function, and remove the labs even after an error
//	Bench.StartTraffic, Read, …    are what the measure's function does with a lab
//	Bench.Judge                    applies the measure's rules and returns why a trial does not count
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// Bench is one lab of a block.
type Bench struct {
	Lab     *topology.Lab
	Router  *backend.Host   // the first metered host, with the device; nil: the router has no agent
	Routers []*backend.Host // all metered hosts: the router, or both gateways of a tunnel
	Server  *backend.Host   // the end of the traffic opposite to the clients
	Hosts   []ClientHost
	DUT     dut.DUT
	Traits  dut.Traits
	Env     dut.Env
	Clients []dut.ClientAddr // those that have an address
	Side    experiment.Side  // the clients that the experiment asks for, and their traffic
	Guests  int              // short-stay clients that come and go during the load, numbered after the other clients
	Load    agent.Traffic    // the present or last load, of all client hosts together

	// How long the lab and its device, the leases and the logins of all clients took.
	Setup, Lease, Login time.Duration
	LoginMs             []float64 // one value a client; none where no client logs in itself

	LineMbps float64 // rate of the routers' slowest physical link; 0: the links are virtual

	Clock backend.Clock // stamps what its hosts send and receive; its error bound is that of the last start of traffic

	// Abandoned is set by a measure that ended a host on purpose. The lab is then closed without stopping its device.
	Abandoned bool

	busyWait bool          // senders of frames poll the clock without sleeping
	slowed   *backend.Host // the routers' machine if their CPUs are slowed down, else nil
	speed    float64       // share of their time that slowed CPUs keep
	cpus     int           // of the routers' machine
	// cpuOptional leaves the routers' CPU time out where their kernel cannot tell it
	cpuOptional bool

	maxClients     int  // number of clients of the larger lab of a pair
	mtu            int  // of the tunnel, for which both labs of a pair size their packets; 0: no tunnel
	singly         bool // clients send packets one by one, without segmentation offload: PPPoE, and the lab beside it
	addsNeighbours bool // the lab adds its clients to the router's neighbour table: see EntersNeighbours
	static         bool // the clients' addresses are set without DHCP: see hasStatic

	built func(context.Context, *topology.Lab) // see Labs.Built

	admittedDelay time.Duration // from admission to the first knock that arrived: see ProveAdmitted

	toServer, toClients []send.Stream // of frames, by client: see addressFrames
	shift               int64         // of the server's clock to the clients', ns: see readClocks
}

// ClientHost is a host with its share of the lab's clients.
type ClientHost struct {
	*backend.Host
	first, count int // its clients have the numbers first to first+count-1
}

// shareClients spreads n clients evenly over hosts; hosts that would get none
// are left out.
func shareClients(hosts []*backend.Host, n int) []ClientHost {
	var list []ClientHost
	first := 1
	for i, h := range hosts {
		count := n*(i+1)/len(hosts) - n*i/len(hosts)
		if count > 0 {
			list = append(list, ClientHost{h, first, count})
		}
		first += count
	}
	return list
}

// StartOffset is how much later than host 0 host i begins, when the hosts together act perSecond times a second.
// Without the offset all hosts would act at the same moments.
func StartOffset(i int, perSecond float64) time.Duration {
	if perSecond == 0 {
		return 0
	}
	return time.Duration(float64(i) / perSecond * float64(time.Second))
}

// EachHost calls fn for all client hosts at once and waits for all.
func (s *Bench) EachHost(fn func(i int, h ClientHost) error) error {
	return backend.Each(s.Hosts, fn)
}

// Each calls fn for all elements of a list at once, and returns the results in the list's order.
func Each[E, T any](list []E, fn func(i int, e E) (T, error)) ([]T, error) {
	out := make([]T, len(list))
	return out, backend.Each(list, func(i int, e E) (err error) { out[i], err = fn(i, e); return err })
}

// admit admits all clients and opens the meters: traffic is forwarded from then on.
func (s *Bench) admit(ctx context.Context) error {
	if err := s.admitClients(ctx); err != nil {
		return s.explainByFlows(ctx, err)
	}
	if err := s.checkFlows(ctx); err != nil {
		return err
	}
	return s.OpenMeters(ctx)
}

// open builds the lab and starts its device; there are no clients yet. On error nothing is left.
func (s *Bench) open(ctx context.Context, on backend.Backend, described topology.Topology, name string) (err error) {
	start := time.Now()
	if err := s.build(ctx, on, described, name); err != nil {
		return err
	}
	if err := s.startDevice(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	s.Setup = time.Since(start)
	return nil
}

// build builds the lab's hosts and links and fills in the fields that describe them.
func (s *Bench) build(ctx context.Context, on backend.Backend, described topology.Topology, name string) (
	err error) {
	s.Traits = s.DUT.Traits()
	if s.Lab, err = described.Build(ctx, on, name); err != nil {
		return err
	}
	s.Routers, s.Server = s.Lab.Metered(), s.Lab.Of(backend.RoleServer)[0]
	if len(s.Routers) > 0 {
		s.Router = s.Routers[0]
	}
	s.Hosts = shareClients(s.Lab.Clients, s.Side.Clients)
	s.Env = DeviceEnv(s.Lab, s.Router)
	s.Env.Capture, s.Env.Clients = s.Lab.Port(topology.PortWAN), s.Side.Clients+s.Guests
	if s.LineMbps, err = s.slowestLine(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	if s.built != nil {
		s.built(ctx, s.Lab)
	}
	return nil
}

// DeviceEnv returns the environment of a device that is installed on host h of a lab; h is nil for a router without an
// agent. The caller fills in Capture and Clients.
func DeviceEnv(lab *topology.Lab, h *backend.Host) dut.Env {
	name := func(h *backend.Host) string { return strings.TrimPrefix(h.Name, lab.Name+"/") }
	env := dut.Env{
		Hosts: map[string]dut.Host{}, Ports: lab.Ports,
		LAN: lab.LAN, Gateway: lab.Gateway, RouterWAN: lab.RouterWAN,
		LAN6: lab.LAN6, Gateway6: lab.Gateway6, RouterWAN6: lab.RouterWAN6, ServerIP6: lab.ServerIP6,
		Sessions6: lab.Sessions6,
		ServerIP:  lab.ServerIP, ServiceIP: lab.ServiceIP, Store: lab.Store, Outer: lab.Outer, Scratch: agent.Scratch,
		LAN2: lab.LAN2, Gateway2: lab.Gateway2, RouterWAN2: lab.RouterWAN2,
	}
	if h != nil {
		env.Install, env.On = h.Install, name(h)
	}
	for _, h := range lab.Hosts {
		env.Hosts[name(h)] = h
		if h.Metered {
			env.Routers = append(env.Routers, name(h))
		}
	}
	return env
}

// startTimeout bounds the start of any device. Most devices have a shorter bound of their own; an experiment may allow
// a device ten minutes.
const startTimeout = 15 * time.Minute

// startDevice starts the lab's DHCP server, if one is needed, and the device.
func (s *Bench) startDevice(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	err := s.serveDHCP(ctx)
	if err == nil {
		err = s.DUT.Start(ctx, s.Env)
	}
	s.Traits = s.DUT.Traits() // addresses in the admission are valid now
	return err
}

// ends are the hosts at both ends of the traffic.
func (s *Bench) ends() []*backend.Host {
	ends := []*backend.Host{s.Server}
	for _, h := range s.Hosts {
		ends = append(ends, h.Host)
	}
	return ends
}

// OpenMeters opens the meters of all hosts.
func (s *Bench) OpenMeters(ctx context.Context) error {
	err := backend.Each(slices.Concat(s.ends(), s.Routers), func(_ int, h *backend.Host) error {
		meter := agent.Meter{IfNames: h.Ifs, Support: true}
		if h.Metered {
			meter = agent.Meter{IfNames: h.Ifs, Counted: s.Traits.Processes, Follow: true, Optional: s.cpuOptional}
		}
		if h == s.Router { // on one host only: kernel threads belong to the machine
			meter.Kernel = s.Traits.KernelThreads
		}
		return h.OpenMeter(ctx, meter)
	})
	if err != nil {
		return fmt.Errorf("opening the meters of lab %s: %w", s.Lab.Name, err)
	}
	return nil
}

// Sleep waits for d, or until ctx ends and returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
