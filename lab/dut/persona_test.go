package dut

import (
	"encoding/json"
	"net/netip"
	"path"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// personas gives a lab n of them, with leases from the device.
func (l *testLab) personas(t testing.TB, n int) []client.Address {
	t.Helper()
	host := l.clientHost
	err := host.CreateClients(t.Context(), client.Config{
		Kind: client.KindPersona, Count: n, Parent: host.Ifs[0], LAN: l.env.LAN, Gateway: l.env.Gateway, Lab: 'a',
	})
	if err != nil {
		t.Fatal(err)
	}
	leased, err := host.Lease(t.Context(), client.Pace{Parallel: 32})
	if err != nil || client.GaveUp(leased) != nil {
		t.Fatal(err, client.GaveUp(leased))
	}
	addrs, err := host.Clients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.router.AddNeighbours(t.Context(), agent.Neighbours{Link: l.env.Port("lan"), List: addrs}); err != nil {
		t.Fatal(err)
	}
	return addrs
}

// packets is what gatewayd says became of packets.
func (l *testLab) packets(t testing.TB, g *Gateway) map[string]uint64 {
	t.Helper()
	out := l.router.must(t, `"$1" status --json --socket "$2"`, g.program, path.Join(l.env.Scratch, "gatewayd/control.sock"))
	var status struct{ Packets map[string]uint64 }
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return status.Packets
}

// TestPersonasAtTheGateway: hundreds lease, log in at the real portal with a real
// RADIUS server, and send; who poses as another gets nowhere.
func TestPersonasAtTheGateway(t *testing.T) {
	withGatewayd(t)
	const n = 300
	d := NewGateway("ebpf", n)
	l := newTestLab(t, d, n)
	l.start(t, d)
	if err := l.server.Kill(t.Context(), "traffic"); err != nil { // streams want its port
		t.Fatal(err)
	}
	addrs := l.personas(t, n)
	host, adm, pace := l.clientHost, d.Traits().Admission, client.Pace{Parallel: 32}
	if before, err := host.Status(t.Context(), adm, pace); err != nil || before[0].Through() {
		t.Fatalf("before its log-in client 1 is %+v, %v", before[0], err)
	}
	for _, turn := range []string{"first", "second"} { // a client that logs in twice stays in
		in, err := host.Login(t.Context(), adm, pace)
		if err != nil || client.GaveUp(in) != nil {
			t.Fatalf("%s log-in: %v, %v", turn, err, client.GaveUp(in))
		}
	}
	l.sending(t, n)
	l.posing(t, d)
	if err := host.Logout(t.Context(), adm); err != nil {
		t.Fatal(err)
	}
	after, err := host.Status(t.Context(), adm, pace)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range after {
		if o.Through() {
			t.Errorf("client %d at %s is in after its log-out", o.Num, addrs[i].IP)
		}
	}
	if err := host.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// sending has all n clients send for a while.
func (l *testLab) sending(t *testing.T, n int) {
	t.Helper()
	load := agent.Traffic{Kind: agent.TrafficStreams, Direction: "up", Clients: n, OfferedMbps: 50, MaxSeconds: 60, Server: l.env.ServerIP}
	if err := l.server.ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := l.clientHost.StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	var got agent.TrafficStats
	labtest.Await(t, "a second's payload at the server", func() bool {
		var err error
		if got, err = l.server.TrafficStats(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got.ReceivedBytes > 10e6
	})
	if err := l.clientHost.StopTraffic(t.Context()); err != nil || got.Broken > 0 {
		t.Errorf("stopping the traffic: %v; %d streams broke: %s", err, got.Broken, got.FirstError)
	}
}

// posing has client 1 send as client 2, by either address: the gateway drops both,
// which carry a hardware address that is not the lease's.
func (l *testLab) posing(t *testing.T, d *Gateway) {
	t.Helper()
	const packets = 20
	before := l.packets(t, d)["wrong-mac"]
	for _, what := range []string{client.SpoofIP, client.SpoofMAC} {
		err := l.clientHost.Misbehave(t.Context(), client.Misdeed{
			Num: 1, What: what, Victim: 2, To: netip.AddrPortFrom(l.env.ServerIP, 9), Packets: packets,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	labtest.Await(t, "the gateway to drop what is spoofed", func() bool {
		time.Sleep(10 * time.Millisecond)
		return l.packets(t, d)["wrong-mac"] >= before+2*packets
	})
}
