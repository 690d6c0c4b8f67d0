package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// side is one of the two labs of a block: a router with its device, clients
// that are admitted, meters that are open.
type side struct {
	lab     *testbed.Lab
	dut     dut.DUT
	traits  dut.Traits
	env     dut.Env
	clients []dut.ClientAddr
	load    agent.Traffic // what runs now or ran last

	setup, lease, login time.Duration
	loginMs             []float64
}

// sideConfig is what differs between sides and blocks.
type sideConfig struct {
	backend    testbed.Netns
	lab        string // "a" or "b"
	device     dut.DUT
	shared     dut.Traits // link settings both sides of the pair need
	profile    string
	clients    int
	clientKind string
}

// openSide builds a lab, starts its device, and brings all clients to the point
// where their traffic is forwarded. On error nothing is left.
func openSide(ctx context.Context, cfg sideConfig) (_ *side, err error) {
	s := &side{dut: cfg.device, traits: cfg.device.Traits()}
	start := time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.lab, err = testbed.Portal{
		Backend: cfg.backend, Lab: cfg.lab, Profile: cfg.profile, LAN: s.traits.LAN,
		NoAggregation: cfg.shared.NoAggregation, NoTxChecksum: cfg.shared.NoTxChecksum,
	}.Build(ctx)
	if err != nil {
		return nil, err
	}
	s.env = dut.Env{
		Router: s.lab.Router, Server: s.lab.Server, LANIf: s.lab.LANIf, WANIf: s.lab.WANIf,
		LAN: s.lab.LAN, Gateway: s.lab.Gateway(), RouterWAN: testbed.RouterWAN.Addr(),
		ServerIP: testbed.ServerAddr.Addr(), ServiceIP: testbed.ServiceAddr.Addr(),
		Clients: cfg.clients, Scratch: agent.Scratch,
	}
	if err := s.startDevice(ctx, cfg); err != nil {
		return nil, err
	}
	s.setup = time.Since(start)
	if err := s.admitClients(ctx, cfg); err != nil {
		return nil, err
	}
	return s, s.openMeters(ctx, cfg)
}

// startTimeout is the last bound of a device's start: each has a shorter one of
// its own, and an experiment may allow its device ten minutes.
const startTimeout = 15 * time.Minute

func (s *side) startDevice(ctx context.Context, cfg sideConfig) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	if cfg.clientKind == client.KindMacvlan && !s.traits.DHCP {
		if err := s.lab.ServeDHCP(ctx); err != nil {
			return err
		}
	}
	if err := s.dut.Start(ctx, s.env); err != nil {
		return err
	}
	s.traits = s.dut.Traits() // addresses in the admission are valid now
	return nil
}

func (s *side) admitClients(ctx context.Context, cfg sideConfig) error {
	start := time.Now()
	err := s.lab.Client.CreateClients(ctx, client.Config{
		Kind: cfg.clientKind, Count: cfg.clients, Parent: s.lab.ClientIf, LAN: s.lab.LAN, Gateway: s.lab.Gateway(),
		Lab: cfg.lab[0], Env: []string{"GATEWEIGH_GATEWAY=" + s.env.Gateway.String(), "GATEWEIGH_SERVER=" + s.env.ServerIP.String()},
	})
	if err != nil {
		return err
	}
	addrs, err := s.lab.Client.Lease(ctx)
	if err != nil {
		return err
	}
	s.lease = time.Since(start)
	for _, a := range addrs {
		s.clients = append(s.clients, dut.ClientAddr{N: a.Num, IP: a.IP, MAC: a.MAC})
	}
	start = time.Now()
	if adm, ok := s.dut.(dut.Admitter); ok {
		if err := adm.Admit(ctx, s.env, s.clients); err != nil {
			return err
		}
	}
	patience := time.Minute + time.Duration(cfg.clients)*time.Second
	loginCtx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not all admitted after %s", patience))
	defer cancel()
	if s.loginMs, err = s.lab.Client.Login(loginCtx, s.traits.Admission); err != nil {
		return fmt.Errorf("logging clients in: %w", err)
	}
	s.login = time.Since(start)
	return nil
}

