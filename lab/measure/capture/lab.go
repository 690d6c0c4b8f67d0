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
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// lab is the open lab of a block: a generator sends frames past the stations, which are the hosts that capture.
type lab struct {
	*topology.Lab
	generator *backend.Host
	sink      *backend.Host // receives the frames behind a router; nil behind a splitter, where frames end at the stations
	splitter  *backend.Host // copies each frame to all stations; nil if the only station is a router
	stations  []*station
	stream    send.Stream // the addresses of the frames
	traffic   experiment.Traffic
	family    client.Family // of the frames
	slowed    *backend.Host // the stations' machine if their CPUs are slowed down, else nil
	speed     float64       // share of their time that slowed CPUs keep
	machine   int           // number of CPUs of the stations' machine
	placement backend.Placement
	setup     time.Duration
	spins     bool // the generator may poll the clock, because no other program uses its CPU: see agent.Frames.BusyWait
}

// station is a host that captures.
type station struct {
	*backend.Host
	dut    string // the device's name
	device dut.Capturing
	env    dut.Env
	port   string // the interface on which frames are captured
	sends  bool   // frames leave by that interface; otherwise they come in
	burns  bool   // a program of the lab takes a part of its CPU (background_pct)
	cpus   int    // number of CPUs of its capture programs
}

// unknownMAC is an address that no interface has. A switch forwards frames for it to all its ports.
var unknownMAC = send.MAC{0x02, 0x67, 0x77, 0x6e, 0x6f, 0x31}

// open builds the lab of a block with a host for each device. On error it removes what it has built.
func open(ctx context.Context, labs bench.Labs, placement backend.Placement, cells []result.Cell) (_ *lab, err error) {
	start := time.Now()
	build, err := topology.Named(labs.Experiment.Topology)
	if err != nil {
		return nil, err
	}
	l := &lab{
		family: labs.Sides[0].Family, traffic: labs.Sides[0].Traffic, slowed: labs.Slowed, speed: labs.Speed,
		machine: labs.CPUs, placement: placement,
	}
	if l.Lab, err = build(topology.Spec{Family: l.family, CaptureHosts: len(cells), Urgent: true}).Build(
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
	if masquerade.Value(labs.Experiment) {
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

// firstHost returns the first host of a list; nil if the list is empty.
func firstHost(hosts []*backend.Host) *backend.Host {
	if len(hosts) == 0 {
		return nil
	}
	return hosts[0]
}

// addDevice makes a station of a host: it makes the device, and starts the program that takes a part of the host's CPU,
// if the cell asks for one. It does not start the device.
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
	return h.Slow(ctx, agent.Slow{CPUs: h.CPUs, Speed: 1 - share, OwnCPUs: l.placement.Beside(), How: burn.Eager})
}

// sharesSecond reports whether a station's programs use a second CPU that is also the generator's.
func (l *lab) sharesSecond(s *station) bool { return s.cpus > 1 && l.placement.SecondShared() }

// address fills in the addresses of the frames. Behind a router it also adds the sink to the router's neighbour table,
// so that no ARP request crosses the links beside the frames.
func (l *lab) address(ctx context.Context) (err error) {
	s := &l.stream
	if s.SrcMAC, err = bench.HardwareAddr(ctx, l.generator, l.generator.Ifs[0]); err != nil {
		return err
	}
	s.DstMAC = unknownMAC
	lan, server := l.LAN, l.ServerIP
	if l.family.Has6() {
		lan, server = l.LAN6, l.ServerIP6
	}
	s.Src, s.Dst = portOf(lan.Addr().Next()), portOf(lan.Addr().Next().Next())
	if l.sink == nil {
		return nil
	}
	router := l.stations[0]
	if s.DstMAC, err = bench.HardwareAddr(ctx, router.Host, l.Port(topology.PortLAN)); err != nil {
		return err
	}
	s.Dst = portOf(server)
	sink, err := bench.HardwareAddr(ctx, l.sink, l.sink.Ifs[0])
	if err == nil {
		err = runSupport(ctx, router.Host, "ip", "neigh", "replace", server.String(), "lladdr", sink.String(),
			"dev", router.port, "nud", "permanent")
	}
	return err
}

// translate makes the router masquerade: frames leave it with its own address, as at home gateways.
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

// portOf returns an address with the UDP port of the generator's frames.
func portOf(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, frames.Port) }

// load returns a load of frames for the agents of generator and sink. It ends after length, or after n frames if n is
// not 0.
func (l *lab) load(mbps float64, length time.Duration, n int64) agent.Traffic {
	t := l.traffic
	f := bench.FramesFrom(l.Lab, l.generator.Ifs[0], t, length)
	f.Streams, f.Count, f.Expected, f.BusyWait = []send.Stream{l.stream}, n, 1, l.spins
	if n > 0 {
		f.Length = sendLimit(length)
	}
	return agent.Traffic{
		Kind: t.Kind, UDP: true, Direction: result.Up, Clients: 1, MostClients: 1, ClientHosts: 1, Workers: 1,
		Server: agent.ServerFor(l.family, l.ServerIP, l.ServerIP6), OfferedMbps: mbps,
		BurstSegments: t.BurstSegments, Frames: f,
	}
}

// sendLimit returns the time after which the generator stops, if its frames are due within length: 1 % and 20 ms more,
// because other programs use its CPU at times. Frames not sent by then do not count as offered.
func sendLimit(length time.Duration) time.Duration {
	const slack, least = 1.01, 20 * time.Millisecond
	return time.Duration(slack*float64(length)) + least
}

// each calls fn for all stations at the same time, and joins their errors.
func (l *lab) each(fn func(*station) error) error {
	return backend.Each(l.stations, func(_ int, s *station) error { return fn(s) })
}

// Leave stops the devices of all stations.
func (l *lab) Leave(ctx context.Context) error {
	return l.each(func(s *station) error { return s.device.Stop(ctx, s.env) })
}
