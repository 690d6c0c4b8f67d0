package runner

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// TestHostsKnowTheWordsOfExperiments: the runner hands an experiment's words on to the
// agents as they are.
func TestHostsKnowTheWordsOfExperiments(t *testing.T) {
	for word, known := range map[string]string{
		result.Up: traffic.Up, result.Down: traffic.Down,
	} {
		if word != known {
			t.Errorf("an experiment says %q, a host knows %q", word, known)
		}
	}
}

func TestClientsAreSharedOutEvenly(t *testing.T) {
	hosts := []*testbed.Host{{Name: "one"}, {Name: "two"}, {Name: "three"}}
	for _, c := range []struct {
		clients int
		want    []clientHost
	}{
		{7, []clientHost{{hosts[0], 1, 2}, {hosts[1], 3, 2}, {hosts[2], 5, 3}}},
		{3, []clientHost{{hosts[0], 1, 1}, {hosts[1], 2, 1}, {hosts[2], 3, 1}}},
		{1, []clientHost{{hosts[2], 1, 1}}},
	} {
		got := shareClients(hosts, c.clients)
		if len(got) != len(c.want) {
			t.Errorf("%d clients are on %d hosts, want %d", c.clients, len(got), len(c.want))
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%d clients: %+v, want %+v", c.clients, got[i], c.want[i])
			}
		}
	}
}

// TestClientHostsTakeTurns: what comes at a rate that hosts share is as evenly spaced as
// from one.
func TestClientHostsTakeTurns(t *testing.T) {
	const rate, hosts = 10.0, 3
	s := &side{guests: 30, hosts: shareClients(make([]*testbed.Host, hosts), 30), load: agent.Traffic{Clients: 30, ShortPerSecond: rate}}
	for what, of := range map[string]func(i int) (after time.Duration, perSecond float64){
		"log-ins": func(i int) (time.Duration, float64) {
			p := paceOf(experiment.Block{LoginRate: rate}, i, hosts)
			return p.After, p.PerSecond
		},
		"guests":            func(i int) (time.Duration, float64) { v := s.visitsOf(i, rate); return v.After, v.PerSecond },
		"short connections": func(i int) (time.Duration, float64) { l := s.shareOf(i); return l.ShortAfter, l.ShortPerSecond },
	} {
		var turns []int64 // tenths of a second
		for i := range hosts {
			after, perSecond := of(i)
			for n := range 4 {
				turns = append(turns, (after+time.Duration(float64(n)/perSecond*float64(time.Second))).Round(time.Millisecond).Milliseconds()/100)
			}
		}
		slices.Sort(turns)
		if !slices.Equal(turns, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
			t.Errorf("%s come at %v tenths of a second", what, turns)
		}
	}
	if all := paceOf(experiment.Block{}, 2, hosts); all.After != 0 {
		t.Errorf("all at once, but those of one host %s later", all.After)
	}
}

// TestTwoClientHostsLoadOneRouter measures a window of each kind of load that
// two client hosts share.
func TestTwoClientHostsLoadOneRouter(t *testing.T) {
	placement, err := testbed.DefaultPlacement()
	if err != nil {
		t.Fatal(err)
	}
	const clients, mbps = 5, 40
	ctx := t.Context()
	s, err := openSide(ctx, sideConfig{
		backend:  testbed.Netns{Run: "test", LogDir: t.TempDir(), Placement: placement},
		topology: testbed.Portal{ClientHosts: 2}.Topology(),
		lab:      "a", device: dut.NewClean(), has: experiment.Side{Client: client.KindMacvlan, Clients: clients},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	if len(s.clients) != clients || len(s.loginMs) != 0 || s.clients[clients-1].N != clients {
		t.Errorf("%d clients, the last is number %d, want %d; %d log-ins at a router that has none", len(s.clients), s.clients[clients-1].N, clients, len(s.loginMs))
	}
	// The streams' server stays and takes the port of iperf3's first one, so iperf3 goes first.
	for _, c := range []struct{ kind, direction string }{
		{traffic.KindIperf3, result.Up}, {traffic.KindStreams, result.Up}, {traffic.KindStreams, result.Down},
	} {
		s.has.Traffic = experiment.Traffic{Kind: c.kind, Protocol: experiment.ProtocolTCP, Pacing: experiment.PacingPaced, BurstSegments: 44}
		if err := s.startTraffic(ctx, c.direction, mbps, 60); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		// On a busy machine less is offered, but what the router forwards arrives; in another
		// window, where its hosts could not be read at about the same time.
		var before, after reading
		var m result.Measurement
		var share float64
		for window := 0; window < 10 && (share < 0.9 || share > 1); window++ {
			if before, err = s.read(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if after, err = s.read(ctx); err != nil {
				t.Fatal(err)
			}
			m = s.measurement(before, after)
			share = m.DeliveredMbps / m.LinkMbps
		}
		if err := s.stopTraffic(ctx); err != nil {
			t.Fatal(err)
		}
		if share < 0.9 || share > 1 || m.Broken > 0 {
			t.Errorf("%s %s: %.1f of %.1f Mbit/s arrived, %d broken: %s", c.kind, c.direction, m.DeliveredMbps, m.LinkMbps, m.Broken, m.BrokenError)
		}
		for i, e := range spans(before.clients, after.clients) {
			name := s.hosts[i].Ifs[0]
			link := e.b.meter.Links[name].Sub(e.a.meter.Links[name])
			if min(link.TxBytes, link.RxBytes) == 0 || max(link.TxBytes, link.RxBytes) < 100_000 {
				t.Errorf("%s %s: client host %d sent %d and received %d bytes", c.kind, c.direction, i+1, link.TxBytes, link.RxBytes)
			}
		}
	}
}
