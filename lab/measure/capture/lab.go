package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// lab is a standing lab of a block.
type lab struct {
	*topology.Lab
	generator *backend.Host
	sink      *backend.Host // nil where nothing counts frames end to end
	splitter  *backend.Host // nil where there is none
	stations  []*station
	stream    send.Stream
	traffic   experiment.Traffic
	slowed    *backend.Host // the machine of the stations where their CPUs are slowed down
	speed     float64       // to this share of their time
	machine   int           // CPUs of that machine
	placement backend.Placement
	setup     time.Duration
	spins     bool // the generator has its CPU for itself: see agent.Frames
}

// station is a host that captures.
type station struct {
	*backend.Host
	dut    string
	device dut.Capturing
	env    dut.Env
	port   string // interface that is captured on
	sends  bool   // frames leave there; else they come in
	burns  bool   // other work has a part of its CPU
	cpus   int
}

// unknownMAC has this address: a switch sends frames for it to all its ports.
var unknownMAC = send.MAC{0x02, 0x67, 0x77, 0x6e, 0x6f, 0x31}

// open builds the lab of a block with a host for each device. On error nothing is left.
func open(ctx context.Context, labs bench.Labs, placement backend.Placement, cells []result.Cell) (_ *lab, err error) {
	start := time.Now()
	build, err := topology.Named(labs.Experiment.Topology)
	if err != nil {
		return nil, err
	}
	l := &lab{
		traffic: labs.Sides[0].Traffic, slowed: labs.Slowed, speed: labs.Speed, machine: labs.CPUs, placement: placement,
	}
	if l.Lab, err = build(topology.Spec{CaptureHosts: len(cells), Urgent: true}).Build(
		ctx, labs.Backend, labs.DUTLab); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	l.generator = l.Of(backend.RoleGenerator)[0]
	l.sink, l.splitter = firstHost(l.Of(backend.RoleSink)), firstHost(l.Of(backend.RoleSplitter))
	for i, h := range l.Metered() {
		if err := l.addDevice(ctx, h, cells[i], labs.Experiment); err != nil {
			return nil, err
		}
	}
	l.spins = !placement.Shared() && !slices.ContainsFunc(l.stations, l.sharesSecond)
	if err := l.address(ctx); err != nil {
		return nil, err
	}
	if masquerade.Of(labs.Experiment) {
		if err := l.translate(ctx); err != nil {
			return nil, err
		}
	}
	if l.splitter != nil {
		if err := l.splitter.OpenMeter(ctx, agent.Meter{IfNames: l.splitter.Ifs, Support: true}); err != nil {
			return nil, fmt.Errorf("opening the splitter's meter: %w", err)
		}
	}
	l.setup = time.Since(start)
	return l, nil
}

// firstHost is the first of some hosts, nil of none.
func firstHost(hosts []*backend.Host) *backend.Host {
	if len(hosts) == 0 {
		return nil
	}
	return hosts[0]
}

// addDevice gives a host its device, and its other work.
func (l *lab) addDevice(ctx context.Context, h *backend.Host, cell result.Cell, e *experiment.Experiment) (err error) {
	s := &station{Host: h, dut: cell.Text(result.DUT), cpus: max(cell.Int(CPUs), 1)}
	if s.port = h.Ifs[0]; l.sink != nil {
		s.port, s.sends = l.Port(topology.PortWAN), true
	}
	capture := captureSettings(cell)
	if s.cpus > 1 {
		capture.CPUs = l.placement.Second
	}
	if s.device, err = dut.NewCapture(s.dut, capture); err != nil {
		return err
	}
	s.env = bench.DeviceEnv(l.Lab, h)
	s.env.Capture, s.env.Clients = s.port, 1
	l.stations = append(l.stations, s)
	pct := cell.Number(result.BackgroundPct)
	if pct == 0 {
		return nil
	}
	s.burns = true
	share := pct / 100
	if e.Router.Speed > 0 {
		share *= e.Router.Speed
	}
	return h.Slow(ctx, agent.Slow{CPUs: h.CPUs, Speed: 1 - share, Own: l.placement.Beside(), How: burn.Eager})
}

// sharesSecond reports whether a station's programs have the generator's CPU as their second one.
func (l *lab) sharesSecond(s *station) bool { return s.cpus > 1 && l.placement.SecondShared() }

// address finds the addresses that frames have on their first link, and enters the sink at the router: nothing but
// frames is to cross the links.
func (l *lab) address(ctx context.Context) (err error) {
	s := &l.stream
	if s.SrcMAC, err = bench.HardwareAddr(ctx, l.generator, l.generator.Ifs[0]); err != nil {
		return err
	}
	s.DstMAC = unknownMAC
	s.Src, s.Dst = portOf(l.LAN.Addr().Next()), portOf(l.LAN.Addr().Next().Next())
	if l.sink == nil {
		return nil
	}
	router := l.stations[0]
	if s.DstMAC, err = bench.HardwareAddr(ctx, router.Host, l.Port(topology.PortLAN)); err != nil {
		return err
	}
	s.Dst = portOf(l.ServerIP)
	sink, err := bench.HardwareAddr(ctx, l.sink, l.sink.Ifs[0])
	if err == nil {
		err = runSupport(ctx, router.Host, "ip", "neigh", "replace", l.ServerIP.String(), "lladdr", sink.String(),
			"dev", router.port, "nud", "permanent")
	}
	return err
}

// translate has the router give frames its own address, as home gateways do.
func (l *lab) translate(ctx context.Context) error {
	rules := fmt.Sprintf(
		"table ip gateweigh_nat { chain out { type nat hook postrouting priority srcnat; oifname %q masquerade; }; }",
		l.Port(topology.PortWAN))
	if err := runSupport(ctx, l.stations[0].Host, "nft", rules); err != nil {
		return fmt.Errorf("translating addresses on the router: %w", err)
	}
	return nil
}

// runSupport runs a program that does not count as a device's.
func runSupport(ctx context.Context, h *backend.Host, argv ...string) error {
	_, err := h.Run(ctx, agent.Command{Argv: argv, Support: true})
	return err
}

// portOf is where frames come from or go to.
func portOf(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, frames.Port) }

// load is a load of frames, as the hosts at both ends are told of it.
func (l *lab) load(mbps float64, length time.Duration, n int64) agent.Traffic {
	t := l.traffic
	f := bench.FramesFrom(l.Lab, l.generator.Ifs[0], t, length)
	f.Streams, f.Count, f.Expected, f.Spins = []send.Stream{l.stream}, n, 1, l.spins
	if n > 0 {
		f.For = sendLimit(length)
	}
	return agent.Traffic{
		Kind: t.Kind, UDP: true, Direction: result.Up, Clients: 1, MostClients: 1, ClientHosts: 1, Workers: 1,
		Server: l.ServerIP, OfferedMbps: mbps, BurstSegments: t.BurstSegments, Frames: f,
	}
}

// sendLimit is how long a number of frames may take that is due in some time: what is not sent by then was not offered.
func sendLimit(length time.Duration) time.Duration {
	const slack, least = 1.01, 20 * time.Millisecond // other programs have the generator's CPU for some time
	return time.Duration(slack*float64(length)) + least
}

// each works on all stations at once.
func (l *lab) each(fn func(*station) error) error {
	return backend.Each(l.stations, func(_ int, s *station) error { return fn(s) })
}

// Leave stops the devices.
func (l *lab) Leave(ctx context.Context) error {
	return l.each(func(s *station) error { return s.device.Stop(ctx, s.env) })
}
