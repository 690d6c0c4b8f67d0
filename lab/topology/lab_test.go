// Tests of whole labs. build makes the lab of a Spec, of network namespaces on this machine, and buildTopology that of
// a topology; withClients gives it clients that are ready to send; send offers a load for a time.

package topology_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestMain lets the test binary serve as its own agent, as gateweigh does.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// build makes the lab of a Spec with clients, a router and a server.
func build(t *testing.T, spec topology.Spec) *topology.Lab {
	t.Helper()
	return buildTopology(t, topology.Portal(spec), "a")
}

// buildTopology makes a lab on this machine, and removes it after the test.
func buildTopology(t *testing.T, described topology.Topology, name string) *topology.Lab {
	t.Helper()
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	lab, err := described.Build(t.Context(), local, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	return lab
}

// withClients gives the lab clients that are ready to send.
func withClients(t *testing.T, lab *topology.Lab, kind string, n int) []client.Address {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if kind == client.KindMacvlan {
		if err := lab.ServeDHCP(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	host := lab.Clients[0]
	err := host.CreateClients(ctx, client.Config{
		Kind: kind, Count: n, Parent: host.Ifs[0], LAN: lab.LAN, Gateway: lab.Gateway, Lab: lab.Name[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease(t, host)
}

// lease leases addresses for all clients of a host at once.
func lease(t *testing.T, h *backend.Host) []client.Address {
	t.Helper()
	leased, err := h.Lease(t.Context(), client.Pace{})
	if err := errors.Join(err, client.FirstFailure(leased)); err != nil {
		t.Fatal(err)
	}
	addrs, err := h.Clients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// sampleTwice opens the router's meter and reads it, so long apart.
func sampleTwice(t *testing.T, lab *topology.Lab, apart time.Duration) (before, after meter.Sample) {
	t.Helper()
	before = sample(t, lab)
	time.Sleep(apart)
	return before, readAgain(t, lab)
}

// sample opens the router's meter and reads it.
func sample(t *testing.T, lab *topology.Lab) meter.Sample {
	t.Helper()
	if err := lab.Host("router").OpenMeter(
		t.Context(), agent.Meter{IfNames: lab.Host("router").Ifs, Follow: true}); err != nil {
		t.Fatal(err)
	}
	return readAgain(t, lab)
}

func readAgain(t *testing.T, lab *topology.Lab) meter.Sample {
	t.Helper()
	s, err := lab.Host("router").Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send offers a load for the given time and returns the router's samples around it.
func send(t *testing.T, lab *topology.Lab, load agent.Traffic, length time.Duration) (before, after meter.Sample) {
	t.Helper()
	offer(t, lab, load, func() {
		time.Sleep(300 * time.Millisecond)
		before, after = sampleTwice(t, lab, length)
	})
	return before, after
}

// sendUntil offers a load until the router's samples since its beginning show enough.
func sendUntil(t *testing.T, lab *topology.Lab, load agent.Traffic, what string,
	enough func(before, after meter.Sample) bool) {
	t.Helper()
	offer(t, lab, load, func() {
		before := sample(t, lab)
		labtest.Await(t, what, func() bool { return enough(before, readAgain(t, lab)) })
	})
}

// offer offers a load while fn runs.
func offer(t *testing.T, lab *topology.Lab, load agent.Traffic, fn func()) {
	t.Helper()
	ctx := t.Context()
	load.Server = agent.Server{Addr4: lab.ServerIP}
	load.MaxSeconds = 60
	if err := lab.Host("server").ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := lab.Clients[0].StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	fn()
	if err := lab.Clients[0].StopTraffic(ctx); err != nil {
		t.Fatal(err)
	}
	if err := lab.Host("server").StopTraffic(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestMacvlanClientsLeaseSendAndRelease(t *testing.T) {
	lab := build(t, topology.Spec{})
	const n = 30
	addrs := withClients(t, lab, client.KindMacvlan, n)
	seen := map[string]bool{}
	for _, a := range addrs {
		if !topology.DefaultLAN.Contains(a.IP) || seen[a.IP.String()] || seen[a.MAC] {
			t.Errorf("client %d has %s, %s: outside the network or not its own", a.Num, a.IP, a.MAC)
		}
		seen[a.IP.String()], seen[a.MAC] = true, true
	}
	var before, after meter.Sample
	var got float64
	for range 5 { // a busy machine may keep it from sending, and it catches up afterwards
		before, after = send(
			t, lab, agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: n, OfferedMbps: 50}, time.Second)
		moved := after.Links[lab.Port(topology.PortWAN)].Sub(before.Links[lab.Port(topology.PortWAN)])
		if got = float64(moved.TxBytes) * 8e3 / float64(after.MonotonicNs-before.MonotonicNs); got >= 40 && got <= 65 {
			break
		}
	}
	if got < 40 || got > 65 {
		t.Errorf("router forwarded %.1f Mbit/s of 50 (52.3 with headers)", got)
	}
	for name, th := range after.NAPI {
		if th.RunNs == before.NAPI[name].RunNs {
			t.Errorf("polling thread of %s did not run under load", name)
		}
	}
	if known := strings.Count(fileOf(t, lab.Host("router"), "/proc/net/arp"), "\n"); known < n {
		t.Errorf("router knows %d neighbours, want %d clients or more", known, n)
	}
	if err := lab.Clients[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lab.Clients[0].Release(t.Context()); err != nil {
		t.Errorf("second release: %v", err)
	}
}

// fileOf returns the contents of a file as a host sees it.
func fileOf(t *testing.T, h *backend.Host, path string) string {
	t.Helper()
	out, err := h.Run(t.Context(), agent.Command{Argv: []string{"cat", path}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

func TestVethClientsHaveStudyOnesAddresses(t *testing.T) {
	lab := build(t, topology.Spec{})
	addrs := withClients(t, lab, client.KindVeth, 5)
	for i, a := range addrs {
		if want := fmt.Sprintf("192.168.137.%d", i+1); a.IP.String() != want {
			t.Errorf("client %d has %s, want %s", a.Num, a.IP, want)
		}
	}
	for _, direction := range []string{"up", "down"} {
		load := agent.Traffic{Kind: traffic.KindStreams, Direction: direction, Clients: 5, OfferedMbps: 20}
		link := map[string]string{"up": lab.Port(topology.PortWAN), "down": lab.Port(topology.PortLAN)}[direction]
		sendUntil(t, lab, load, direction+": the router to have forwarded 1 MB", func(before, after meter.Sample) bool {
			return after.Links[link].Sub(before.Links[link]).TxBytes >= 1e6
		})
	}
}

func TestIperf3CarriesTheOfferedLoad(t *testing.T) {
	lab := build(t, topology.Spec{})
	withClients(t, lab, client.KindMacvlan, 4)
	for _, load := range []agent.Traffic{
		{Paced: true, Direction: "up"},
		{Direction: "up"},
		{Paced: true, Direction: "down"},
		{UDP: true, Direction: "up"},
	} {
		load.Kind, load.Clients, load.OfferedMbps, load.BurstSegments = traffic.KindIperf3, 4, 20, 44
		link := map[string]string{"up": lab.Port(topology.PortWAN), "down": lab.Port(topology.PortLAN)}[load.Direction]
		var got float64
		for range 5 { // a busy machine may keep it from sending, and it catches up afterwards
			before, after := send(t, lab, load, 2*time.Second)
			got = float64(after.Links[link].Sub(before.Links[link]).TxBytes) * 8e3 / float64(
				after.MonotonicNs-before.MonotonicNs)
			if got >= 15 && got <= 30 {
				break
			}
		}
		if got < 15 || got > 30 {
			t.Errorf("%s, paced %v, UDP %v: %.1f Mbit/s of 20 forwarded", load.Direction, load.Paced, load.UDP, got)
		}
	}
}

func TestProfilesDecideWhetherTheRouterSeesSinglePackets(t *testing.T) {
	for _, aggregate := range []bool{false, true} {
		lab := build(t, topology.Spec{Aggregate: aggregate})
		withClients(t, lab, client.KindVeth, 4)
		before, after := send(
			t, lab, agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: 4, OfferedMbps: 200}, time.Second)
		frames := after.Links[lab.Port(topology.PortLAN)].Sub(before.Links[lab.Port(topology.PortLAN)]).RxPackets +
			after.Links[lab.Port(topology.PortWAN)].Sub(before.Links[lab.Port(topology.PortWAN)]).RxPackets
		factor := float64(frames) / float64(after.IPIn-before.IPIn)
		if !aggregate && factor > 1.05 || aggregate && factor < 1.5 {
			t.Errorf("aggregating %v: %.2f frames per packet at the router", aggregate, factor)
		}
		lab.Close()
	}
}

func TestTwoLabsDoNotMeet(t *testing.T) {
	portal := topology.Portal(topology.Spec{})
	a, b := buildTopology(t, portal, "a"), buildTopology(t, portal, "b")
	withClients(t, a, client.KindVeth, 2)
	withClients(t, b, client.KindVeth, 2)
	before, err := sampleOf(b)
	if err != nil {
		t.Fatal(err)
	}
	send(t, a, agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: 2, OfferedMbps: 50},
		500*time.Millisecond)
	after, err := sampleOf(b)
	if err != nil {
		t.Fatal(err)
	}
	if moved := after.Links[b.Port(topology.PortWAN)].Sub(before.Links[b.Port(topology.PortWAN)]); moved.TxPackets > 20 {
		t.Errorf("lab b forwarded %d packets of lab a's load", moved.TxPackets)
	}
}

func sampleOf(lab *topology.Lab) (meter.Sample, error) {
	ctx := context.Background()
	if err := lab.Host("router").OpenMeter(ctx, agent.Meter{IfNames: lab.Host("router").Ifs, Follow: true}); err != nil {
		return meter.Sample{}, err
	}
	return lab.Host("router").Sample(ctx)
}

func TestDeviceProcessesCountAndSupportDoesNot(t *testing.T) {
	lab := build(t, topology.Spec{})
	ctx := t.Context()
	const work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 60"
	for _, c := range []agent.Command{
		{Name: "device", Argv: []string{"sh", "-c", work}},
		{Name: "support", Argv: []string{"bash", "-c", work}, Support: true},
	} {
		if err := lab.Host("router").Spawn(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	labtest.Await(t, "the device's work to show", func() bool {
		s, err := sampleOf(lab)
		if err != nil {
			t.Fatal(err)
		}
		names = names[:0]
		var ns int64
		for _, p := range s.Processes {
			names = append(names, p.Name)
			ns += p.RunNs
		}
		return ns > 5e6
	})
	if got := strings.Join(names, " "); strings.Contains(got, "bash") || !strings.Contains(got, "sh") {
		t.Errorf("counted processes: %s; want sh and not bash", got)
	}
	if mib, err := lab.Host("router").PSSMiB(ctx); err != nil || mib <= 0 || mib > 50 {
		t.Errorf("PSS = %.2f MiB, %v", mib, err)
	}
}

func TestBuildErrorsSayWhat(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	local := backend.Netns{Options: backend.Options{LogDir: t.TempDir()}}
	if lab, err := topology.Portal(topology.Spec{}).Build(ctx, local, "a"); err == nil ||
		!strings.Contains(err.Error(), "building lab a") {
		t.Errorf("Build under a cancelled context = %v, %v", lab, err)
	}
}

// TestNeighboursOfClientsAreNotCounted: all namespaces share one table of
// neighbours with a limit, which a thousand clients would fill with their router.
func TestNeighboursOfClientsAreNotCounted(t *testing.T) {
	lab := build(t, topology.Spec{})
	withClients(t, lab, client.KindMacvlan, 2)
	for n := 1; n <= 2; n++ {
		var found string
		labtest.Await(t, "the router's hardware address", func() bool {
			out, err := lab.Clients[0].Run(
				t.Context(), agent.Command{Argv: []string{"ip", "neigh", "show", lab.Gateway.String()}, Client: n})
			if err != nil {
				t.Fatal(err)
			}
			found = out.Stdout
			return strings.Contains(found, "lladdr")
		})
		if !strings.Contains(found, "extern_learn") {
			t.Errorf("client %d counts its router: %s", n, found)
		}
	}
}

// A polled veth counts frames without their Ethernet header, at both ends.
func TestLinksCountWholeFrames(t *testing.T) {
	lab := build(t, topology.Spec{})
	client, port := lab.Clients[0], lab.Port(topology.PortLAN)
	pings := func(n int) {
		t.Helper()
		// 22 bytes make frames of 64: 14 of Ethernet, 20 of IPv4, 8 of ICMP.
		if _, err := client.Run(t.Context(), agent.Command{Argv: []string{"ping", "-c", fmt.Sprint(n), "-i", "0.01", "-s",
			"22", lab.Gateway.String()}}); err != nil {
			t.Fatal(err)
		}
	}
	pings(1) // which asks for addresses
	before := sample(t, lab).Links[port]
	pings(50)
	got := readAgain(t, lab).Links[port].Sub(before)
	const arp = 42 // the router may ask again whether the client is there, and be asked
	for _, way := range [][2]int64{{got.RxBytes, got.RxPackets}, {got.TxBytes, got.TxPackets}} {
		if others := way[1] - 50; others < 0 || way[0] != 50*64+others*arp {
			t.Errorf("%d bytes in %d frames, of which 50 have 64 bytes and all others %d", way[0], way[1], arp)
		}
	}
}
