package transition

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// Names of taps.
const (
	tapIn     = "in"     // first gateway, link to the LAN: probes come in
	tapEnter  = "enter"  // first gateway, link to the second: probes have entered the tunnel
	tapLeave  = "leave"  // second gateway, link to the first: probes are still in the tunnel
	tapOut    = "out"    // second gateway, link to the server: probes have left the tunnel
	tapArrive = "arrive" // server: probes arrive
)

// probePort is the TCP port at which hosts receive probes, as in study 4.
const probePort = 4242

// probePath is a path of probes through the lab: from host to host, or from gateway to gateway.
type probePath struct {
	transition.Way
	sender, receiver *backend.Host
	unknown          string // why the length of the tunnel's packets is not known; empty if it is
}

// lab is an open lab with its taps and receivers.
type lab struct {
	*bench.Bench
	taps            []*backend.Host // hosts with taps
	hosts, gateways *probePath
	next            uint32 // number of the last run
}

// openTaps opens taps and receivers in a lab whose device runs, and measures the length of the tunnel's packets with
// probes.
func openTaps(ctx context.Context, s *bench.Bench, e *experiment.Experiment) (*lab, error) {
	enter, leave := s.Routers[0], s.Routers[1]
	l := &lab{Bench: s, taps: []*backend.Host{enter, leave, s.Server}}
	l.hosts = &probePath{
		sender: s.Hosts[0].Host, receiver: s.Server, Way: transition.Way{Run: hostRun(e), Stops: []transition.Stop{
			{Tap: tapIn}, {Tap: tapEnter, Inside: true}, {Tap: tapLeave, Inside: true}, {Tap: tapOut}, {Tap: tapArrive},
		}}}
	l.hosts.Run.To = netip.AddrPortFrom(s.Lab.ServerIP, probePort)
	// The gateways' addresses in the networks behind them: packets between these addresses take the tunnel.
	l.gateways = &probePath{
		sender: enter, receiver: leave, Way: transition.Way{Run: gatewayRun(e), Stops: []transition.Stop{
			{Tap: tapEnter, Inside: true}, {Tap: tapLeave, Inside: true},
		}}}
	l.gateways.Run.From, l.gateways.Run.To = s.Lab.Gateway, netip.AddrPortFrom(s.Lab.RouterWAN, probePort)
	port := s.Lab.Port
	points := [][]transition.Point{
		{{Name: tapIn, Interface: port(topology.PortLAN)},
			{Name: tapEnter, Interface: port(topology.PortOuter1), Egress: true}},
		{{Name: tapLeave, Interface: port(topology.PortOuter2)},
			{Name: tapOut, Interface: port(topology.PortWAN), Egress: true}},
		{{Name: tapArrive, Interface: s.Server.Ifs[0]}},
	}
	err := backend.Each(l.taps, func(i int, h *backend.Host) error { return h.OpenTap(ctx, points[i]) })
	for _, c := range l.probePaths() {
		if err == nil {
			err = c.receiver.ServeProbes(ctx, c.Run.To)
		}
	}
	if err == nil {
		err = l.calibrate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing probes in lab %s: %w", s.Lab.Name, err)
	}
	return l, nil
}

// probePaths lists both paths of probes.
func (l *lab) probePaths() []*probePath { return []*probePath{l.hosts, l.gateways} }

// calibrated is the number of probes that measure the length of the tunnel's packets.
const calibrated = 20

// mostGap is the longest time between two of these probes.
const mostGap = 100 * time.Millisecond

// calibrate measures the length of the tunnel's packets with probes, while nothing else is sent. After that, taps
// record only frames of that length and of the length of probes outside the tunnel.
func (l *lab) calibrate(ctx context.Context) error {
	var wanted []int
	for _, c := range l.probePaths() {
		clear := c.Run.FrameBytes()
		all := make([]int, 0, transition.MaxFrame-clear)
		for n := clear; n <= transition.MaxFrame; n++ {
			all = append(all, n)
		}
		if err := l.noteLengths(ctx, all); err != nil {
			return err
		}
		if err := l.measureOuter(ctx, c); err != nil {
			return err
		}
		wanted = append(wanted, clear)
		if c.Outer > 0 {
			wanted = append(wanted, c.Outer)
		}
	}
	return l.noteLengths(ctx, wanted)
}

