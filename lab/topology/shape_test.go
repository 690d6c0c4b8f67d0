// Tests of links with a limited rate. buildTopology makes a lab of network namespaces on this machine, and withClients
// gives it clients (lab_test.go).

package topology_test

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/tunnel"
)

// TestShapedLink: TCP that sends as fast as it can gets no more than the link's rate, and of the bytes that the link
// carries its payload is the share that the headers leave.
func TestShapedLink(t *testing.T) {
	const mbps, enough = 200, 20_000_000
	lab := buildTopology(t, topology.Tunnel(topology.Spec{Between: agent.Shape{RateMbps: mbps}}), "a")
	ctx, near, far := t.Context(), lab.Host("gw1"), lab.Host("pc2")
	withClients(t, lab, client.KindVeth, 1)
	load := agent.Traffic{
		Kind: traffic.KindStreams, Direction: "up", Clients: 1, BurstSegments: 44,
		Server: agent.Server{Addr4: lab.ServerIP}, MaxSeconds: 60}
	if err := far.ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := near.OpenMeter(ctx, agent.Meter{IfNames: near.Ifs, Follow: true}); err != nil {
		t.Fatal(err)
	}
	received := func() int64 {
		got, err := far.TrafficStats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return got.ReceivedBytes
	}
	// carried returns what the link carried, and what the server had received before and after that was read: agents
	// that wait for a CPU answer late.
	carried := func() (link meter.Link, least, most int64) {
		least = received()
		s, err := near.Sample(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.Links[lab.Port(topology.PortOuter1)], least, received()
	}
	before, _, _ := carried()
	start := time.Now()
	if err := lab.Host("pc1").StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	var sent meter.Link
	var least, most int64
	var took time.Duration
	labtest.Await(t, "the link to carry 20 MB", func() bool {
		sent, least, most = carried()
		sent, took = sent.Sub(before), time.Since(start)
		return sent.TxBytes > enough
	})
	if err := lab.Host("pc1").StopTraffic(ctx); err != nil {
		t.Error(err)
	}
	const burst = 200_000 // bytes that the bucket lets through at once
	if limit := took.Seconds()*mbps*1e6/8 + burst; float64(sent.TxBytes) > 1.02*limit {
		t.Errorf("%d bytes left in %v: more than %g Mbit/s let through, %.0f", sent.TxBytes, took, float64(mbps), limit)
	}
	full := tunnel.Packet{Inner: 1500, Outer: 1500, Options: tunnel.TimeStamps, Link: tunnel.LinkHeader}
	// What is on its way is a queue of 25 ms and a window: 5 % of what was sent.
	wire := float64(sent.TxBytes) * full.Share()
	if float64(most) < 0.95*wire || float64(least) > 1.05*wire {
		t.Errorf("between %d and %d bytes of payload in %d on the link: a share of %.4f to %.4f, of which headers leave %.4f",
			least, most, sent.TxBytes, float64(least)/float64(sent.TxBytes), float64(most)/float64(sent.TxBytes), full.Share())
	}
}
