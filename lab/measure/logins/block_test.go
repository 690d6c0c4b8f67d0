package logins

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file check the figures and self-tests of a login storm. A storm has two phases: all clients lease
// an address, and then all log in.

// TestPhaseSumsUpTheClients: phaseOf computes a phase's figures from the outcomes of its clients.
func TestPhaseSumsUpTheClients(t *testing.T) {
	// Four clients at two a second, in any order: the third gives up.
	outcomes := []client.Outcome{
		{Num: 3, TurnMs: 1000, Ms: 9000, Tries: 8, Refusal: "no answer from 10.1.0.7",
			Error: "8 attempts: no answer from 10.1.0.7"},
		{Num: 4, TurnMs: 1500, Ms: 200, LateMs: 12.3456, Tries: 1},
		{Num: 1, Ms: 100.0004, Tries: 1},
		{Num: 2, TurnMs: 500, Ms: 300, Tries: 3, Refusal: "no answer from 10.1.0.9"},
	}
	p := phaseOf(outcomes)
	if p.Asked != 4 || p.Through != 3 || p.Tries != 13 || p.Retried != 2 || !slices.Equal(p.GaveUp, []int{2}) {
		t.Errorf("counts: %+v", p)
	}
	if !slices.Equal(p.Ms, []float64{100, 300, 9000, 200}) || p.LateMs != 12.346 {
		t.Errorf("times %v, latest %g", p.Ms, p.LateMs)
	}
	// Turns are 0, 0.5, 1 and 1.5 s: the fourth is through at 1.7, the third gives up at 10.
	if p.ThroughSeconds != 1.7 || p.Seconds != 10 || math.Abs(p.PerSecond-3/1.7) > 1e-12 {
		t.Errorf("%g s, %g s, %g a second", p.ThroughSeconds, p.Seconds, p.PerSecond)
	}
	if p.P50Ms != 200 || p.MaxMs != 300 || p.P99Ms != 298 {
		t.Errorf("p50 %g, p99 %g, max %g", p.P50Ms, p.P99Ms, p.MaxMs)
	}
	if len(p.Failures) != 1 || len(p.Refusals) != 1 ||
		p.Refusals[0] != (result.Reason{First: "no answer from 10.1.0.9", Count: 2}) {
		t.Errorf("failures %+v, refusals %+v", p.Failures, p.Refusals)
	}
	none := phaseOf([]client.Outcome{{Num: 1, Ms: 5, Error: "no"}})
	if none.PerSecond != 0 || none.P50Ms != 0 || none.Through != 0 || none.Seconds != 0.005 {
		t.Errorf("nobody through: %+v", none)
	}
}

// TestLimitSaysWhoseCPUWasFull: a phase was limited by the rate at which clients arrive, by a host whose CPU was full,
// or by waiting. The Busy fields are shares of the CPUs of routers or endpoints (clients and server).
func TestLimitSaysWhoseCPUWasFull(t *testing.T) {
	for _, tt := range []struct {
		phase Phase
		rate  float64 // clients that arrive a second; 0: all at once
		want  string
	}{
		{Phase{Asked: 9, Through: 9, PerSecond: 49, RouterBusy: 0.9}, 50, LimitRate},
		{Phase{Asked: 9, Through: 8, PerSecond: 49, RouterBusy: 0.9}, 50, LimitDevice},
		{Phase{Asked: 9, Through: 9, PerSecond: 20, RouterBusy: 0.9}, 50, LimitDevice},
		{Phase{RouterBusy: 0.9, EndpointsBusy: 0.95, ClientBusy: 0.7, RadiusBusy: 0.2}, 0, LimitGenerator},
		{Phase{RouterBusy: 0.9, EndpointsBusy: 0.95, ClientBusy: 0.3, RadiusBusy: 0.6}, 0, LimitRadius},
		{Phase{RouterBusy: 0.96, EndpointsBusy: 0.95, ClientBusy: 0.9}, 0, LimitDevice},
		{Phase{RouterBusy: 0.5, EndpointsBusy: 0.5, ClientBusy: 0.5}, 0, LimitWaiting},
	} {
		if got := limit(tt.phase, tt.rate); got != tt.want {
			t.Errorf("%+v at %g a second: %s, want %s", tt.phase, tt.rate, got, tt.want)
		}
	}
}

