package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
)

func TestClientsAreSharedOutEvenly(t *testing.T) {
	hosts := []*backend.Host{{Name: "one"}, {Name: "two"}, {Name: "three"}}
	for _, c := range []struct {
		clients int
		want    []ClientHost
	}{
		{7, []ClientHost{{hosts[0], 1, 2}, {hosts[1], 3, 2}, {hosts[2], 5, 3}}},
		{3, []ClientHost{{hosts[0], 1, 1}, {hosts[1], 2, 1}, {hosts[2], 3, 1}}},
		{1, []ClientHost{{hosts[2], 1, 1}}},
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

// TestClientHostsTakeTurns: events at a rate that several client hosts share, such as guests and short connections, are
// as evenly spaced as those of one host.
func TestClientHostsTakeTurns(t *testing.T) {
	const rate, hosts = 10.0, 3
	s := &Bench{Guests: 30, Hosts: shareClients(make([]*backend.Host, hosts), 30),
		Load: agent.Traffic{Clients: 30, ShortPerSecond: rate}}
	for what, of := range map[string]func(i int) (after time.Duration, perSecond float64){
		"all": func(i int) (time.Duration, float64) { return StartOffset(i, rate), rate / hosts },
		"guests": func(i int) (time.Duration, float64) {
			v := s.GuestVisits(i, rate)
			return v.After, v.PerSecond
		},
		"short connections": func(i int) (time.Duration, float64) {
			l := s.shareOf(i)
			return l.ShortAfter, l.ShortPerSecond
		},
	} {
		var turns []int64 // tenths of a second
		for i := range hosts {
			after, perSecond := of(i)
			for n := range 4 {
				turns = append(turns,
					(after+time.Duration(float64(n)/perSecond*float64(time.Second))).Round(time.Millisecond).Milliseconds()/100)
			}
		}
		slices.Sort(turns)
		if !slices.Equal(turns, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
			t.Errorf("%s come at %v tenths of a second", what, turns)
		}
	}
	if StartOffset(2, 0) != 0 {
		t.Error("all at once, but those of one host later")
	}
	few := &Bench{Guests: 2, Hosts: shareClients(make([]*backend.Host, hosts), 30), Side: experiment.Side{Clients: 30}}
	for i, want := range []client.Churn{{}, {PerSecond: 5}, {PerSecond: 5, After: 100 * time.Millisecond}} {
		if got := few.GuestVisits(i, rate); got.PerSecond != want.PerSecond || want.PerSecond > 0 && got.After != want.After {
			t.Errorf("of two guests on three hosts, those of host %d come %g a second after %s; want %g after %s", i,
				got.PerSecond, got.After, want.PerSecond, want.After)
		}
	}
}

func TestProcessesAreAccountedOnce(t *testing.T) {
	before := meter.Sample{Processes: []meter.Process{
		{PID: 10, Start: 1, Name: "gw", RunNs: 100, WaitNs: 5},
		{PID: 12, Start: 3, Name: "old", RunNs: 7},
	}}
	after := meter.Sample{Processes: []meter.Process{
		{PID: 10, Start: 1, Name: "gw", RunNs: 150, WaitNs: 9},
		{PID: 12, Start: 3, Name: "old", RunNs: 7},
		{PID: 12, Start: 9, Name: "new", RunNs: 30}, // the same id, another process
		{PID: 13, Start: 8, Name: "gw", RunNs: 20},
	}}
	m := UsageOf(before, after)
	if m.ProcessNs != 50+30+20 || m.WaitNs != 4 {
		t.Errorf("processes used %d ns and waited %d, want 100 and 4", m.ProcessNs, m.WaitNs)
	}
	if diff := cmp.Diff(map[string]int64{"gw": 70, "old": 0, "new": 30}, m.ThreadNs); diff != "" {
		t.Errorf("by name (-want +got):\n%s", diff)
	}
}

func TestNotAdmittedCountsTheClientsThatCameThrough(t *testing.T) {
	outcomes := []client.Outcome{
		{Num: 1}, {Num: 2, Error: "the portal hangs"}, {Num: 3}, {Num: 4, Error: "the portal hangs"}}
	if err := notAdmittedError("log in", true, outcomes[:1]); err != nil {
		t.Errorf("all are in: %v", err)
	}
	err := notAdmittedError("log in", true, outcomes)
	const text = "2 of 4 clients could log in: client 2: the portal hangs (and 1 more client)"
	if e := new(NotAdmitted); !errors.As(err, &e) || !e.DeviceFault || err.Error() != text {
		t.Errorf("got %v, want %s", err, text)
	}
}

// TestKernelThreadsAreShared: the time of the machine's kernel threads that work for two gateways counts half for each.
func TestKernelThreadsAreShared(t *testing.T) {
	const kthreadd = 2
	before := []meter.Sample{{}, {}}
	after := []meter.Sample{
		{NAPI: map[string]meter.Thread{"r0": {RunNs: 5}},
			Processes: []meter.Process{{PID: 9, Name: "kworker", Parent: kthreadd, RunNs: 8}}},
		{NAPI: map[string]meter.Thread{"r1": {RunNs: 7}}, Processes: []meter.Process{{PID: 10, Name: "openvpn", RunNs: 3}}},
	}
	got := UsageOfEach(before, after)
	if got[0].NAPINs+got[0].ProcessNs != 5+4 || got[1].NAPINs+got[1].ProcessNs != 7+3+4 || got[0].KernelNs != 4 ||
		got[1].KernelNs != 4 {
		t.Errorf("%+v", got)
	}
}
