// Tests of the device "floor", which only redirects packets. newTestLab makes a lab of a client host, a router with the
// device, and a server (lab_test.go).

package dut

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestFloor: the device floor redirects packets of known clients from link to link in eBPF, past the router's IP stack.
// So their time to live does not change (64, and 63 through the stack). TCP and UDP pass in both directions. With NAT
// (floor-nat) the server sees another address and port, peer, and the checksums are right.
func TestFloor(t *testing.T) {
	for name, peer := range map[string]string{"floor": "192.168.137.1", "floor-nat": "192.168.137.0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(name, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			skipUnsupported(t, d)
			l := newTestLab(t, d, 1)
			ttl := func() string {
				return l.clientHost.must(
					t, `ping -n -c 5 -i 0.2 -W 5 192.168.89.1 | sed -n 's/.*\(ttl=[0-9]*\).*/\1/p' | tail -n 1`)
			}
			if err := d.Start(t.Context(), l.env); err != nil {
				t.Fatal(err)
			}
			if got := ttl(); got != "ttl=63\n" {
				t.Errorf("before its clients are known: %s", got)
			}
			list := l.floorClients(t)
			if err := d.(Admitter).Admit(t.Context(), l.env, list); err != nil {
				t.Fatal(err)
			}
			if got := ttl(); name == "floor" && got != "ttl=64\n" { // floor-nat translates no packets without ports, as pings
				t.Errorf("with its clients: %s", got)
			}
			l.checkBothDirections(t)
			var own, seen []string
			labtest.Await(t, "the server to see the client's connection", func() bool {
				own = strings.Fields(l.clientHost.must(t, "ss -Hnto state established dst 192.168.89.1 | head -n 1"))
				seen = strings.Fields(l.server.must(t, "ss -Hnto state established src 192.168.89.1 | sort | head -n 1"))
				return len(own) > 3 && len(seen) > 3
			})
			if !strings.HasPrefix(seen[3], peer+":") {
				t.Errorf("the client has %v, the server sees %v, want a peer %s", own, seen, peer)
			}
			for range 2 {
				if err := d.Stop(t.Context(), l.env); err != nil {
					t.Errorf("stopping: %v", err)
				}
			}
			if got := ttl(); got != "ttl=63\n" {
				t.Errorf("when it has ended: %s", got)
			}
		})
	}
}

// floorClients makes a client with study 1's first address. It also returns the client host, from which the test sends.
func (l *testLab) floorClients(t *testing.T) []ClientAddr {
	t.Helper()
	cfg := client.Config{
		Kind: client.KindVeth, Count: 1, Parent: l.clientHost.Ifs[0], LAN: l.env.LAN, Gateway: l.env.Gateway, Lab: 'a'}
	if err := l.clientHost.CreateClients(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	outcomes, err := l.clientHost.Lease(t.Context(), client.Pace{})
	if err != nil || client.FirstFailure(outcomes) != nil {
		t.Fatal(err, client.FirstFailure(outcomes))
	}
	addrs, err := l.clientHost.Clients(t.Context())
	if err != nil || len(addrs) != 1 {
		t.Fatal(addrs, err)
	}
	own := ClientAddr{N: 1, IP: addrs[0].IP, MAC: addrs[0].MAC}
	host := own
	host.N, host.IP = 2, l.env.Gateway.Prev()
	return []ClientAddr{own, host}
}

// checkBothDirections waits until streams have carried data in both directions and UDP probes have come back.
func (l *testLab) checkBothDirections(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	load := agent.Traffic{Kind: traffic.KindStreams, Direction: "both", Clients: 1, OfferedMbps: 20, BurstSegments: 8,
		Server: agent.Server{Addr4: l.env.ServerIP}, MaxSeconds: 100}
	if err := l.server.ServeTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := l.clientHost.StartTraffic(ctx, load); err != nil {
		t.Fatal(err)
	}
	if err := l.clientHost.StartRTT(ctx, agent.Server{Addr4: l.env.ServerIP}); err != nil {
		t.Fatal(err)
	}
	probes := 0
	labtest.Await(t, "data both ways, and probes", func() bool {
		for _, h := range []testHost{l.clientHost, l.server} {
			if s, err := h.TrafficStats(ctx); err != nil || s.ReceivedBytes < 1e6 {
				return false
			}
		}
		times, err := l.clientHost.TakeRTT(ctx)
		if err != nil {
			t.Fatal(err)
		}
		probes += times.Probes - times.Lost
		return probes >= 3
	})
}
