package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// The tests of this file compute the figures of a window from two snapshots of all meters of a lab: a at its beginning
// and b at its end. The router's interfaces are r0 towards the clients (LAN) and r1 towards the server (WAN).

// TestMeasurementOfAnUploadWindow computes every figure of one window of two seconds with an upload. Snapshot a is
// empty, so the counters of snapshot b are the window's.
func TestMeasurementOfAnUploadWindow(t *testing.T) {
	s := &lab{
		Bench: &bench.Bench{Lab: &topology.Lab{Ports: map[string]string{topology.PortLAN: "r0", topology.PortWAN: "r1"}},
			Load: agent.Traffic{Kind: traffic.KindStreams, Direction: "up", OfferedMbps: 10}},
	}
	a, b := bench.Snapshot{Clients: make([]bench.Endpoint, 1)}, bench.Snapshot{Clients: make([]bench.Endpoint, 1)}
	client := &b.Clients[0]
	a.Router.Links = map[string]meter.Link{"r0": {}, "r1": {}}
	b.Router.MonotonicNs = 2e9
	b.Router.Links = map[string]meter.Link{
		"r0":   {RxPackets: 1000, TxPackets: 100, TxBytes: 6600, RxDropped: 3},
		"r1":   {RxPackets: 100, TxPackets: 1000, TxBytes: 1514000, TxDropped: 4},
		"tun0": {RxPackets: 1000}, // the same packets, given back by a program in user space: they count once
	}
	b.Router.IPIn = 1100
	b.Router.NAPI = map[string]meter.Thread{"r0": {RunNs: 3e6, WaitNs: 1e6, Slices: 100}, "r1": {RunNs: 1e6, Slices: 10}}
	client.Meter.SNMP = meter.SNMP{TCPOutSegs: 1000, IPOutRequests: 45, UDPOut: 20, TCPRetrans: 5}
	client.Meter.AgentNs, client.Meter.NAPI = 2e6, map[string]meter.Thread{"c0": {RunNs: 5e5}}
	b.Server.Load.MonotonicNs, b.Server.Load.ReceivedBytes = 1e9, 712500 // the server's clock, not the router's
	client.Load.ThreadNs = map[string]int64{"send": 4e8, "other": 1e8}
	b.RTT.P50, b.RTT.P99, b.RTT.Probes = 200, 900, 100
	b.Router.Stat = meter.Stat{User: 10, System: 20, SoftIRQ: 5, Idle: 60, IOWait: 4, Steal: 1}
	got := s.measurement(a, b)
	want := Measurement{
		Seconds: 2, NAPINs: 4e6, WaitNs: 1e6, LinkMbps: 6.056, DeliveredMbps: 5.7, OfferedMbps: 10,
		Packets: 1100, PacketsUp: 1000, PacketsDown: 100, Drops: 7, AggregationFactor: 1, SegmentsPerBurst: 40,
		PacketsPerWakeup: 10, RetransmitRatio: 0.005, GeneratorCPU: 0.2,
		RTT:      result.RTT{P50: 200, P99: 900, Probes: 100},
		Machine:  result.Machine{Usr: 10, Sys: 20, Soft: 5, Idle: 64, Steal: 1},
		RoleNs:   map[string]int64{"router": 4e6, "client": 2500000, "server": 0, "agents": 0},
		Metrics:  map[string]float64{RouterOfBusy: 0.011428571428571429}, // 4 ms of 35 ticks of 10 ms
		ThreadNs: map[string]int64{"napi/r0": 3e6, "napi/r1": 1e6},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGatewaysByDirection: an upload enters the tunnel at the first gateway and leaves it at the second; a download
// does the opposite. The kernel's threads are in the first gateway's meter only, and each gateway is charged half of
// their time.
func TestGatewaysByDirection(t *testing.T) {
	for direction, want := range map[string]map[string]float64{
		result.Up: {EnterNs: 4e6, LeaveNs: 8e6}, result.Down: {EnterNs: 8e6, LeaveNs: 4e6}, result.Both: {},
	} {
		s := &lab{
			Bench: &bench.Bench{Lab: &topology.Lab{Ports: map[string]string{topology.PortLAN: "r0", topology.PortWAN: "r1"}},
				Load: agent.Traffic{Kind: traffic.KindStreams, Direction: direction, OfferedMbps: 10}},
		}
		a, b := bench.Snapshot{Clients: make([]bench.Endpoint, 1)}, bench.Snapshot{Clients: make([]bench.Endpoint, 1)}
		first := meter.Sample{MonotonicNs: 1e9, NAPI: map[string]meter.Thread{"r0": {RunNs: 2e6}, "o1": {RunNs: 1e6}},
			Processes: []meter.Process{{PID: 30, Parent: 2, RunNs: 2e6}}, IPIn: 10}
		second := meter.Sample{MonotonicNs: 2e9, NAPI: map[string]meter.Thread{"r1": {RunNs: 2e6}},
			Processes: []meter.Process{{PID: 7, RunNs: 5e6}}, IPIn: 20}
		a.Routers, b.Routers = make([]meter.Sample, 2), []meter.Sample{first, second}
		a.Router, b.Router = bench.Sum(a.Routers), bench.Sum(b.Routers)
		got := s.measurement(a, b)
		if diff := cmp.Diff(want, got.Metrics); diff != "" || got.NAPINs != 5e6 || got.ProcessNs != 7e6 ||
			b.Router.IPIn != 30 {
			t.Errorf("%s: %d and %d ns, %d packets (-want +got):\n%s", direction, got.NAPINs, got.ProcessNs, b.Router.IPIn, diff)
		}
	}
}

// TestMeasurementOfDatagrams: the figures of a load over UDP come from the datagrams that clients and server count. TCP
// connections beside the load, such as logins, must not add retransmissions.
func TestMeasurementOfDatagrams(t *testing.T) {
	s := &lab{
		Bench: &bench.Bench{Lab: &topology.Lab{Ports: map[string]string{topology.PortLAN: "r0", topology.PortWAN: "r1"}},
			Load: agent.Traffic{Kind: traffic.KindStreams, UDP: true, Direction: "both", OfferedMbps: 10}},
	}
	a, b := bench.Snapshot{Clients: make([]bench.Endpoint, 2)}, bench.Snapshot{Clients: make([]bench.Endpoint, 2)}
	for i := range b.Clients {
		a.Clients[i].Load.Datagrams = traffic.Datagrams{Sent: 44, Lost: 7}
		b.Clients[i].Load.Datagrams = traffic.Datagrams{Sent: 484, Received: 430, Lost: 17, Reordered: 3}
		b.Clients[i].Load.Bursts = 10
	}
	b.Server.Load.Datagrams, b.Server.Load.Bursts = traffic.Datagrams{Sent: 880, Received: 870}, 20
	b.Clients[0].Meter.SNMP = meter.SNMP{TCPOutSegs: 10, TCPRetrans: 5}
	got := s.measurement(a, b)
	want := Datagrams{Sent: 1760, Received: 1730, Lost: 20, Reordered: 6}
	if got.Datagrams == nil || *got.Datagrams != want || got.SegmentsPerBurst != 44 || got.RetransmitRatio != 0 {
		t.Errorf("got %+v, %v segments a burst, retransmit ratio %v; want %+v, 44, 0", got.Datagrams, got.SegmentsPerBurst,
			got.RetransmitRatio, want)
	}
	if loss := got.LossRatio(); loss != 20.0/1750 {
		t.Errorf("loss %v, want 20 of 1750", loss)
	}
	s.Load.Kind = traffic.KindIperf3 // counts no datagrams, and has a TCP connection for control beside them
	if got := s.measurement(a, b); got.Datagrams != nil || got.RetransmitRatio != 0 {
		t.Errorf("iperf3: %+v, retransmit ratio %v", got.Datagrams, got.RetransmitRatio)
	}
}

// TestDeliveredByIperf3LeavesOutHeadersAndRepeats: iperf3's payload is what left the router's link, less headers and
// less the retransmitted share.
func TestDeliveredByIperf3LeavesOutHeadersAndRepeats(t *testing.T) {
	out := meter.Link{TxBytes: 1514000, TxPackets: 1000}
	s := &lab{Bench: &bench.Bench{Load: agent.Traffic{Kind: traffic.KindIperf3}}}
	if got, want := s.delivered(out, 2, nil, 0.25), 1448000*8/1e6/2*0.75; math.Abs(got-want) > 1e-9 {
		t.Errorf("TCP: %v Mbit/s, want %v", got, want)
	}
	s.Load.UDP = true
	if got, want := s.delivered(out, 2, nil, 0), 1472000*8/1e6/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("UDP: %v Mbit/s, want %v", got, want)
	}
}

// TestMeasurementOfNothingHasNoInfinities: without seconds, packets and threads no figure divides by zero.
func TestMeasurementOfNothingHasNoInfinities(t *testing.T) {
	s := &lab{
		Bench: &bench.Bench{Lab: &topology.Lab{Ports: map[string]string{topology.PortLAN: "r0", topology.PortWAN: "r1"}},
			Load: agent.Traffic{Direction: "down", UDP: true}},
	}
	got := s.measurement(bench.Snapshot{}, bench.Snapshot{})
	if got.GeneratorCPU != 0 || got.DeliveredMbps != 0 || got.AggregationFactor != 0 || got.SegmentsPerBurst != 0 {
		t.Errorf("an empty window has figures: %+v", got)
	}
}

// TestWindowWithoutSeconds: the CPU share of a window without length is absent (NaN), not 0 %.
func TestWindowWithoutSeconds(t *testing.T) {
	m := Measurement{NAPINs: 5e6, ProcessNs: 1e6, MeterNs: 1e3, DeliveredMbps: 10, LinkMbps: 11,
		RoleNs: map[string]int64{"client": 1e6, "server": 1e6}}
	c := cellWith(nil, "a", 1, 10)
	for _, name := range []string{CPU, Normalised, PerBit, "cpu_machine_pct", "process_core_pct", "meter_core_pct",
		"client_core_pct", "server_core_pct", "machine_busy_pct"} {
		i := slices.IndexFunc(Metrics, func(m analysis.Metric) bool { return m.Name == name })
		if got := Metrics[i].Value(input{Values: result.ValuesOf(m), Cell: c.Cell, CPUs: 2}); !math.IsNaN(got) {
			t.Errorf("%s is %g", name, got)
		}
	}
}

// TestLayer1OfFrames: the rate on the wire is computed for loads of frames only. In other loads one packet of the
// link's counters may be several frames on the wire, because of segmentation offload.
func TestLayer1OfFrames(t *testing.T) {
	out := meter.Link{TxBytes: 60_000_000, TxPackets: 1_000_000}
	for kind, want := range map[string]map[string]float64{
		traffic.KindFrames: {layer1: 672, lineShare: 0.672}, traffic.KindStreams: {},
	} {
		s := &lab{Bench: &bench.Bench{LineMbps: 1000, Load: agent.Traffic{Kind: kind}}}
		m := Measurement{Seconds: 1, Metrics: map[string]float64{}}
		s.addLayer1(&m, out)
		if diff := cmp.Diff(want, m.Metrics, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}
