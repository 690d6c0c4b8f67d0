package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// Snapshot has the values of all meters of a lab at one moment.
type Snapshot struct {
	Router  meter.Sample   // sum of all metered hosts: see Sum
	Routers []meter.Sample // of each, in the order of Bench.Routers
	Clients []Endpoint     // by client host
	Server  Endpoint
	RTT     rtt.Times      // since the last snapshot; under traffic only
	Slow    []burn.CPUTime // of the routers' CPUs where these are slowed down
}

// Endpoint has the values of a host that sends or receives the traffic.
type Endpoint struct {
	Meter meter.Sample
	Load  agent.TrafficStats // under traffic only
}

// ReadMeters samples the meters of all hosts at the same moment. Each host divides by its own
// clock, so a few milliseconds between them do not matter.
func (s *Bench) ReadMeters(ctx context.Context) (Snapshot, error) { return s.read(ctx, false) }

// Read is ReadMeters with the counters of the traffic and its round-trip times.
func (s *Bench) Read(ctx context.Context) (Snapshot, error) { return s.read(ctx, true) }

func (s *Bench) read(ctx context.Context, underTraffic bool) (r Snapshot, err error) {
	r.Clients = make([]Endpoint, len(s.Hosts))
	meters := []func() error{func() (err error) { r.Routers, err = s.SampleRouters(ctx); return err }}
	if s.slowed != nil {
		meters = append(meters, func() (err error) { r.Slow, err = s.slowed.ReadSlow(ctx); return err })
	}
	var loads []func() error
	ask := func(h *backend.Host, e *Endpoint) {
		meters = append(meters, func() (err error) { e.Meter, err = h.Sample(ctx); return err })
		loads = append(loads, func() (err error) { e.Load, err = h.TrafficStats(ctx); return err })
	}
	for i, h := range s.Hosts {
		ask(h.Host, &r.Clients[i])
	}
	ask(s.Server, &r.Server)
	if underTraffic {
		loads = append(loads, func() (err error) { r.RTT, err = s.Hosts[0].TakeRTT(ctx); return err })
		meters = append(meters, loads...)
	}
	if err := backend.Together(meters...); err != nil {
		return r, fmt.Errorf("reading the meters of lab %s: %w", s.Lab.Name, err)
	}
	r.Router = Sum(r.Routers)
	return r, nil
}

// ReadTwice takes a snapshot of all labs at the same time, and another one when length has passed.
func ReadTwice(ctx context.Context, length time.Duration, sides ...*Bench) (before, after []Snapshot, err error) {
	return readAround(ctx, length, func() error { return nil }, sides...)
}

// readAround is ReadTwice that calls begin after the first snapshot.
func readAround(ctx context.Context, length time.Duration, begin func() error, sides ...*Bench) (
	before, after []Snapshot, err error) {
	take := func() ([]Snapshot, error) {
		return Each(sides, func(_ int, s *Bench) (Snapshot, error) { return s.Read(ctx) })
	}
	// All meters are read at once, and each host divides by its own clock. So a host that takes longer (a hundred
	// programs on the client host) lengthens no window.
	start := time.Now()
	if before, err = take(); err != nil {
		return nil, nil, err
	}
	if err := begin(); err != nil {
		return nil, nil, err
	}
	if err := Sleep(ctx, time.Until(start.Add(length))); err != nil {
		return nil, nil, err
	}
	after, err = take()
	return before, after, err
}

// RouterShare is the share of CPU time that slowed routers had between two snapshots. It is 1 for routers that are not
// slowed.
func RouterShare(a, b Snapshot) float64 {
	var burned, cpus float64
	for i := range b.Slow {
		burned, cpus = burned+burn.Share(a.Slow[i], b.Slow[i]), cpus+1
	}
	return 1 - burned/max(cpus, 1)
}

// Usage is the CPU time a router took between two samples, exact ns.
type Usage struct {
	NAPINs, ProcessNs int64            // of its polling threads; of the device's processes and all they started
	KernelNs          int64            // of ProcessNs, that of the kernel's threads
	WaitNs            int64            // run-queue wait of both
	ThreadNs          map[string]int64 // by name
	Wakeups           int64            // times the polling threads were given a CPU
}

