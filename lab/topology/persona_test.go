// Tests of personas: clients that share one network namespace, each with a hardware address and a lease of its own.
// build makes a lab of network namespaces on this machine, lease leases addresses for all clients of a host, and
// sendUntil offers a load until the meter shows enough (lab_test.go).

package topology_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// withPersonas gives a lab n personas with addresses, of which the router is told.
func withPersonas(t *testing.T, n int) (*topology.Lab, []client.Address) {
	t.Helper()
	lab := build(t, topology.Spec{Clients: n})
	if err := lab.ServeDHCP(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	host := lab.Clients[0]
	err := host.CreateClients(t.Context(), client.Config{
		Kind: client.KindPersona, Count: n, Parent: host.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway, Lab: lab.Name[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs := lease(t, host)
	if err := lab.Host("router").AddNeighbours(
		t.Context(), agent.Neighbours{Link: lab.Port(topology.PortLAN), List: addrs}); err != nil {
		t.Fatal(err)
	}
	return lab, addrs
}

func TestPersonasLeaseSendAndRelease(t *testing.T) {
	const n = 300
	lab, addrs := withPersonas(t, n)
	host := lab.Clients[0]
	seen := map[string]bool{}
	for _, a := range addrs {
		if !lab.LAN.Contains(a.IP) || seen[a.IP.String()] || seen[a.MAC] {
			t.Errorf("client %d has %s, %s: outside %s or not its own", a.Num, a.IP, a.MAC, lab.LAN)
		}
		seen[a.IP.String()], seen[a.MAC] = true, true
	}
	// Workers share the streams as they do where one process has too few files.
	for _, load := range []agent.Traffic{{Direction: "up"}, {Direction: "down", Workers: 3}, {Direction: "both"}} {
		load.Kind, load.Clients, load.OfferedMbps = traffic.KindStreams, n, 100
		sendUntil(t, lab, load, load.Direction+": the router to have forwarded 10 MB", func(before, after meter.Sample) bool {
			up, down := after.Links[lab.Port(topology.PortWAN)].Sub(before.Links[lab.Port(topology.PortWAN)]).TxBytes,
				after.Links[lab.Port(topology.PortLAN)].Sub(before.Links[lab.Port(topology.PortLAN)]).TxBytes
			return up+down >= 10e6 && (load.Direction != "both" || min(up, down) >= 5e6)
		})
	}
	everyStreamCarries(t, lab, agent.Traffic{Kind: traffic.KindStreams, Clients: n, OfferedMbps: 100})
	for range 2 {
		if err := host.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if again := lease(t, host); len(again) != n || !again[0].IP.IsValid() {
		t.Errorf("leasing again gave %d addresses, the first %v", len(again), again[0])
	}
}

// TestPersonasWithStaticAddresses: thousands have an address each at once, by their
// numbers and without asking; guests lease beside them, and the router tells no difference.
func TestPersonasWithStaticAddresses(t *testing.T) {
	const n, guests = 2000, 3
	lab := build(t, topology.Spec{Clients: n + guests})
	if err := lab.ServeDHCP(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	host := lab.Clients[0]
	err := host.CreateClients(t.Context(), client.Config{
		Kind: client.KindPersona, Count: n, Guests: guests, FirstGuest: n + 1, Parent: host.Ifs[0], LAN: lab.LAN,
		Gateway: lab.Gateway, Lab: lab.Name[0],
		FirstStatic: lab.FirstLease,
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs := lease(t, host)
	next := lab.FirstLease
	for _, a := range addrs {
		if a.IP != next {
			t.Fatalf("client %d has %s, want %s", a.Num, a.IP, next)
		}
		next = next.Next()
	}
	if err := lab.Host("router").AddNeighbours(
		t.Context(), agent.Neighbours{Link: lab.Port(topology.PortLAN), List: addrs}); err != nil {
		t.Fatal(err)
	}
	everyStreamCarries(t, lab, agent.Traffic{Kind: traffic.KindStreams, Clients: n, OfferedMbps: 500})
	if err := host.Visit(t.Context(), client.Churn{PerSecond: 20}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "a guest to come and go", func() bool {
		visits, err := host.Leave(t.Context())
		if err := errors.Join(err, host.Visit(t.Context(), client.Churn{PerSecond: 20})); err != nil ||
			visits.Gone != visits.In || len(visits.Failures) > 0 {
			t.Fatalf("guests: %+v, %v", visits, err)
		}
		return visits.In > 0
	})
	if _, err := host.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	comeBack(t, host, addrs)
}

// everyStreamCarries makes all clients send and receive until each has done both.
func everyStreamCarries(t *testing.T, lab *topology.Lab, load agent.Traffic) {
	t.Helper()
	ctx, host := t.Context(), lab.Clients[0]
	load.Direction, load.BurstSegments, load.MaxSeconds = result.Both, 4, 60
	load.Server = agent.Server{Addr4: lab.ServerIP}
	err := lab.Host("server").ServeTraffic(ctx, load)
	if err == nil {
		err = host.StartTraffic(ctx, load)
	}
	if err == nil {
		err = errors.Join(lab.Host("server").MarkTraffic(ctx), host.MarkTraffic(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	for end, h := range map[string]*backend.Host{"server": lab.Host("server"), "clients": host} {
		labtest.Await(t, "payload of every stream to the "+end, func() bool {
			stats, err := h.TrafficStats(ctx)
			if err != nil || stats.Broken > 0 {
				t.Fatalf("%v; %d streams broke: %s", err, stats.Broken, stats.FirstError)
			}
			return stats.Shares.Streams == load.Clients && stats.Shares.Min > 0
		})
	}
	if err := errors.Join(host.StopTraffic(ctx), lab.Host("server").StopTraffic(ctx)); err != nil {
		t.Fatal(err)
	}
}

// comeBack makes clients with static addresses leave, twice, and come again.
func comeBack(t *testing.T, host *backend.Host, had []client.Address) {
	t.Helper()
	for range 2 {
		if err := host.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := host.Clients(t.Context()); err != nil || list[0].IP.IsValid() {
		t.Errorf("after release: %v, %v", list[0], err)
	}
	last := len(had) - 1
	if again := lease(t, host); again[last].IP != had[last].IP {
		t.Errorf("client %d came back with %s, it had %s", had[last].Num, again[last].IP, had[last].IP)
	}
}

func TestKilledAgentLeavesNoPersonas(t *testing.T) {
	lab, _ := withPersonas(t, 3)
	host := lab.Clients[0]
	load := agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: 3, OfferedMbps: 1, Workers: 2,
		MaxSeconds: 60, Server: agent.Server{Addr4: lab.ServerIP}}
	if err := lab.Host("server").ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	hello, err := host.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(labtest.Children(t, hello.PID, agent.WorkerCommand)); n != 2 {
		t.Fatalf("the agent has %d workers, want 2", n)
	}
	fileOf(t, lab.Host("router"), "/sys/class/net/"+lab.Port(topology.PortLAN)+"/ifindex") // it is there
	if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The router's end of a link goes with the namespace of its other end, and that
	// with the last process in it.
	labtest.Await(t, "the clients' namespace to end", func() bool {
		out, err := lab.Host("router").Run(t.Context(), agent.Command{Argv: []string{"ls", "/sys/class/net"}})
		return err == nil && !strings.Contains(out.Stdout, lab.Port(topology.PortLAN))
	})
}
