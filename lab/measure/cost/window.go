package cost

import (
	"cmp"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Bytes of a frame that are not payload: Ethernet, IPv4 and TCP with time
// stamps, or UDP. IPv6 adds client.ExtraHeader. Link counters do not see preamble, checksum and gap.
const (
	tcpOverhead = 14 + 20 + 32
	udpOverhead = 14 + 20 + 8
)

// delivered is the payload that arrived, Mbit/s. For kinds of traffic that count payload (streams), it is the sum of
// the receivers' rates, each by the receiver's own clock. iperf3 counts only at its end. Its payload is that of the
// packets that left the router's outgoing link (out) in the given seconds, without headers and without the
// retransmitted share (resent).
func (s *lab) delivered(out meter.Link, seconds float64, receivers []endpointSpan, resent float64) float64 {
	if traffic.KindOf(s.Load.Kind).Counts {
		var sum float64
		for _, r := range receivers {
			sum += bench.Mbps(
				r.b.Load.ReceivedBytes-r.a.Load.ReceivedBytes, float64(r.b.Load.MonotonicNs-r.a.Load.MonotonicNs)/1e9)
		}
		return sum
	}
	// Half of the streams of clients with both families are IPv6, or one more.
	longer := client.ExtraHeader * int64(s.Side.Family.Sending6(1, s.Side.Clients)) * out.TxPackets /
		int64(max(s.Side.Clients, 1))
	if s.Load.UDP {
		return bench.Mbps(out.TxBytes-udpOverhead*out.TxPackets-longer, seconds)
	}
	return bench.Mbps(out.TxBytes-tcpOverhead*out.TxPackets-longer, seconds) * (1 - resent)
}

// endpointSpan has the meters of one end of the traffic at a window's beginning (a) and end (b).
type endpointSpan struct{ a, b bench.Endpoint }

// spans pairs the readings of the same hosts.
func spans(a, b []bench.Endpoint) []endpointSpan {
	list := make([]endpointSpan, len(a))
	for i := range a {
		list[i] = endpointSpan{a[i], b[i]}
	}
	return list
}

// payload returns the router's outgoing link for the load, the load's senders and its receivers.
func (s *lab) payload(lan, wan meter.Link, clients, server []endpointSpan) (
	out meter.Link, sending, receiving []endpointSpan) {
	switch s.Load.Direction {
	case result.Down:
		return lan, server, clients
	case result.Both:
		out = meter.Link{TxBytes: lan.TxBytes + wan.TxBytes, TxPackets: lan.TxPackets + wan.TxPackets}
		both := slices.Concat(clients, server)
		return out, both, both
	}
	return wan, clients, server
}

// addDatagrams adds the UDP datagrams that the ends counted.
func addDatagrams(m *Measurement, ends []endpointSpan) {
	var sum traffic.Datagrams
	var bursts int64
	for _, e := range ends {
		sum = sum.Add(e.b.Load.Datagrams.Sub(e.a.Load.Datagrams))
		bursts += e.b.Load.Bursts - e.a.Load.Bursts
	}
	counted := Datagrams(sum)
	counted.Lost = max(0, counted.Lost) // negative: datagrams overtaken before the window arrived in it
	m.Datagrams = &counted
	m.SegmentsPerBurst = ratio(sum.Sent, bursts)
}

// addFrames adds the figures of a load of frames: the share of the due frames that was sent, how late they left, how
// many came twice, and the jitter. Delays are added if both ends have a common clock. Of several hosts the worst
// counts.
func addFrames(m *Measurement, sending, receiving []endpointSpan, clock backend.Clock) {
	var due, sent, doubled int64
	for _, e := range sending {
		due += e.b.Load.Frames.Intended - e.a.Load.Frames.Intended
		sent += e.b.Load.Datagrams.Sent - e.a.Load.Datagrams.Sent
		m.Metrics[LateP99] = max(m.Metrics[LateP99], e.b.Load.Frames.Late.P99)
	}
	for _, e := range receiving {
		f := e.b.Load.Frames
		doubled += f.Duplicates - e.a.Load.Frames.Duplicates
		if clock.Common {
			m.Metrics[DelayP50] = max(m.Metrics[DelayP50], f.Delay.P50)
			m.Metrics[DelayP99] = max(m.Metrics[DelayP99], f.Delay.P99)
		}
		if clock.Kept {
			m.Metrics[DelayBound] = float64(clock.Bound) / float64(time.Microsecond)
		}
		m.Metrics[Jitter] = max(m.Metrics[Jitter], f.JitterUs)
	}
	m.Metrics[OfferedShare] = ratio(sent, due)
	m.Metrics[Duplicated] = ratio(doubled, m.Datagrams.Received)
}

// aggregation is the number of frames per packet of the router's IP layer; 0 when it is not known. No buffer holds more
// than maxFrames frames, so a larger quotient means that the device forwards packets past the IP layer. It is also
// unknown when guests log in at a portal, because the clients' packets may then be forwarded past the IP layer.
func (s *lab) aggregation(frames, packets int64) float64 {
	const maxFrames = 64
	factor := ratio(frames, packets)
	if factor > maxFrames || s.Guests > 0 && s.Traits.Admission.Kind != client.AdmitNone {
		return 0
	}
	return factor
}

// segmentsPerBurst is the number of TCP segments that a sender's kernel hands to the link in one buffer; 0 when it is
// not known. It is the quotient of two counters that hold all TCP of a host. So it is not known when other TCP is among
// them: acknowledgements where both ends send, short connections, or the logins of guests. Nor is it known for clients
// that send packets one by one.
func (s *lab) segmentsPerBurst(senders meter.SNMP) float64 {
	if s.Load.Direction == result.Both || s.Load.ShortPerSecond > 0 || s.Guests > 0 || s.Singly() {
		return 0
	}
	return ratio(senders.TCPOutSegs, senders.IPOutRequests-senders.UDPOut)
}

// measurement computes what a router cost and delivered between two snapshots of its lab.
func (s *lab) measurement(a, b bench.Snapshot) Measurement {
	seconds := float64(b.Router.MonotonicNs-a.Router.MonotonicNs) / 1e9
	lan := b.Router.Links[s.Lab.Port(topology.PortLAN)].Sub(a.Router.Links[s.Lab.Port(topology.PortLAN)])
	wan := b.Router.Links[s.Lab.Port(topology.PortWAN)].Sub(a.Router.Links[s.Lab.Port(topology.PortWAN)])
	clients, server := spans(a.Clients, b.Clients), []endpointSpan{{a.Server, b.Server}}
	out, sending, receiving := s.payload(lan, wan, clients, server)
	var senders meter.SNMP
	for _, e := range sending {
		senders = senders.Add(e.b.Meter.SNMP.Sub(e.a.Meter.SNMP))
	}
	resent := ratio(senders.TCPRetrans, senders.TCPOutSegs)
	router := bench.UsageOf(a.Router, b.Router)
	m := Measurement{
		Seconds:       seconds,
		OfferedMbps:   s.Load.OfferedMbps,
		LinkMbps:      bench.Mbps(out.TxBytes, seconds),
		DeliveredMbps: s.delivered(out, seconds, receiving, resent),
		Packets:       lan.TxPackets + wan.TxPackets,
		PacketsUp:     wan.TxPackets,
		PacketsDown:   lan.TxPackets,
		Drops:         lan.RxDropped + lan.TxDropped + wan.RxDropped + wan.TxDropped,
		MeterNs:       b.Router.MeterNs - a.Router.MeterNs,
		RTT:           result.RTT(b.RTT),
		Machine:       bench.Machine(b.Router.Stat.Sub(a.Router.Stat)),
		NAPINs:        router.NAPINs, ProcessNs: router.ProcessNs, WaitNs: router.WaitNs, ThreadNs: router.ThreadNs,
		RoleNs: bench.Roles(a, b), Metrics: s.idleFigures(),
	}
	addMeter(&m, a.Router, b.Router)
	if b.Slow != nil {
		m.Metrics[result.RouterShare] = bench.RouterShare(a, b)
	}
	s.addGateways(&m, a, b)
	came := framesIn(a, b)
	m.AggregationFactor = s.aggregation(came, b.Router.IPIn-a.Router.IPIn)
	m.SegmentsPerBurst = s.segmentsPerBurst(senders)
	m.RetransmitRatio = resent
	m.RoleNs[result.RoleServer] += m.RoleNs[result.RoleRadius] // this measure counts all programs of the server together
	delete(m.RoleNs, result.RoleRadius)
	m.PacketsPerWakeup = ratio(came, router.Wakeups)
	addBroken(&m, clients, b.Server)
	s.addGenerators(&m, clients, server, sending, receiving)
	s.addLayer1(&m, out)
	if seconds > 0 {
		m.GeneratorCPU = float64(bench.Busiest(a, b)) / 1e9 / seconds
	}
	return m
}

// addMeter adds the figures that check the meter of the router's CPU time.
func addMeter(m *Measurement, a, b meter.Sample) {
	if busy := b.Stat.Sub(a.Stat).BusyNs(); busy > 0 {
		m.Metrics[RouterOfBusy] = float64(m.NAPINs+m.ProcessNs) / float64(busy)
	}
	if b.Polling == meter.BySoftirq && m.NAPINs > 0 {
		m.Metrics[InterruptSteal] = float64(meter.StolenNs(a, b)) / float64(m.NAPINs)
	}
}

// Names of figures in Measurement.Metrics that only loads of frames have.
const (
	layer1    = "l1_mbps"    // rate of the frames that left the router, with FCS, preamble and gap
	lineShare = "line_share" // layer1 as a share of the rate of the routers' slowest link, if that is known
)

// addLayer1 adds layer1 and lineShare for loads of frames. Only there is each packet of the link counters exactly one
// frame on the wire.
func (s *lab) addLayer1(m *Measurement, out meter.Link) {
	if !traffic.KindOf(s.Load.Kind).Frames {
		return
	}
	m.Metrics[layer1] = bench.Mbps(out.TxBytes+frames.WireOverhead*out.TxPackets, m.Seconds)
	if s.LineMbps > 0 {
		m.Metrics[lineShare] = m.Metrics[layer1] / s.LineMbps
	}
}

// addGenerators adds the figures that the traffic generators report for their kind of load.
func (s *lab) addGenerators(m *Measurement, clients, server, sending, receiving []endpointSpan) {
	kind := traffic.KindOf(s.Load.Kind)
	if s.Load.UDP {
		m.RetransmitRatio = 0 // TCP carries none of the load
		if kind.Counts {
			addDatagrams(m, slices.Concat(clients, server))
		}
	}
	if kind.Frames {
		addFrames(m, sending, receiving, s.Clock)
	}
}

// framesIn is the number of frames that reached the routers' IP layer. A single router's IP layer sees each packet
// once, so only its ports are counted: a TUN device hands over packets that a port has received before. Of two gateways
// with a tunnel the IP layer sees a packet twice, as outer and as inner packet, so the tunnel's devices count as well.
func framesIn(a, b bench.Snapshot) (frames int64) {
	for name, link := range b.Router.Links {
		_, port := b.Router.NAPI[name]
		if port || len(b.Routers) == 2 {
			frames += link.Sub(a.Router.Links[name]).RxPackets
		}
	}
	return frames
}

// addGateways adds the CPU time of each of a tunnel's two gateways: EnterNs of the one where the load enters the
// tunnel, LeaveNs of the other. With a load in both directions there is no such difference, and nothing is added. The
// kernel does not tell for which gateway its threads worked, so each is charged half of their time.
func (s *lab) addGateways(m *Measurement, a, b bench.Snapshot) {
	if len(b.Routers) != 2 || s.Load.Direction == result.Both {
		return
	}
	names := [2]string{EnterNs, LeaveNs}
	if s.Load.Direction == result.Down {
		names = [2]string{LeaveNs, EnterNs}
	}
	for i, used := range bench.UsageOfEach(a.Routers, b.Routers) {
		m.Metrics[names[i]] = float64(used.NAPINs + used.ProcessNs)
	}
}

// addBroken adds the number of streams that ended early, and the first one's error.
func addBroken(m *Measurement, clients []endpointSpan, server bench.Endpoint) {
	for _, e := range clients {
		m.Broken += e.b.Load.Broken
		m.BrokenError = cmp.Or(m.BrokenError, e.b.Load.FirstError)
	}
	m.Broken = max(m.Broken, server.Load.Broken) // both ends count the same streams
	m.BrokenError = cmp.Or(m.BrokenError, server.Load.FirstError)
}

// ratio is a/b; 0 unless b is positive.
func ratio(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}
