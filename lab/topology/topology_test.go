// Tests of which hosts and links a topology has. build makes the lab of a Spec, of network namespaces on this machine,
// and lease leases addresses for all clients of a host (lab_test.go).

package topology_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// ping sends three echo requests from a host, or from one of its clients, and
// returns the time to live of the answers.
func ping(t *testing.T, from *backend.Host, client int, to netip.Addr) string {
	t.Helper()
	out, err := from.Run(t.Context(), agent.Command{Argv: []string{"ping", "-n", "-c", "3", "-i", "0.2", "-W", "5",
		to.String()}, Client: client})
	if err != nil {
		t.Fatalf("from %s: %v", from.Name, err)
	}
	_, ttl, _ := strings.Cut(out.Stdout, "ttl=")
	ttl, _, _ = strings.Cut(ttl, " ")
	return ttl
}

// TestTwoClientHostsShareTheRoutersLink: clients are on two machines, as study 1 proposes for future work (7.2).
// Packets between them go through the router only.
func TestTwoClientHostsShareTheRoutersLink(t *testing.T) {
	lab := build(t, topology.Spec{ClientHosts: 2})
	if len(lab.Clients) != 2 || len(lab.Host("router").Ifs) != 2 {
		t.Fatalf("%d client hosts, %d links at the router; want two each", len(lab.Clients), len(lab.Host("router").Ifs))
	}
	if err := lab.ServeDHCP(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, h := range lab.Clients {
		const each = 2
		err := h.CreateClients(t.Context(), client.Config{
			Kind: client.KindMacvlan, First: 1 + each*i, Count: each, Parent: h.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway,
			Lab: lab.Name[0],
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

func TestBuildRefusesWhatIsNoLab(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*topology.Topology)
		want   string
	}{
		"no server":    {func(t *topology.Topology) { t.Nodes[3].Role = "" }, "a server"},
		"unknown host": {func(t *topology.Topology) { t.Links[0].B.Node = "pc9" }, `"pc9", which is no host`},
		"nothing metered": {
			func(t *topology.Topology) { t.Nodes[0].Metered, t.Nodes[1].Metered = false, false }, "a metered host"},
		"two ports of a name": {func(t *topology.Topology) { t.Links[1].A.Name = topology.PortLAN }, `"lan"`},
		"host on its own":     {func(t *topology.Topology) { t.Links = t.Links[:2] }, "pc2 has no link"},
		"too many client hosts": {func(t *topology.Topology) { *t = topology.Portal(topology.Spec{ClientHosts: 4}) },
			"192.168.137.250 of client4 is one of the leases"},
	} {
		described := topology.Tunnel(topology.Spec{})
		c.change(&described)
		_, err := described.Build(t.Context(), backend.Netns{}, "a")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSizeCountsEveryHost: the size of a lab depends on its topology.
func TestSizeCountsEveryHost(t *testing.T) {
	for hosts, want := range map[int]topology.Size{1: {Hosts: 3, Neighbours: 3}, 3: {Hosts: 6, Neighbours: 5}} {
		if got := topology.Portal(topology.Spec{ClientHosts: hosts}).Size(); got != want {
			t.Errorf("%d client hosts: %+v, want %+v", hosts, got, want)
		}
	}
}

func TestTopologiesAreKnownByName(t *testing.T) {
	if build, err := topology.Named("portal"); err != nil || len(build(topology.Spec{}).Nodes) < 3 {
		t.Error(err)
	}
	if _, err := topology.Named("ring"); err == nil || !strings.Contains(err.Error(), `"ring"`) ||
		!strings.Contains(err.Error(), "portal") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestRoutersLinksAreKnownByName(t *testing.T) {
	for name, want := range map[string]bool{
		"gabc2d-r0-8194": true, "gabc2d-r1-": true, "gabc2d-c0-12": false, "eth0-8193": false, "kworker/0:1": false,
	} {
		if got := regexp.MustCompile(topology.RouterLinks).MatchString(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
