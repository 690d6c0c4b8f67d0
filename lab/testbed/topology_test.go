package testbed_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// ping sends three echo requests from a host, or from one of its clients, and
// returns the time to live of the answers.
func ping(t *testing.T, from *testbed.Host, client int, to netip.Addr) string {
	t.Helper()
	out, err := from.Run(t.Context(), agent.Command{Argv: []string{"ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", to.String()}, Client: client})
	if err != nil {
		t.Fatalf("from %s: %v", from.Name, err)
	}
	_, ttl, _ := strings.Cut(out.Stdout, "ttl=")
	ttl, _, _ = strings.Cut(ttl, " ")
	return ttl
}

// TestTwoClientHostsShareTheRoutersLink is study 1's future work (7.2): the
// clients on two machines. They must not meet anywhere but at the router.
func TestTwoClientHostsShareTheRoutersLink(t *testing.T) {
	lab := build(t, testbed.Portal{ClientHosts: 2})
	if len(lab.Clients) != 2 || len(lab.Router.Ifs) != 2 {
		t.Fatalf("%d client hosts, %d links at the router; want two each", len(lab.Clients), len(lab.Router.Ifs))
	}
	if err := lab.ServeDHCP(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, h := range lab.Clients {
		const each = 2
		err := h.CreateClients(t.Context(), client.Config{
			Kind: client.KindMacvlan, First: 1 + each*i, Count: each, Parent: h.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway, Lab: lab.Name[0],
		})
		if err != nil {
			t.Fatal(err)
		}
		addrs := lease(t, h)
		for n, a := range addrs {
			if a.Num != 1+each*i+n || seen[a.MAC] || seen[a.IP.String()] {
				t.Errorf("%s: client %d is number %d with %s, %s; seen are %v", h.Name, n+1, a.Num, a.IP, a.MAC, seen)
			}
			seen[a.MAC], seen[a.IP.String()] = true, true
		}
		// 64 less the router: the switch is none on the way.
		for _, ttl := range []string{ping(t, h, 0, lab.ServerIP), ping(t, h, each, lab.ServerIP)} {
			if ttl != "63" {
				t.Errorf("answers reach %s with ttl %s, want 63", h.Name, ttl)
			}
		}
	}
}

// row is four hosts one after the other, as a tunnel between two gateways has
// them: pc1 – gw1 – gw2 – pc2. The device would be on gw1.
func row() testbed.Topology {
	prefix := netip.MustParsePrefix
	forward := map[string]string{"ipv4/ip_forward": "1"}
	port := func(node, name, addr string) testbed.Port {
		return testbed.Port{Node: node, If: name, Addrs: []netip.Prefix{prefix(addr)}, TxChecksum: true, Aggregate: true}
	}
	via := func(to, gateway string) agent.Route {
		return agent.Route{To: prefix(to), Via: netip.MustParseAddr(gateway)}
	}
	return testbed.Topology{
		Nodes: []testbed.Node{
			{Name: "pc1", Role: testbed.RoleClient, Routes: []agent.Route{via("10.0.0.0/8", "10.1.0.1")}},
			{Name: "gw1", Role: testbed.RoleRouter, Sysctls: forward, Routes: []agent.Route{via("10.3.0.0/24", "10.2.0.2")}},
			{Name: "gw2", Role: testbed.RoleTransit, Sysctls: forward, Routes: []agent.Route{via("10.1.0.0/24", "10.2.0.1")}},
			{Name: "pc2", Role: testbed.RoleServer, Routes: []agent.Route{via("10.0.0.0/8", "10.3.0.1")}},
		},
		Links: []testbed.Link{
			{A: port("gw1", "l0", "10.1.0.1/24"), B: port("pc1", "c0", "10.1.0.2/24")},
			{A: port("gw1", "t0", "10.2.0.1/24"), B: port("gw2", "t1", "10.2.0.2/24")},
			{A: port("gw2", "r0", "10.3.0.1/24"), B: port("pc2", "s0", "10.3.0.2/24")},
		},
		Addressing: testbed.Addressing{ServerIP: netip.MustParseAddr("10.3.0.2")},
	}
}

func TestFourHostsInARow(t *testing.T) {
	lab := buildTopology(t, row(), "a")
	if ttl := ping(t, lab.Clients[0], 0, lab.ServerIP); ttl != "62" {
		t.Errorf("answers have ttl %s, want 62: two gateways lie between", ttl)
	}
	if lab.Router.Name != "a/gw1" || !strings.HasSuffix(lab.LANIf, "-l0") || !strings.HasSuffix(lab.WANIf, "-t0") {
		t.Errorf("router %s, %s towards the clients, %s towards the server", lab.Router.Name, lab.LANIf, lab.WANIf)
	}
	if len(lab.Hosts) != 4 {
		t.Errorf("%d hosts, want 4", len(lab.Hosts))
	}
	if err := errors.Join(lab.Close(), lab.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestBuildRefusesWhatIsNoLab(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testbed.Topology)
		want   string
	}{
		"no server":       {func(t *testbed.Topology) { t.Nodes[3].Role = testbed.RoleTransit }, "one server"},
		"unknown host":    {func(t *testbed.Topology) { t.Links[0].B.Node = "pc9" }, `"pc9", which is no host`},
		"host on its own": {func(t *testbed.Topology) { t.Links = t.Links[:2] }, "pc2 has no link"},
		"too many client hosts": {func(t *testbed.Topology) { *t = testbed.Portal{ClientHosts: 4}.Topology() },
			"192.168.137.250 of client4 is one of the leases"},
	} {
		topology := row()
		c.change(&topology)
		if _, err := topology.Build(t.Context(), backend(t), "a"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