func (s *side) openMeters(ctx context.Context, cfg sideConfig) error {
	err := testbed.Together(
		func() error {
			return s.lab.Router.OpenMeter(ctx, agent.Meter{IfNames: []string{s.lab.LANIf, s.lab.WANIf}, Counted: s.traits.Processes, CPUs: cfg.backend.Placement.Router})
		},
		func() error {
			return s.lab.Client.OpenMeter(ctx, agent.Meter{IfNames: []string{s.lab.ClientIf}, Support: true})
		},
		func() error {
			return s.lab.Server.OpenMeter(ctx, agent.Meter{IfNames: []string{s.lab.ServerIf}, Support: true})
		})
	if err != nil {
		return fmt.Errorf("opening the meters of lab %s: %w", s.lab.Name, err)
	}
	return nil
}

// startTraffic starts the load of one cell.
func (s *side) startTraffic(ctx context.Context, t experiment.Traffic, direction string, mbps float64, clients, seconds int) error {
	s.load = agent.Traffic{
		Kind: t.Kind, Protocol: t.Protocol, Pacing: t.Pacing, Direction: direction, Clients: clients,
		OfferedMbps: mbps, BurstSegments: t.BurstSegments, MaxSeconds: seconds, Server: s.env.ServerIP,
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trafficTimeout, fmt.Errorf("no connection after %s", trafficTimeout))
	defer cancel()
	if err := s.lab.Server.ServeTraffic(ctx, s.load); err != nil {
		return fmt.Errorf("starting the traffic's server in lab %s: %w", s.lab.Name, err)
	}
	if err := s.lab.Client.StartTraffic(ctx, s.load); err != nil {
		return fmt.Errorf("starting the traffic in lab %s: %w", s.lab.Name, err)
	}
	if err := s.lab.Client.StartRTT(ctx, s.env.ServerIP); err != nil {
		return fmt.Errorf("starting round-trip probes in lab %s: %w", s.lab.Name, err)
	}
	return nil
}

// trafficTimeout bounds starting and stopping a load: a traffic tool that
// hangs costs a cell, not the run.
const trafficTimeout = 15 * time.Second

func (s *side) stopTraffic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trafficTimeout)
	defer cancel()
	// The client first: a server that vanishes would look like broken streams.
	return errors.Join(s.lab.Client.StopTraffic(ctx), s.lab.Server.StopTraffic(ctx))
}

// deaths reports programs of the side that ended by themselves, as one error.
func (s *side) deaths(ctx context.Context) error {
	var errs []error
	for _, h := range []*testbed.Host{s.lab.Router, s.lab.Server} {
		list, err := h.Programs(ctx)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Ended {
				errs = append(errs, fmt.Errorf("%s on %s ended by itself: %s: %s", p.Name, h.Name, p.How, cmp.Or(p.Output, "it printed nothing")))
			}
		}
	}
	return errors.Join(errs...)
}

// leaveTimeout bounds each polite step of closing; what it leaves undone ends
// with the hosts all the same.
const leaveTimeout = 2 * time.Minute

// leave logs out clients that have commands for it, gives the leases back and
// stops the device, as a real network would see it happen. Sessions of the
// portals the lab knows end with the device: openNDS takes seconds for them.
func (s *side) leave(ctx context.Context) error {
	step := func(what string, fn func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		if err := fn(ctx); err != nil {
			return fmt.Errorf("%s in lab %s: %w", what, s.lab.Name, err)
		}
		return nil
	}
	errs := []error{step("stopping the traffic", s.stopTraffic)}
	if adm := s.traits.Admission; adm.Kind == client.AdmitCommand {
		errs = append(errs, step("logging the clients out", func(ctx context.Context) error { return s.lab.Client.Logout(ctx, adm) }))
	}
	errs = append(errs, step("releasing the leases", s.lab.Client.Release))
	if adm, ok := s.dut.(dut.Admitter); ok {
		errs = append(errs, step("revoking the clients", func(ctx context.Context) error { return adm.Revoke(ctx, s.env, s.clients) }))
	}
	errs = append(errs, step("stopping the device", func(ctx context.Context) error { return s.dut.Stop(ctx, s.env) }))
	return errors.Join(errs...)
}

// close ends the side's hosts, and with them all that leave did not undo.
func (s *side) close() error {
	if s.lab == nil {
		return nil
	}
	return s.lab.Close()
}
