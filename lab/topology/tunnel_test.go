// Tests of the topology "tunnel": clients (pc1), two gateways (gw1, gw2) with a link between them, and a server (pc2).
// buildTopology makes a lab of network namespaces on this machine, withClients gives it clients (lab_test.go), and ping
// returns the time to live of the answers (topology_test.go).

package topology_test

import (
	"errors"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestTunnel: without a device two gateways lie between clients and server, traffic of clients crosses both, and the
// meters of both see it.
func TestTunnel(t *testing.T) {
	build, err := topology.Named("tunnel")
	if err != nil {
		t.Fatal(err)
	}
	lab := buildTopology(t, build(topology.Spec{}), "a")
	if ttl := ping(t, lab.Host("pc1"), 0, lab.ServerIP); ttl != "62" {
		t.Errorf("answers have ttl %s, want 62: two gateways lie between", ttl)
	}
	if ttl := ping(t, lab.Host("gw1"), 0, lab.Outer[1]); ttl != "64" {
		t.Errorf("answers have ttl %s, want 64: the gateways share a link", ttl)
	}
	metered := lab.Metered()
	if len(lab.Hosts) != 4 || len(metered) != 2 || metered[0] != lab.Host("gw1") || metered[1] != lab.Host("gw2") {
		t.Fatalf("%d hosts, metered are %v", len(lab.Hosts), metered)
	}
	for port, want := range map[string]string{
		topology.PortLAN: metered[0].Ifs[0], topology.PortOuter1: metered[0].Ifs[1], topology.PortOuter2: metered[1].Ifs[0],
		topology.PortWAN: metered[1].Ifs[1],
	} {
		if lab.Port(port) != want {
			t.Errorf("port %s is %s, want %s", port, lab.Port(port), want)
		}
	}
	const n = 3
	withClients(t, lab, client.KindVeth, n)
	load := agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: n, OfferedMbps: 20, BurstSegments: 8}
	sendThrough(t, lab, load)
	if err := errors.Join(lab.Close(), lab.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// sendThrough sends until every metered host has forwarded a thousand packets on each
// of its links, and its polling threads have used CPU for them.
func sendThrough(t *testing.T, lab *topology.Lab, load agent.Traffic) {
	t.Helper()
	ctx := t.Context()
	load.Server, load.MaxSeconds = agent.Server{Addr4: lab.ServerIP}, 60
	if err := lab.Host("pc2").ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	before := make([]meter.Sample, len(lab.Metered()))
	for i, h := range lab.Metered() {
		err := h.OpenMeter(ctx, agent.Meter{IfNames: h.Ifs, Follow: true})
		if err == nil {
			before[i], err = h.Sample(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.Host("pc1").StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	for i, h := range lab.Metered() {
		labtest.Await(t, h.Name+" to forward", func() bool {
			now, err := h.Sample(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range h.Ifs {
				packets := now.Links[name].Sub(before[i].Links[name])
				if packets.RxPackets+packets.TxPackets < 1000 || now.NAPI[name].RunNs == before[i].NAPI[name].RunNs {
					return false
				}
			}
			return true
		})
	}
	if err := errors.Join(lab.Host("pc1").StopTraffic(ctx), lab.Host("pc2").StopTraffic(ctx)); err != nil {
		t.Error(err)
	}
}
