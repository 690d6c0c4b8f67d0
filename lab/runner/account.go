package runner

import (
	"cmp"

	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
)

// builder fills in a measurement from differences of counters.
type builder struct {
	result.Measurement
	wakeups int64 // times the router's polling threads were given a CPU
}

// addNAPI accounts the router's polling threads.
func (m *builder) addNAPI(a, b meter.Sample) {
	for name, now := range b.NAPI {
		was := a.NAPI[name]
		m.NAPINs += now.RunNs - was.RunNs
		m.WaitNs += now.WaitNs - was.WaitNs
		m.wakeups += now.Slices - was.Slices
		m.ThreadNs["napi/"+name] = now.RunNs - was.RunNs
	}
}

// addProcesses accounts the device's processes, each with all it started. What
// a process used before it was first seen belongs to the window in which it
// appeared; one that has ended stays among the sampler's.
func (m *builder) addProcesses(a, b meter.Sample) {
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
		m.ProcessNs += p.RunNs - was.RunNs
		m.WaitNs += p.WaitNs - was.WaitNs
		m.ThreadNs[p.Name] += p.RunNs - was.RunNs
	}
}

// addBroken counts the streams that had ended early.
func (m *builder) addBroken(clients []span, server endpoint) {
	for _, e := range clients {
		m.Broken += e.b.load.Broken
		m.BrokenError = cmp.Or(m.BrokenError, e.b.load.FirstError)
	}
	m.Broken = max(m.Broken, server.load.Broken) // both ends count the same streams
	m.BrokenError = cmp.Or(m.BrokenError, server.load.FirstError)
}

// addRoles sums the exact time of everything on the side's hosts, for comparison
// with what the machine says of itself.
func (m *builder) addRoles(a, b meter.Sample, clients, server []span) {
	m.RoleNs["router"] = m.RouterNs()
	m.RoleNs["client"] = hostsNs(clients)
	m.RoleNs["server"] = hostsNs(server)
	m.RoleNs["agents"] = b.AgentNs - a.AgentNs
}

func hostsNs(ends []span) (ns int64) {
	for _, e := range ends {
		ns += hostNs(e.b.meter) - hostNs(e.a.meter)
	}
	return ns
}

// hostNs is all CPU time of an endpoint so far: its polling threads, its agent
// (which is the generator) and its programs.
func hostNs(s meter.Sample) int64 {
	ns := s.AgentNs
	for _, t := range s.NAPI {
		ns += t.RunNs
	}
	for _, p := range s.Processes {
		ns += p.RunNs
	}
	return ns
}

// busiest is the CPU time of the traffic thread or process that used most,
// nanoseconds.
func busiest(ends []span) (most int64) {
	for _, e := range ends {
		for name, ns := range e.b.load.ThreadNs {
			most = max(most, ns-e.a.load.ThreadNs[name])
		}
	}
	return most
}

// machine turns ticks into the percentages mpstat prints.
func machine(s meter.Stat) result.Machine {
	total := float64(s.Total())
	if total == 0 {
		return result.Machine{}
	}
	pct := func(ticks int64) float64 { return 100 * float64(ticks) / total }
	return result.Machine{
		Usr: pct(s.User + s.Nice), Sys: pct(s.System), Soft: pct(s.SoftIRQ + s.IRQ),
		Idle: pct(s.Idle + s.IOWait), Steal: pct(s.Steal),
	}
}

func mbps(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / 1e6 / seconds
}

// ratio is a/b, 0 when there is nothing to divide by.
func ratio(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}
