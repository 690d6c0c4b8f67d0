package testbed_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// row is four hosts one after the other, as a tunnel between two gateways has
// them: pc1 – gw1 – gw2 – pc2. Both gateways are metered.
func row(testbed.Spec) testbed.Topology {
	prefix := netip.MustParsePrefix
	forward := map[string]string{"ipv4/ip_forward": "1"}
	port := func(node, name, addr string) testbed.Port {
		return testbed.Port{Node: node, If: name, Addrs: []netip.Prefix{prefix(addr)}, TxChecksum: true, Aggregate: true}
	}
	via := func(to, gateway string) agent.Route {
		return agent.Route{To: prefix(to), Via: netip.MustParseAddr(gateway)}
	}
	lan, wan, far := port("gw1", "l0", "10.1.0.254/24"), port("gw1", "t0", "10.2.0.1/24"), port("gw2", "t1", "10.2.0.2/24")
	lan.Name, wan.Name, far.Name = testbed.PortLAN, testbed.PortWAN, "far"
	return testbed.Topology{
		Nodes: []testbed.Node{
			{Name: "pc1", Role: testbed.RoleClient, Sysctls: client.Sysctls, Routes: []agent.Route{via("10.0.0.0/8", "10.1.0.254")}},
			{Name: "gw1", Metered: true, Sysctls: forward, Routes: []agent.Route{via("10.3.0.0/24", "10.2.0.2")}},
			{Name: "gw2", Metered: true, Sysctls: forward, Routes: []agent.Route{via("10.1.0.0/24", "10.2.0.1")}},
			{Name: "pc2", Role: testbed.RoleServer, Routes: []agent.Route{via("10.0.0.0/8", "10.3.0.1")}},
		},
		Links: []testbed.Link{
			{A: lan, B: port("pc1", "c0", "10.1.0.253/24")},
			{A: wan, B: far},
			{A: port("gw2", "r0", "10.3.0.1/24"), B: port("pc2", "s0", "10.3.0.2/24")},
		},
		Addressing: testbed.Addressing{LAN: prefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.254"), ServerIP: netip.MustParseAddr("10.3.0.2")},
	}
}

// TestTopologyOfOneLine: a topology is a function and a line of the table. Traffic of
// clients crosses both metered hosts of this one, and both meters see it.
func TestTopologyOfOneLine(t *testing.T) {
	testbed.Topologies["row"] = row
	defer delete(testbed.Topologies, "row")
	build, err := testbed.Named("row")
	if err != nil {
		t.Fatal(err)
	}
	lab := buildTopology(t, build(testbed.Spec{}), "a")
	if ttl := ping(t, lab.Host("pc1"), 0, lab.ServerIP); ttl != "62" {
		t.Errorf("answers have ttl %s, want 62: two gateways lie between", ttl)
	}
	metered := lab.Metered()
	if len(lab.Hosts) != 4 || len(metered) != 2 || metered[0] != lab.Host("gw1") || metered[1] != lab.Host("gw2") {
		t.Fatalf("%d hosts, metered are %v", len(lab.Hosts), metered)
	}
	if lab.Port(testbed.PortWAN) != lab.Host("gw1").Ifs[1] || lab.Port("far") != lab.Host("gw2").Ifs[0] || lab.Port("none") != "" {
		t.Errorf("ports: %v", lab.Ports)
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
func sendThrough(t *testing.T, lab *testbed.Lab, load agent.Traffic) {
	t.Helper()
	ctx := t.Context()
	load.Server, load.MaxSeconds = lab.ServerIP, 60
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
