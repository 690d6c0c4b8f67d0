package runner

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// reading is everything a side's meters say at one moment.
type reading struct {
	client, router, server meter.Sample
	clientLoad, serverLoad agent.TrafficStats
	rtt                    traffic.RTT // since the reading before
}

// read samples all meters of the side. The router's counters, which the result
// is made of, are read at the same moment as those of the other hosts: each
// host divides by its own clock, so a few milliseconds between them do not matter.
func (s *side) read(ctx context.Context) (r reading, err error) {
	err = testbed.Together(
		func() (err error) { r.router, err = s.lab.Router.Sample(ctx); return err },
		func() (err error) { r.client, err = s.lab.Client.Sample(ctx); return err },
		func() (err error) { r.server, err = s.lab.Server.Sample(ctx); return err },
		func() (err error) { r.clientLoad, err = s.lab.Client.TrafficStats(ctx); return err },
		func() (err error) { r.serverLoad, err = s.lab.Server.TrafficStats(ctx); return err },
		func() (err error) { r.rtt, err = s.lab.Client.TakeRTT(ctx); return err })
	if err != nil {
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
	// The router's counters are read first and at once; what takes longer (a
	// hundred programs on the client host) must not lengthen the window.
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

// delivered is the payload that arrived, Mbit/s: by the receiver's own count
// for streams; for iperf3, whose counts come at its end, by the router's outgoing
// link less headers and less what was sent twice.
func (s *side) delivered(out meter.Link, seconds float64, receiver [2]agent.TrafficStats, resent float64) float64 {
	if s.load.Kind == agent.TrafficStreams {
		return mbps(receiver[1].ReceivedBytes-receiver[0].ReceivedBytes, float64(receiver[1].MonotonicNs-receiver[0].MonotonicNs)/1e9)
	}
	if s.load.Protocol == "udp" {
		return mbps(out.TxBytes-udpOverhead*out.TxPackets, seconds)
	}
	return mbps(out.TxBytes-tcpOverhead*out.TxPackets, seconds) * (1 - resent)
}

// measurement turns two readings of a side into what its router cost and delivered.
func (s *side) measurement(a, b reading) result.Measurement {
	seconds := float64(b.router.MonotonicNs-a.router.MonotonicNs) / 1e9
	lan := b.router.Links[s.lab.LANIf].Sub(a.router.Links[s.lab.LANIf])
	wan := b.router.Links[s.lab.WANIf].Sub(a.router.Links[s.lab.WANIf])
	out, senders, receiver := wan, b.client.SNMP.Sub(a.client.SNMP), [2]agent.TrafficStats{a.serverLoad, b.serverLoad}
	if s.load.Direction == traffic.Down {
		out, senders, receiver = lan, b.server.SNMP.Sub(a.server.SNMP), [2]agent.TrafficStats{a.clientLoad, b.clientLoad}
	}
	resent := ratio(senders.TCPRetrans, senders.TCPOutSegs)
	m := builder{Measurement: result.Measurement{
		Seconds:       seconds,
		OfferedMbps:   s.load.OfferedMbps,
		LinkMbps:      mbps(out.TxBytes, seconds),
		DeliveredMbps: s.delivered(out, seconds, receiver, resent),
		Packets:       lan.TxPackets + wan.TxPackets,
		Drops:         lan.RxDropped + lan.TxDropped + wan.RxDropped + wan.TxDropped,
		MeterNs:       b.router.MeterNs - a.router.MeterNs,
		RTT:           result.RTT{P50: b.rtt.P50, P99: b.rtt.P99, Probes: b.rtt.Probes, Lost: b.rtt.Lost},
		Machine:       machine(b.router.Stat.Sub(a.router.Stat)),
		ThreadNs:      map[string]int64{},
		RoleNs:        map[string]int64{},
	}}
	frames := lan.RxPackets + wan.RxPackets
	m.AggregationFactor = ratio(frames, b.router.IPIn-a.router.IPIn)
	m.SegmentsPerBurst = ratio(senders.TCPOutSegs, senders.IPOutRequests-senders.UDPOut)
	m.RetransmitRatio = resent
	m.Broken = max(b.clientLoad.Broken, b.serverLoad.Broken) // both ends count the same streams
	m.BrokenError = cmp.Or(b.clientLoad.FirstError, b.serverLoad.FirstError)
	m.addNAPI(a.router, b.router)
	m.PacketsPerWakeup = ratio(frames, m.wakeups)
	m.addProcesses(a.router, b.router)
	m.addRoles(a, b)
	if seconds > 0 {
		m.GeneratorCPU = busiest(a.clientLoad, b.clientLoad, a.serverLoad, b.serverLoad) / 1e9 / seconds
	}
	return m.Measurement
}
