package cost

import (
	"os"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// openClean opens a pair of labs with clean routers, each with the given number of clients, and returns one of them.
func openClean(t *testing.T, clients int, of experiment.Client) *lab {
	t.Helper()
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	has := experiment.Side{Client: of.Kind, Clients: clients}
	opened, clean, err := bench.Labs{
		Backend: local, DUT: experiment.Clean, DUTLab: "a",
		Experiment: &experiment.Experiment{Topology: "portal", Client: of}, Sides: []experiment.Side{has, has},
	}.OpenPair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close(); clean.Close() })
	return &lab{Bench: opened}
}

// TestFewerGuestsThanHosts: two guests come and go, and one of the three client hosts has none.
func TestFewerGuestsThanHosts(t *testing.T) {
	const hosts, perSecond = 3, 0.1
	s := openClean(t, hosts, experiment.Client{Kind: client.KindPersona, Hosts: hosts, Churn: perSecond})
	if s.Guests != 2 {
		t.Fatalf("%d guests, want 2", s.Guests)
	}
	if err := s.startGuests(t.Context(), perSecond); err != nil {
		t.Fatal(err)
	}
	if c, err := s.endVisits(t.Context()); err != nil || len(c.Failures) > 0 {
		t.Errorf("%v, failures %v", err, c.Failures)
	}
}

// checkAllHosts requires that between two readings all client hosts sent and received, at least 100 kB in one
// direction.
func checkAllHosts(t *testing.T, s *lab, before, after bench.Snapshot) {
	t.Helper()
	for i, e := range spans(before.Clients, after.Clients) {
		name := s.Hosts[i].Ifs[0]
		link := e.b.Meter.Links[name].Sub(e.a.Meter.Links[name])
		if min(link.TxBytes, link.RxBytes) == 0 || max(link.TxBytes, link.RxBytes) < 100_000 {
			t.Errorf("%s %s: client host %d sent %d and received %d bytes", s.Load.Kind, s.Load.Direction, i+1, link.TxBytes,
				link.RxBytes)
		}
	}
}

// TestTwoClientHostsLoadOneRouter measures a window of each kind of load that
// two client hosts share.
func TestTwoClientHostsLoadOneRouter(t *testing.T) {
	const clients, mbps = 5, 40
	ctx := t.Context()
	s := openClean(t, clients, experiment.Client{Kind: client.KindMacvlan, Hosts: 2})
	if len(s.Clients) != clients || len(s.LoginMs) != 0 || s.Clients[clients-1].N != clients {
		t.Errorf("%d clients, the last is number %d, want %d; %d logins at a router that has none", len(s.Clients),
			s.Clients[clients-1].N, clients, len(s.LoginMs))
	}
	// The streams' server stays and takes the port of iperf3's first one, so iperf3 goes first.
	for _, c := range []struct{ kind, direction string }{
		{traffic.KindIperf3, result.Up}, {traffic.KindStreams, result.Up}, {traffic.KindStreams, result.Down},
	} {
		s.Side.Traffic = experiment.Traffic{
			Kind: c.kind, Protocol: experiment.ProtocolTCP, Pacing: experiment.PacingPaced, BurstSegments: 44}
		if err := s.StartTraffic(ctx, c.direction, mbps, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		// share is the delivered payload over the traffic on the router's link. On a busy machine less is offered, but the
		// forwarded traffic still arrives. If the hosts were not read at about the same time, the next window shows it.
		var before, after bench.Snapshot
		var m Measurement
		var share float64
		var err error
		for window := 0; window < 10 && (share < 0.9 || share > 1); window++ {
			if before, err = s.Read(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if after, err = s.Read(ctx); err != nil {
				t.Fatal(err)
			}
			m = s.measurement(before, after)
			share = m.DeliveredMbps / m.LinkMbps
		}
		if err := s.StopTraffic(ctx); err != nil {
			t.Fatal(err)
		}
		if share < 0.9 || share > 1 || m.Broken > 0 {
			t.Errorf("%s %s: %.1f of %.1f Mbit/s arrived, %d broken: %s", c.kind, c.direction, m.DeliveredMbps, m.LinkMbps,
				m.Broken, m.BrokenError)
		}
		checkAllHosts(t, s, before, after)
	}
}
