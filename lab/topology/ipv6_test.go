// Tests of labs with IPv6. build makes a lab of network namespaces on this machine, and lease leases addresses for all
// clients of a host (lab_test.go).

package topology_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// machineForwarding is the machine's own setting, which no lab changes.
const machineForwarding = "/proc/sys/net/ipv6/conf/all/forwarding"

// withClientsOf gives the lab clients of a family that are ready to send.
func withClientsOf(t *testing.T, lab *topology.Lab, kind string, f client.Family, n int) []client.Address {
	t.Helper()
	if client.KindOf(kind).Leases {
		if err := lab.ServeDHCP(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	host := lab.Clients[0]
	err := host.CreateClients(t.Context(), client.Config{
		Kind: kind, Count: n, Parent: host.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway, Lab: lab.Name[0],
		Family: f, LAN6: lab.LAN6, Gateway6: lab.Gateway6,
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease(t, host)
}

// TestClientsHaveTheirFamily: clients of each kind but pppoe, which needs a concentrator, have the addresses of their
// family, and no others, as soon as they have leased; and what they send and receive crosses the router by it, with
// every kind of traffic.
func TestClientsHaveTheirFamily(t *testing.T) {
	before, _ := os.ReadFile(machineForwarding)
	kinds := client.Kinds(func(k client.Kind) bool { return !k.PPPoE })
	for _, kind := range kinds {
		for _, f := range []client.Family{client.IPv6, client.DualStack} {
			t.Run(kind+" "+string(f), func(t *testing.T) { tryFamily(t, kind, f) })
		}
	}
	if after, _ := os.ReadFile(machineForwarding); string(after) != string(before) {
		t.Errorf("the machine's own %s was %q and is %q", machineForwarding, before, after)
	}
}

func tryFamily(t *testing.T, kind string, f client.Family) {
	const n = 4
	lab := build(t, topology.Spec{Family: f})
	for _, h := range lab.Hosts {
		if text := addressesOf(t, h, "tentative"); text != "" {
			t.Errorf("%s has addresses that cannot be used yet: %s", h.Name, text)
		}
	}
	for _, a := range withClientsOf(t, lab, kind, f, n) {
		if a.IP.IsValid() != f.Has4() || a.IP6 != wantedIP6(t, kind, a) {
			t.Errorf("client %d of family %s has %s and %s", a.Num, f, a.IP, a.IP6)
		}
	}
	server := agent.ServerFor(f, lab.ServerIP, lab.ServerIP6)
	for _, load := range []agent.Traffic{
		{Kind: traffic.KindStreams, Direction: "up"},
		{Kind: traffic.KindStreams, Direction: "both"},
		{Kind: traffic.KindStreams, Direction: "down", UDP: true},
		{Kind: traffic.KindStreams, Direction: "up", ShortPerSecond: 50, ShortBytes: 1000},
		{Kind: traffic.KindIperf3, Direction: "up", Paced: true},
		{Kind: traffic.KindIperf3, Direction: "down", UDP: true},
	} {
		if load.Kind == traffic.KindIperf3 && !client.KindOf(kind).Programs {
			continue
		}
		load.Clients, load.OfferedMbps, load.BurstSegments, load.Server = n, 20, 8, server
		start4, start6 := received(t, lab.Host("router"))
		offerTo(t, lab, load, func() {
			labtest.Await(t, fmt.Sprintf("packets of %s", name(load)), func() bool {
				got4, got6 := received(t, lab.Host("router"))
				got4, got6 = got4-start4, got6-start6
				if !f.Has4() && got4 > 50 { // a few of the lab's own
					t.Fatalf("%s: %d packets of IPv4", name(load), got4)
				}
				return got6 >= 200 && (got4 >= 200 || !f.Has4())
			})
		})
	}
	tryProbes(t, lab, server, n)
	if err := lab.Clients[0].Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// tryProbes makes the clients probe the server's round-trip time, and requires all answers.
func tryProbes(t *testing.T, lab *topology.Lab, server agent.Server, n int) {
	t.Helper()
	if err := lab.Clients[0].StartRTT(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	probes := 0
	labtest.Await(t, "answers to probes of every client", func() bool {
		times, err := lab.Clients[0].TakeRTT(t.Context())
		if err != nil || times.Lost > 0 {
			t.Fatalf("probes: %+v, %v", times, err)
		}
		probes += times.Probes
		return probes >= 4*n
	})
}

// name describes a load, as the name of a subtest.
func name(load agent.Traffic) string {
	return fmt.Sprintf("%s %s, UDP %v, %g short connections a second", load.Kind, load.Direction, load.UDP,
		load.ShortPerSecond)
}

// wantedIP6 is the IPv6 address that a client is to have: of those that lease, the one of SLAAC (RFC 4291, appendix A).
func wantedIP6(t *testing.T, kind string, a client.Address) netip.Addr {
	t.Helper()
	if !client.KindOf(kind).Leases {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:137::%x", a.Num))
	}
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, 0x37, 0, 0,
		mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// offerTo is offer to the load's own server.
func offerTo(t *testing.T, lab *topology.Lab, load agent.Traffic, fn func()) {
	t.Helper()
	load.MaxSeconds = 60
	ends := []*backend.Host{lab.Host("server"), lab.Clients[0]}
	if err := ends[0].ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := ends[1].StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	fn()
	for _, h := range ends {
		if err := h.StopTraffic(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// received returns how many packets of each family a host has received.
func received(t *testing.T, h *backend.Host) (ip4, ip6 int64) {
	t.Helper()
	lines := strings.Split(fileOf(t, h, "/proc/net/snmp"), "\n")
	fmt.Sscan(strings.Fields(lines[1])[3], &ip4)
	_, rest, _ := strings.Cut(fileOf(t, h, "/proc/net/snmp6"), "Ip6InReceives")
	fmt.Sscan(rest, &ip6)
	return ip4, ip6
}

// addressesOf lists a host's IPv6 addresses in a state.
func addressesOf(t *testing.T, h *backend.Host, state string) string {
	t.Helper()
	argv := append([]string{"ip", "-6", "-o", "addr", "show"}, strings.Fields(state)...)
	out, err := h.Run(t.Context(), agent.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

// TestTopologiesRouteIPv6: in each topology with clients, they reach the server, by the clean routers.
func TestTopologiesRouteIPv6(t *testing.T) {
	for name, build := range topology.Topologies {
		spec := topology.Spec{Family: client.DualStack, ClientHosts: 2}
		described := build(spec)
		from, to := "", ""
		for _, n := range described.Nodes {
			switch n.Role {
			case backend.RoleClient:
				from = n.Name
			case backend.RoleServer:
				to = n.Name
			}
		}
		lab := buildTopology(t, described, "a")
		if !lab.LAN6.IsValid() || lab.LAN6.Bits() != 64 {
			t.Errorf("%s: the clients' network is %s", name, lab.LAN6)
		}
		if from != "" && to != "" {
			out, err := lab.Host(from).Run(t.Context(), agent.Command{
				Argv: []string{"ping", "-n", "-c", "1", "-W", "20", lab.ServerIP6.String()}})
			if err != nil {
				t.Errorf("%s: %s reaches no %s at %s: %v\n%s", name, from, to, lab.ServerIP6, err, out.Stdout)
			}
		}
		lab.Close()
	}
}

// TestIPv4LabsHaveNoIPv6: a lab without the family has IPv6 off, and no addresses of it.
func TestIPv4LabsHaveNoIPv6(t *testing.T) {
	lab := build(t, topology.Spec{})
	for _, h := range lab.Hosts {
		if text := addressesOf(t, h, "scope global"); text != "" || lab.LAN6.IsValid() {
			t.Errorf("%s: %s", h.Name, text)
		}
	}
}
