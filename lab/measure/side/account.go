package side

import (
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Usage is the CPU time a router took between two samples, exact ns.
type Usage struct {
	NAPINs, ProcessNs int64            // of its polling threads; of the device's processes and all they started
	WaitNs            int64            // run-queue wait of both
	ThreadNs          map[string]int64 // by name
	Wakeups           int64            // times the polling threads were given a CPU
}

// UsageOf accounts a router's polling threads and processes. What a process used before it was
// first seen belongs to the stretch in which it appeared; one that has ended stays among the
// sampler's.
func UsageOf(a, b meter.Sample) Usage {
	u := Usage{ThreadNs: map[string]int64{}}
	for name, now := range b.NAPI {
		was := a.NAPI[name]
		u.NAPINs += now.RunNs - was.RunNs
		u.WaitNs += now.WaitNs - was.WaitNs
		u.Wakeups += now.Slices - was.Slices
		u.ThreadNs["napi/"+name] = now.RunNs - was.RunNs
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
		u.WaitNs += p.WaitNs - was.WaitNs
		u.ThreadNs[p.Name] += p.RunNs - was.RunNs
	}
	return u
}

// Roles sums the exact time of everything on the side's hosts by role: result.RoleRouter and its
// like. RADIUS is the programs of the server; apart from them "server" is its agent and polling
// thread.
func Roles(a, b Reading) map[string]int64 {
	router, was, server := UsageOf(a.Router, b.Router), endpointNs(a.Server), endpointNs(b.Server)
	ns := map[string]int64{
		result.RoleRouter: router.NAPINs + router.ProcessNs,
		result.RoleAgents: b.Router.AgentNs - a.Router.AgentNs,
		result.RoleRadius: server.programs - was.programs,
		result.RoleServer: server.host - was.host,
		result.RoleClient: 0,
	}
	for i := range b.Clients {
		before, after := endpointNs(a.Clients[i]), endpointNs(b.Clients[i])
		ns[result.RoleClient] += after.programs + after.host - before.programs - before.host
	}
	return ns
}

// endpointNs is the CPU time of an endpoint so far: of its programs, and of its polling threads
// and its agent (which is the generator).
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

// Machine turns ticks into the percentages mpstat prints.
func Machine(s meter.Stat) result.Machine {
	total := float64(s.Total())
	if total == 0 {
		return result.Machine{}
	}
	pct := func(ticks int64) float64 { return 100 * float64(ticks) / total }
	return result.Machine{
		Usr: pct(s.User + s.Nice), Sys: pct(s.System), Soft: pct(s.SoftIRQ + s.IRQ), Idle: pct(s.Idle + s.IOWait), Steal: pct(s.Steal),
	}
}

// Mbps is a rate, Mbit/s; 0 of no time.
func Mbps(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / 1e6 / seconds
}