// TestAccountSplitsThePhaseByRole: addCost computes CPU times by role until the end of the phase's tail, and the busy
// shares of the CPUs until the phase's end. sample is the reading of a host's meter at a time, with the CPU times of
// its agent, program and polling thread. at is a snapshot of the lab, with the CPU times of the router's program, the
// RADIUS server and the clients' agent.
func TestAccountSplitsThePhaseByRole(t *testing.T) {
	sample := func(offset time.Duration, agent, program, napi time.Duration) meter.Sample {
		return meter.Sample{
			MonotonicNs: int64(offset), AgentNs: int64(agent), NAPI: map[string]meter.Thread{"r0": {RunNs: int64(napi)}},
			Processes: []meter.Process{{PID: 7, Name: "daemon", RunNs: int64(program)}},
		}
	}
	const s = time.Second
	at := func(offset, router, radius, agent time.Duration) bench.Snapshot {
		return bench.Snapshot{
			Router: sample(offset, 0, router, 0), Server: bench.Endpoint{Meter: sample(offset, 0, radius, 0)},
			Clients: []bench.Endpoint{{Meter: sample(offset, agent, 0, 0)}},
		}
	}
	phase := Phase{Asked: 1, Through: 1}
	addCost(&phase, backend.Placement{Router: []int{1}, Endpoints: []int{0}}, at(0, 0, 0, 0), at(2*s, s, s/5, s*3/2),
		at(3*s, s*5/4, s/4, s*3/2))
	if phase.ProcessNs != int64(s*5/4) || phase.RoleNs[result.RoleRouter] != int64(s*5/4) ||
		phase.RoleNs[result.RoleRadius] != int64(s/4) || phase.RoleNs[result.RoleServer] != 0 {
		t.Errorf("until the tail: %d ns, by role %v", phase.ProcessNs, phase.RoleNs)
	}
	if phase.RouterBusy != 0.5 || phase.ClientBusy != 0.75 || phase.RadiusBusy != 0.1 ||
		math.Abs(phase.EndpointsBusy-0.85) > 1e-12 || limit(phase, 0) != LimitGenerator {
		t.Errorf("until the end: router %g, clients %g, RADIUS %g, endpoints %g: %s", phase.RouterBusy, phase.ClientBusy,
			phase.RadiusBusy, phase.EndpointsBusy, limit(phase, 0))
	}
	// On slowed CPUs, busy is a share of the CPU time that was left, and the slowing thread is not another program.
	first, end := at(0, 0, 0, 0), at(2*s, s/2, 0, 0)
	first.Slow, end.Slow = []burn.CPUTime{{CPU: 1}},
		[]burn.CPUTime{{CPU: 1, AtNs: int64(2 * s), BurnedNs: int64(s * 3 / 2)}}
	end.Router.CPUs, end.Router.Stat = 2, meter.Stat{User: 100, Idle: 100}
	addCost(&phase, backend.Placement{Router: []int{1}, Endpoints: []int{0}}, first, end, end)
	if phase.RouterShare != 0.25 || phase.RouterBusy != 1 || phase.OtherBusy > 1e-9 {
		t.Errorf("slowed: share %g, router %g, others %g", phase.RouterShare, phase.RouterBusy, phase.OtherBusy)
	}
	if got := otherBusy(result.Machine{Usr: 100}, map[string]int64{}, 1, 2); got != 1 {
		t.Errorf("a machine that other programs use alone: %g", got)
	}
	if got := otherBusy(result.Machine{Usr: 1}, map[string]int64{"x": int64(100 * s)}, 1, 2); got != 0 {
		t.Errorf("/proc/stat, which counts in ticks, saw less than the lab used: %g", got)
	}
	// CPU time of endpoints on other machines does not count for the routers' machine.
	first, end = at(0, 0, 0, 0), at(2*s, s/2, 0, s)
	end.Router.CPUs, end.Router.Stat, end.Router.AgentNs = 1, meter.Stat{User: 100, Idle: 100}, int64(s/4)
	addCost(&phase, backend.Placement{Router: []int{0}, Endpoints: []int{0}, Apart: true}, first, end, end)
	if phase.OtherBusy != 0.125 || phase.ClientBusy != 0.5 || phase.EndpointsBusy != 0.5 {
		t.Errorf("apart: others %g, clients %g, endpoints %g", phase.OtherBusy, phase.ClientBusy, phase.EndpointsBusy)
	}
}

