package topology_test

import (
	"testing"

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
		Kind: traffic.KindStreams, Direction: "up", Clients: 1, BurstSegments: 44, Server: lab.ServerIP, MaxSeconds: 60}
	if err := far.ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := near.OpenMeter(ctx, agent.Meter{IfNames: near.Ifs, Follow: true}); err != nil {
		t.Fatal(err)
	}
	read := func() (link meter.Link, ns, payload int64) {
		s, err := near.Sample(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got, err := far.TrafficStats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.Links[lab.Port(topology.PortOuter1)], s.MonotonicNs, got.ReceivedBytes
	}
	if err := lab.Host("pc1").StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	before, start, earlier := read()
	var link meter.Link
	var end, payload int64
	labtest.Await(t, "the link to carry 20 MB", func() bool {
		link, end, payload = read()
		return link.TxBytes-before.TxBytes > enough
	})
	if err := lab.Host("pc1").StopTraffic(ctx); err != nil {
		t.Error(err)
	}
	sent := link.Sub(before)
	const burst = 200_000 // what the bucket lets through at once, and what is sent while both counters are read
	if most := float64(end-start)/1e9*mbps*1e6/8 + burst; float64(sent.TxBytes) > 1.02*most {
		t.Errorf("%d bytes left in %d ns: more than %g Mbit/s let through, %.0f", sent.TxBytes, end-start, float64(mbps),
			most)
	}
	full := tunnel.Packet{Inner: 1500, Outer: 1500, Options: tunnel.TimeStamps, Link: tunnel.LinkHeader}
	// What is on its way at either reading is a queue of 25 ms and a window: 5 % of what was sent.
	if share := float64(payload-earlier) / float64(sent.TxBytes); share < 0.95*full.Share() || share > 1.05*full.Share() {
		t.Errorf("%d bytes of payload in %d on the link: a share of %.4f, of which headers leave %.4f", payload-earlier,
			sent.TxBytes, share, full.Share())
	}
}
