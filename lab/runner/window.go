package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// reading is everything a side's meters say at one moment.
type reading struct {
	router  meter.Sample
	clients []endpoint // by client host
	server  endpoint
	rtt     rtt.Times // since the reading before
}

// endpoint is what an end of the traffic says of itself.
type endpoint struct {
	meter meter.Sample
	load  agent.TrafficStats
}

// read samples all meters of the side. The router's counters, which the result
// is made of, are read at the same moment as those of the other hosts: each
// host divides by its own clock, so a few milliseconds between them do not matter.
func (s *side) read(ctx context.Context) (reading, error) {
	r := reading{clients: make([]endpoint, len(s.hosts))}
	meters := []func() error{func() (err error) { r.router, err = s.lab.Router.Sample(ctx); return err }}
	var loads []func() error
	ask := func(h *testbed.Host, e *endpoint) {
		meters = append(meters, func() (err error) { e.meter, err = h.Sample(ctx); return err })
		loads = append(loads, func() (err error) { e.load, err = h.TrafficStats(ctx); return err })
	}
	for i, h := range s.hosts {
		ask(h.Host, &r.clients[i])
	}
	ask(s.lab.Server, &r.server)
	loads = append(loads, func() (err error) { r.rtt, err = s.hosts[0].TakeRTT(ctx); return err })
	if err := testbed.Together(append(meters, loads...)...); err != nil {
		return r, fmt.Errorf("reading the meters of lab %s: %w", s.lab.Name, err)
	}
	return r, nil
}

// window measures the given sides over the same stretch of time and returns a
// measurement for each.
func window(ctx context.Context, length time.Duration, sides ...*side) ([]result.Measurement, error) {
	before, after, err := readTwice(ctx, length, sides)
	if err != nil {
		return nil, err
	}
	list := make([]result.Measurement, len(sides))
	for i, s := range sides {
		list[i] = s.measurement(before[i], after[i])
	}
	return list, nil
}