// measureOuter measures the length of a tunnel's packets with the probes of a path. On a busy machine, several probes
// may be put into one packet: it then tries again with longer gaps. If the length stays unknown, it sets c.unknown.
func (l *lab) measureOuter(ctx context.Context, c *probePath) error {
	for _, gap := range []time.Duration{c.Run.Gap, 5 * c.Run.Gap, 20 * c.Run.Gap} {
		short := *c
		short.Run.Count, short.Run.Gap = calibrated, min(gap, mostGap)
		o, err := l.run(ctx, &short)
		if err != nil {
			return err
		}
		if c.Outer, err = transition.Outer(short.Way, o.sent.Probes, o.events); err == nil {
			c.unknown = ""
			return nil
		}
		c.unknown = err.Error()
	}
	return nil
}

// noteLengths has all taps record frames of the given lengths, bytes, and no others.
func (l *lab) noteLengths(ctx context.Context, lengths []int) error {
	return backend.Each(l.taps, func(_ int, h *backend.Host) error { return h.TapLengths(ctx, lengths) })
}

// observed has the readings of all ends and taps of a run of probes.
type observed struct {
	sent     transition.Sending
	received transition.Receiving
	events   []transition.Event
}

// errProbes is wrapped if probes cannot be sent although all hosts work. With an overloaded tunnel that is a result.
var errProbes = errors.New("the probes found no way")

// run sends a run of probes, and collects the readings of sender, receiver and taps.
func (l *lab) run(ctx context.Context, c *probePath) (o observed, err error) {
	l.next++
	r := c.Run
	r.Number, r.Seed = l.next, uint64(l.next)
	c.Run.Number = l.next
	sent, err := c.sender.SendProbes(ctx, r)
	if err != nil {
		if ctx.Err() == nil && c.sender.Err() == nil {
			err = fmt.Errorf("%w: %w", errProbes, err)
		}
		return o, err
	}
	o.sent = sent
	if o.received, err = l.awaitRun(ctx, c, r.Number); err != nil {
		return o, err
	}
	events, err := bench.Each(l.taps, func(_ int, h *backend.Host) ([]transition.Event, error) { return h.ReadTap(ctx) })
	for _, list := range events {
		o.events = append(o.events, list...)
	}
	return o, err
}

// awaitRun waits until the probes' connection has ended, at most for lastWait, and returns the receiver's readings.
func (l *lab) awaitRun(ctx context.Context, c *probePath, run uint32) (r transition.Receiving, err error) {
	for end := time.Now().Add(lastWait); ; {
		if r, err = c.receiver.TakeProbes(ctx, run); err != nil || r.Over || time.Now().After(end) {
			return r, err
		}
		if err := bench.Sleep(ctx, pollEvery); err != nil {
			return r, err
		}
	}
}

// Times of awaitRun. A receiver whose CPU is busy reads the last probe late.
const (
	pollEvery = 5 * time.Millisecond // between two requests to the receiver
	lastWait  = 2 * time.Second      // longest wait
)

// endsRecord returns the record of a run of probes. gateways means that they went from gateway to gateway.
func (c *probePath) endsRecord(o observed, gateways bool) Ends {
	m := transition.Match(c.Way, o.sent.Probes, o.received.Probes, o.events)
	return Ends{
		Counts: m.Counts, Parts: partsOf(m.List, gateways), OuterBytes: c.Outer, Unknown: c.unknown,
		ClockErrorNs: o.sent.ClockErrorNs, Resent: o.sent.Resent, SenderWaitNs: o.sent.WaitNs,
		ReceiverWaitNs: o.received.WaitNs,
	}
}