// UsageOf sums the CPU time of a router's polling threads and processes between two samples. A
// process that first appears in b counts with all its time; the sampler keeps processes that have
// ended.
func UsageOf(a, b meter.Sample) Usage {
	u := Usage{ThreadNs: map[string]int64{}}
	for name, now := range b.NAPI {
		earlier := a.NAPI[name]
		u.NAPINs += now.RunNs - earlier.RunNs
		u.WaitNs += now.WaitNs - earlier.WaitNs
		u.Wakeups += now.Slices - earlier.Slices
		u.ThreadNs["napi/"+name] = now.RunNs - earlier.RunNs
	}
	type key struct {
		pid   int
		start int64
	}
	before := map[key]meter.Process{}
	for _, p := range a.Processes {
		before[key{p.PID, p.Start}] = p
	}
	for _, p := range b.Processes {
		was := before[key{p.PID, p.Start}]
		u.ProcessNs += p.RunNs - was.RunNs
		if p.OfKernel() {
			u.KernelNs += p.RunNs - was.RunNs
		}
		u.WaitNs += p.WaitNs - was.WaitNs
		u.ThreadNs[p.Name] += p.RunNs - was.RunNs
	}
	return u
}

// Roles sums the exact CPU time of the lab's hosts by role: result.RoleRouter and others. The role RADIUS has the
// programs of the server. The role of the server has its agent and its polling thread.
func Roles(a, b Snapshot) map[string]int64 {
	router, earlier, server := UsageOf(a.Router, b.Router), endpointNs(a.Server), endpointNs(b.Server)
	ns := map[string]int64{
		result.RoleRouter: router.NAPINs + router.ProcessNs,
		result.RoleAgents: b.Router.AgentNs - a.Router.AgentNs,
		result.RoleRadius: server.programs - earlier.programs,
		result.RoleServer: server.host - earlier.host,
		result.RoleClient: 0,
	}
	for i := range b.Clients {
		before, after := endpointNs(a.Clients[i]), endpointNs(b.Clients[i])
		ns[result.RoleClient] += after.programs + after.host - before.programs - before.host
	}
	return ns
}

// endpointNs returns the CPU time of an endpoint so far: of its programs, and of the host, which is its polling threads
// and its agent. The agent generates the traffic.
func endpointNs(e Endpoint) (ns struct{ programs, host int64 }) {
	for _, p := range e.Meter.Processes {
		ns.programs += p.RunNs
	}
	ns.host = e.Meter.AgentNs
	for _, t := range e.Meter.NAPI {
		ns.host += t.RunNs
	}
	return ns
}

// Busiest is the CPU time that the busiest traffic thread or process of any end had between two snapshots, ns.
func Busiest(a, b Snapshot) (most int64) {
	before := append(slices.Clone(a.Clients), a.Server)
	for i, e := range append(slices.Clone(b.Clients), b.Server) {
		for name, ns := range e.Load.ThreadNs {
			most = max(most, ns-before[i].Load.ThreadNs[name])
		}
	}
	return most
}

// Machine returns ticks as the percentages that mpstat prints.
func Machine(s meter.Stat) result.Machine {
	total := float64(s.Total())
	if total == 0 {
		return result.Machine{}
	}
	pct := func(ticks int64) float64 { return 100 * float64(ticks) / total }
	return result.Machine{
		Usr: pct(s.User + s.Nice), Sys: pct(s.System), Soft: pct(s.SoftIRQ + s.IRQ), Idle: pct(s.Idle + s.IOWait),
		Steal: pct(s.Steal),
	}
}

// Mbps is the rate of bytes over seconds, Mbit/s. It is 0 if seconds is.
func Mbps(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / 1e6 / seconds
}

// Millis keeps three digits behind the point: of milliseconds these are whole microseconds.
func Millis(ms float64) float64 { return math.Round(ms*1e3) / 1e3 }

// Reasons counts texts, the most frequent first. Texts that differ only in their figures count as one.
func Reasons(texts []string) []result.Reason {
	var list []result.Reason
	index := map[string]int{}
	for _, text := range texts {
		key := result.DigitsHidden(text)
		i, seen := index[key]
		if !seen {
			i = len(list)
			index[key], list = i, append(list, result.Reason{First: text})
		}
		list[i].Count++
	}
	slices.SortStableFunc(list, func(a, b result.Reason) int { return b.Count - a.Count })
	return list
}