// TestStormsOfBadMachinesAreRejected: a storm is rejected if the lab or its machine was at fault. A fault of the device
// is a result.
func TestStormsOfBadMachinesAreRejected(t *testing.T) {
	good := func() Storm {
		lease := Phase{Asked: 2, Through: 2, Seconds: 1, ThreadNs: map[string]int64{"napi/r0": 5}}
		return Storm{Lease: lease, Login: Phase{Asked: 2, Through: 1, Seconds: 1, Failures: []result.Reason{{
			First: "refused by the portal", Count: 1}}}}
	}
	for name, tt := range map[string]struct {
		spoil func(*Storm, *evidence)
		want  string // part of the only reason to reject the storm; empty: it is accepted
	}{
		"good":        {func(*Storm, *evidence) {}, ""},
		"device died": {func(_ *Storm, e *evidence) { e.ended.Device = []string{"chilli ended"} }, ""},
		"RADIUS died": {
			func(_ *Storm, e *evidence) { e.ended.Lab = []string{"freeradius ended"} }, "lab: freeradius ended"},
		"no polling thread": {
			func(s *Storm, _ *evidence) { s.Lease.ThreadNs["napi/r0"] = 0 }, "polling thread napi/r0 did not run"},
		"steal":          {func(s *Storm, _ *evidence) { s.Login.Machine.Steal = 30 }, "30.0 % steal during the logins"},
		"other programs": {func(s *Storm, _ *evidence) { s.Login.OtherBusy = 0.4 }, "other programs used 40 %"},
		"not slowed as asked for": {func(s *Storm, e *evidence) {
			s.Lease.RouterShare, s.Login.RouterShare, e.speed = 0.25, 0.5,
				0.25
		}, "instead of 25.0 %"},
		"too short to tell": {func(s *Storm, _ *evidence) { s.Login.OtherBusy, s.Login.Seconds = 0.4, 0.04 }, ""},
		"own limit": {func(s *Storm, _ *evidence) {
			s.Login.Refusals = []result.Reason{{First: "dialling: too many open files", Count: 3}}
		}, "3 clients met a limit of its own: dialling: too many open files: raise nofile"},
		"neighbours": {func(_ *Storm, e *evidence) { e.overflows = 9 }, "neighbour table was full 9 times"},
	} {
		s, e := good(), evidence{polling: "napi/r0", cpus: 2}
		tt.spoil(&s, &e)
		rejects, err := s.judge(e)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && len(rejects) != 0 ||
			tt.want != "" && (len(rejects) != 1 || !strings.Contains(rejects[0], tt.want)) {
			t.Errorf("%s: rejects %v, want %q", name, rejects, tt.want)
		}
	}
}

// TestClientsThatCannotLogIn: checkClients refuses a device without a login, and one whose network has too few
// addresses for n clients.
func TestClientsThatCannotLogIn(t *testing.T) {
	in := client.Admission{Kind: client.AdmitForm} // clients log in with a form
	for _, tt := range []struct {
		n      int
		traits dut.Traits
		want   string
	}{
		{250, dut.Traits{Admission: in}, ""},
		{251, dut.Traits{Admission: in}, "192.168.137.0/24 has room for 250 clients, not for 251"},
		{4000, dut.Traits{Admission: in, LAN: netip.MustParsePrefix("10.1.0.0/16")}, ""},
		{1, dut.Traits{}, "do not log in themselves"},
	} {
		err := checkClients(tt.n, tt.traits)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d clients over %v: %v, want %q", tt.n, tt.traits, err, tt.want)
		}
	}
}

// TestPaceIsSharedByClientHosts: each host takes its part of the rate, and begins later than the one before.
func TestPaceIsSharedByClientHosts(t *testing.T) {
	b := experiment.Block{Cell: result.NewCell(result.Clients, 30, LoginRate, 10)}
	p := paceOf(b, 2, 3)
	if p.PerSecond != 10.0/3 || p.After != 200*time.Millisecond || p.Patience != patience+3*time.Second {
		t.Errorf("%+v", p)
	}
	if all := paceOf(experiment.Block{}, 2, 3); all.After != 0 || all.PerSecond != 0 {
		t.Errorf("all at once: %+v", all)
	}
}
