package testbed_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// withPersonas gives a lab n personas with addresses, of which the router is told.
func withPersonas(t *testing.T, n int) (*testbed.Lab, []client.Address) {
	t.Helper()
	lab := build(t, testbed.Spec{Clients: n})
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
	if err := lab.Host("router").AddNeighbours(t.Context(), agent.Neighbours{Link: lab.Port(testbed.PortLAN), List: addrs}); err != nil {
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
		load.Kind, load.Clients, load.OfferedMbps = agent.TrafficStreams, n, 100
		before, after := send(t, lab, load, time.Second)
		up, down := after.Links[lab.Port(testbed.PortWAN)].Sub(before.Links[lab.Port(testbed.PortWAN)]).TxBytes, after.Links[lab.Port(testbed.PortLAN)].Sub(before.Links[lab.Port(testbed.PortLAN)]).TxBytes
		if up+down < 10e6 || load.Direction == "both" && min(up, down) < 5e6 {
			t.Errorf("%s: the router forwarded %d bytes up and %d down in a second, want about 13 MB in all", load.Direction, up, down)
		}
	}
	states, err := host.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Counters.TxPackets == 0 || s.Counters.RxPackets == 0 || s.Counters.Misdirected != 0 || s.LeaseSeconds <= 0 {
			t.Errorf("client %d after traffic both ways: %+v", s.Num, s)
		}
	}
	if renewed, err := host.Renew(t.Context(), client.Pace{Parallel: 32}); err != nil || client.GaveUp(renewed) != nil {
		t.Errorf("renewing: %v, %v", err, client.GaveUp(renewed))
	}
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
	lab := build(t, testbed.Spec{Clients: n + guests})
	if err := lab.ServeDHCP(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	host := lab.Clients[0]
	err := host.CreateClients(t.Context(), client.Config{
		Kind: client.KindPersona, Count: n, Guests: guests, FirstGuest: n + 1, Parent: host.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway, Lab: lab.Name[0],
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
	if err := lab.Host("router").AddNeighbours(t.Context(), agent.Neighbours{Link: lab.Port(testbed.PortLAN), List: addrs}); err != nil {
		t.Fatal(err)
	}
	load := agent.Traffic{Kind: agent.TrafficStreams, Clients: n, OfferedMbps: 500, Direction: "up"}
	before, after := send(t, lab, load, time.Second)
	if up := after.Links[lab.Port(testbed.PortWAN)].Sub(before.Links[lab.Port(testbed.PortWAN)]).TxBytes; up < 20e6 {
		t.Errorf("the router forwarded %d bytes in a second, want about 60 MB", up)
	}
	states, err := host.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Counters.TxPackets == 0 || s.Counters.RxPackets == 0 || s.LeaseSeconds != 0 {
			t.Fatalf("client %d after traffic: %+v", s.Num, s)
		}
	}
	if err := host.Visit(t.Context(), client.Churn{PerSecond: 20}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if visits, err := host.Leave(t.Context()); err != nil || visits.In == 0 || visits.Gone != visits.In || len(visits.Failures) > 0 {
		t.Errorf("guests: %+v, %v", visits, err)
	}
	comeBack(t, host, addrs)
}

// comeBack has clients with static addresses leave, twice, and come again.
func comeBack(t *testing.T, host *testbed.Host, had []client.Address) {
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

func TestPersonasThatMisbehave(t *testing.T) {
	lab, addrs := withPersonas(t, 3)
	host := lab.Clients[0]
	do := func(m client.Misdeed) {
		t.Helper()
		if err := host.Misbehave(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	// Back at once, a client has its old address; gone without a word, it gets it too,
	// for the server still has it down as its own.
	do(client.Misdeed{Num: 1, What: client.Roam})
	do(client.Misdeed{Num: 2, What: client.Vanish})
	if list, err := host.Clients(t.Context()); err != nil || list[0].IP != addrs[0].IP || list[1].IP.IsValid() {
		t.Errorf("after roaming and vanishing: %v, %v", list, err)
	}
	if list := lease(t, host); list[1].IP != addrs[1].IP {
		t.Errorf("client 2 came back with %s, it had %s", list[1].IP, addrs[1].IP)
	}
	if err := host.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(client.Misdeed{Num: 3, What: client.Decline})
	leased, err := host.Lease(t.Context(), client.Pace{})
	if err != nil || client.GaveUp(leased) != nil {
		t.Fatal(err, client.GaveUp(leased))
	}
	if leased[2].Tries < 2 || leased[2].Refusal == "" {
		t.Errorf("a client that declined an address: %+v", leased[2])
	}
	for _, m := range []client.Misdeed{{Num: 9, What: client.Vanish}, {Num: 1, What: "nap"}, {Num: 1, What: client.SpoofIP, Victim: 9}} {
		if err := host.Misbehave(t.Context(), m); err == nil {
			t.Errorf("%+v is no error", m)
		}
	}
}

func TestKilledAgentLeavesNoPersonas(t *testing.T) {
	lab, _ := withPersonas(t, 3)
	host := lab.Clients[0]
	load := agent.Traffic{Kind: agent.TrafficStreams, Direction: "up", Clients: 3, OfferedMbps: 1, Workers: 2, MaxSeconds: 60, Server: lab.ServerIP}
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
	if n := workersOf(t, hello.PID); n != 2 {
		t.Fatalf("the agent has %d workers, want 2", n)
	}
	fileOf(t, lab.Host("router"), "/sys/class/net/"+lab.Port(testbed.PortLAN)+"/ifindex") // it is there
	if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The router's end of a link goes with the namespace of its other end, and that
	// with the last process in it.
	labtest.Await(t, "the clients' namespace to end", func() bool {
		out, err := lab.Host("router").Run(t.Context(), agent.Command{Argv: []string{"ls", "/sys/class/net"}})
		return err == nil && !strings.Contains(out.Stdout, lab.Port(testbed.PortLAN))
	})
}

// workersOf counts an agent's worker processes.
func workersOf(t *testing.T, pid int) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		args, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && fields[1] == strconv.Itoa(pid) && strings.Contains(string(args), "\x00"+agent.WorkerCommand) {
			n++
		}
	}
	return n
}
