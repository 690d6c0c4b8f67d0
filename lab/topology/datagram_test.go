// Tests of UDP loads. build makes a lab of network namespaces on this machine, and withClients gives it clients
// (lab_test.go); withPersonas makes a lab whose clients are personas (persona_test.go).

package topology_test

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestDatagramsOfEveryClient: clients of both kinds send and receive UDP. The router sees single packets, and every
// stream carries something.
func TestDatagramsOfEveryClient(t *testing.T) {
	many, _ := withPersonas(t, 300)
	few := build(t, topology.Spec{})
	withClients(t, few, client.KindMacvlan, 20)
	for _, load := range []agent.Traffic{
		{Clients: 20, Direction: "up"}, {Clients: 20, Direction: "down"},
		{Clients: 300, Direction: "down", Workers: 3}, {Clients: 300, Direction: "up"},
		{Clients: 300, Direction: result.Both},
	} {
		lab := few
		if load.Clients > 20 {
			lab = many
		}
		load.Kind, load.UDP, load.OfferedMbps, load.BurstSegments = traffic.KindStreams, true, 100, 8
		load.MaxSeconds, load.Server = 60, agent.Server{Addr4: lab.ServerIP}
		carryDatagrams(t, lab, load)
	}
}

// carryDatagrams starts a load, looks at both ends and at the router, and stops it.
func carryDatagrams(t *testing.T, lab *topology.Lab, load agent.Traffic) {
	t.Helper()
	ctx, host := t.Context(), lab.Clients[0]
	if err := lab.Host("server").ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*backend.Host{host, lab.Host("server")} {
		if err := h.MarkTraffic(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var near, far agent.TrafficStats
	shares := near.Shares
	before, after := sampleTwice(t, lab, 500*time.Millisecond)
	labtest.Await(t, "payload of every stream", func() bool {
		var err error
		if near, err = host.TrafficStats(ctx); err != nil {
			t.Fatal(err)
		}
		if far, err = lab.Host("server").TrafficStats(ctx); err != nil {
			t.Fatal(err)
		}
		shares = near.Shares.With(far.Shares)
		return shares.Min > 0
	})
	for _, h := range []*backend.Host{host, lab.Host("server")} {
		if err := h.StopTraffic(ctx); err != nil {
			t.Fatal(err)
		}
	}
	name, all := load.Direction, near.Datagrams.Add(far.Datagrams)
	t.Logf("%d clients %s: %+v, Jain's index %.4f", load.Clients, name, all, shares.Jain())
	if shares.Streams != load.Streams() || near.Broken+far.Broken != 0 {
		t.Errorf("%s: %d streams, %d and %d broken: %s%s", name, shares.Streams, near.Broken, far.Broken, near.FirstError,
			far.FirstError)
	}
	if all.Received == 0 || 100*(all.Lost+all.Reordered) > all.Received {
		t.Errorf("%s: %+v", name, all)
	}
	frames := after.Links[lab.Port(topology.PortLAN)].Sub(before.Links[lab.Port(topology.PortLAN)]).RxPackets +
		after.Links[lab.Port(topology.PortWAN)].Sub(before.Links[lab.Port(topology.PortWAN)]).RxPackets
	if factor := float64(frames) / float64(after.IPIn-before.IPIn); factor < 0.95 || factor > 1.05 {
		t.Errorf("%s: %.2f frames per packet at the router, want 1", name, factor)
	}
}