// readTwice reads the meters of all sides at once, and again when length has passed.
func readTwice(ctx context.Context, length time.Duration, sides []*side) (before, after []reading, err error) {
	take := func(into []reading) error {
		fns := make([]func() error, len(sides))
		for i, s := range sides {
			fns[i] = func() (err error) { into[i], err = s.read(ctx); return err }
		}
		return testbed.Together(fns...)
	}
	before, after = make([]reading, len(sides)), make([]reading, len(sides))
	// All meters are asked at once, and each host divides by its own clock: one
	// that takes longer (a hundred programs on the client host) lengthens no window.
	start := time.Now()
	if err := take(before); err != nil {
		return nil, nil, err
	}
	if err := sleep(ctx, time.Until(start.Add(length))); err != nil {
		return nil, nil, err
	}
	return before, after, take(after)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Bytes of a frame that are not payload: Ethernet, IPv4 and TCP with time
// stamps, or UDP. Link counters do not see preamble, checksum and gap.
const (
	tcpOverhead = 14 + 20 + 32
	udpOverhead = 14 + 20 + 8
)

// delivered is the payload that arrived, Mbit/s: by the receivers' own count,
// each by its own clock, for streams; for iperf3, whose counts come at its end,
// by the router's outgoing link less headers and less what was sent twice.
func (s *side) delivered(out meter.Link, seconds float64, receivers []span, resent float64) float64 {
	if traffic.KindOf(s.load.Kind).Counts {
		var sum float64
		for _, r := range receivers {
			sum += mbps(r.b.load.ReceivedBytes-r.a.load.ReceivedBytes, float64(r.b.load.MonotonicNs-r.a.load.MonotonicNs)/1e9)
		}
		return sum
	}
	if s.load.UDP {
		return mbps(out.TxBytes-udpOverhead*out.TxPackets, seconds)
	}
	return mbps(out.TxBytes-tcpOverhead*out.TxPackets, seconds) * (1 - resent)
}

// span is one end of the traffic at a window's beginning and end.
type span struct{ a, b endpoint }

func spans(a, b []endpoint) []span {
	list := make([]span, len(a))
	for i := range a {
		list[i] = span{a[i], b[i]}
	}
	return list
}

// payload is the router's link by which the load leaves it, and the ends it leaves
// from and arrives at.
func (s *side) payload(lan, wan meter.Link, clients, server []span) (out meter.Link, sending, receiving []span) {
	switch s.load.Direction {
	case traffic.Down:
		return lan, server, clients
	case agent.Both:
		out = meter.Link{TxBytes: lan.TxBytes + wan.TxBytes, TxPackets: lan.TxPackets + wan.TxPackets}
		both := slices.Concat(clients, server)
		return out, both, both
	}
	return wan, clients, server
}

// addDatagrams adds what the ends have counted of UDP.
func (b *builder) addDatagrams(ends []span) {
	var sum traffic.Datagrams
	var bursts int64
	for _, e := range ends {
		sum = sum.Add(e.b.load.Datagrams.Sub(e.a.load.Datagrams))
		bursts += e.b.load.Bursts - e.a.load.Bursts
	}
	counted := result.Datagrams(sum)
	counted.Lost = max(0, counted.Lost) // less than none: what was overtaken before the window came in it
	b.Datagrams = &counted
	b.SegmentsPerBurst = ratio(sum.Sent, bursts)
}

// aggregation is frames per packet of the router's IP layer; 0: not known. No buffer
// holds more frames than maxFrames: beyond it the device forwards past the IP layer,
// which then sees next to nothing. Neither is it known where guests talk to a portal,
// and what clients send may be forwarded past the IP layer.
func (s *side) aggregation(frames, packets int64) float64 {
	const maxFrames = 64
	factor := ratio(frames, packets)
	if factor > maxFrames || s.guests > 0 && s.traits.Admission.Kind != client.AdmitNone {
		return 0
	}
	return factor
}

// segmentsPerBurst is segments per buffer of the senders; 0: not known. Their counters hold
// all TCP of a host: where both ends send, acknowledgements of the other's data are among
// the segments, and elsewhere short connections and the log-ins of guests.
func (s *side) segmentsPerBurst(senders meter.SNMP) float64 {
	if s.load.Direction == agent.Both || s.load.ShortPerSecond > 0 || s.guests > 0 {
		return 0
	}
	return ratio(senders.TCPOutSegs, senders.IPOutRequests-senders.UDPOut)
}

// measurement turns two readings of a side into what its router cost and delivered.
func (s *side) measurement(a, b reading) result.Measurement {
	seconds := float64(b.router.MonotonicNs-a.router.MonotonicNs) / 1e9
	lan := b.router.Links[s.lab.LANIf].Sub(a.router.Links[s.lab.LANIf])
	wan := b.router.Links[s.lab.WANIf].Sub(a.router.Links[s.lab.WANIf])
	clients, server := spans(a.clients, b.clients), []span{{a.server, b.server}}
	out, sending, receiving := s.payload(lan, wan, clients, server)
	var senders meter.SNMP
	for _, e := range sending {
		senders = senders.Add(e.b.meter.SNMP.Sub(e.a.meter.SNMP))
	}
	resent := ratio(senders.TCPRetrans, senders.TCPOutSegs)
	m := builder{Measurement: result.Measurement{
		Seconds:       seconds,
		OfferedMbps:   s.load.OfferedMbps,
		LinkMbps:      mbps(out.TxBytes, seconds),
		DeliveredMbps: s.delivered(out, seconds, receiving, resent),
		Packets:       lan.TxPackets + wan.TxPackets,
		PacketsUp:     wan.TxPackets,
		PacketsDown:   lan.TxPackets,
		Drops:         lan.RxDropped + lan.TxDropped + wan.RxDropped + wan.TxDropped,
		MeterNs:       b.router.MeterNs - a.router.MeterNs,
		RTT:           result.RTT{P50: b.rtt.P50, P99: b.rtt.P99, Probes: b.rtt.Probes, Lost: b.rtt.Lost},
		Machine:       machine(b.router.Stat.Sub(a.router.Stat)),
		ThreadNs:      map[string]int64{},
		RoleNs:        map[string]int64{},
	}}
	frames := lan.RxPackets + wan.RxPackets
	m.AggregationFactor = s.aggregation(frames, b.router.IPIn-a.router.IPIn)
	m.SegmentsPerBurst = s.segmentsPerBurst(senders)
	m.RetransmitRatio = resent
	m.addBroken(clients, b.server)
	m.addNAPI(a.router, b.router)
	m.PacketsPerWakeup = ratio(frames, m.wakeups)
	m.addProcesses(a.router, b.router)
	m.addRoles(a.router, b.router, clients, server)
	if s.load.UDP && traffic.KindOf(s.load.Kind).Counts {
		m.RetransmitRatio = 0 // what TCP there is carries none of the load
		m.addDatagrams(slices.Concat(clients, server))
	}
	if seconds > 0 {
		m.GeneratorCPU = float64(max(busiest(clients), busiest(server))) / 1e9 / seconds
	}
	return m.Measurement
}
