package runner

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// meters is one reading of every host's meter.
type meters struct {
	router, server meter.Sample
	clients        []meter.Sample // by client host
}

// readMeters samples all hosts at the same moment.
func (s *side) readMeters(ctx context.Context) (meters, error) {
	m := meters{clients: make([]meter.Sample, len(s.hosts))}
	fns := []func() error{
		func() (err error) { m.router, err = s.lab.Router.Sample(ctx); return err },
		func() (err error) { m.server, err = s.lab.Server.Sample(ctx); return err },
	}
	for i, h := range s.hosts {
		fns = append(fns, func() (err error) { m.clients[i], err = h.Sample(ctx); return err })
	}
	if err := testbed.Together(fns...); err != nil {
		return m, fmt.Errorf("reading the meters of lab %s: %w", s.lab.Name, err)
	}
	return m, nil
}

// fates says what became of the clients.
func fates(outcomes []client.Outcome) result.Phase {
	p := result.Phase{Asked: len(outcomes)}
	slices.SortFunc(outcomes, func(a, b client.Outcome) int { return a.Num - b.Num })
	var failures, refusals []string
	for i, o := range outcomes {
		end := (o.TurnMs + o.Ms) / 1e3
		p.Seconds = max(p.Seconds, end)
		p.Tries += o.Tries
		p.LateMs = max(p.LateMs, millis(o.LateMs))
		p.Ms = append(p.Ms, millis(o.Ms))
		if o.Refusal != "" {
			p.Retried++
			refusals = append(refusals, o.Refusal)
		}
		if !o.Through() {
			p.GaveUp = append(p.GaveUp, i)
			failures = append(failures, o.Error)
			continue
		}
		p.Through++
		p.ThroughSeconds = max(p.ThroughSeconds, end)
	}
	p.Failures, p.Refusals = reasons(failures), reasons(refusals)
	if p.Through > 0 {
		times := p.ThroughMs()
		at := func(q float64) float64 { return millis(result.Quantile(times, q)) }
		p.P50Ms, p.P90Ms, p.P99Ms = at(0.5), at(0.9), at(0.99)
		p.MaxMs = times[len(times)-1]
		p.PerSecond = float64(p.Through) / p.ThroughSeconds
	}
	return p
}

// millis keeps microseconds, and no more digits than that.
func millis(ms float64) float64 { return math.Round(ms*1e3) / 1e3 }

// reasons counts texts that differ only in their figures as one, the most
// frequent first.
func reasons(texts []string) []result.Reason {
	var list []result.Reason
	at := map[string]int{}
	for _, text := range texts {
		key := result.WithoutFigures(text)
		i, seen := at[key]
		if !seen {
			i = len(list)
			at[key] = i
			list = append(list, result.Reason{First: text})
		}
		list[i].Count++
	}
	slices.SortStableFunc(list, func(a, b result.Reason) int { return b.Count - a.Count })
	return list
}

// account enters what the phase cost: until the tail for the CPU of it all, until
// its end for how busy the CPUs were.
func (p phases) account(phase *result.Phase, first, end, tail meters) {
	b := builder{Measurement: result.Measurement{ThreadNs: map[string]int64{}}}
	b.addNAPI(first.router, tail.router)
	b.addProcesses(first.router, tail.router)
	phase.NAPINs, phase.ProcessNs, phase.WaitNs, phase.ThreadNs = b.NAPINs, b.ProcessNs, b.WaitNs, b.ThreadNs
	phase.RoleNs = roles(first, tail)
	phase.Machine = machine(end.router.Stat.Sub(first.router.Stat))
	seconds := float64(end.router.MonotonicNs-first.router.MonotonicNs) / 1e9
	share := func(ns int64, cpus []int) float64 {
		if seconds <= 0 {
			return 0
		}
		return float64(ns) / 1e9 / seconds / float64(len(cpus))
	}
	until := roles(first, end)
	phase.RouterBusy = share(until[result.RoleRouter], p.placement.Router)
	phase.ClientBusy = share(until[result.RoleClient], p.placement.Endpoints)
	phase.RadiusBusy = share(until[result.RoleRadius], p.placement.Endpoints)
	phase.EndpointsBusy = phase.ClientBusy + phase.RadiusBusy + share(until[result.RoleServer]+until[result.RoleAgents], p.placement.Endpoints)
	phase.OtherBusy = otherBusy(phase.Machine, until, seconds)
	phase.Limit = limit(*phase, p.loginRate)
}

// otherBusy is the share of all CPUs that was busy and not on the lab's account.
func otherBusy(m result.Machine, lab map[string]int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	var ns int64
	for _, role := range lab {
		ns += role
	}
	return max(0, (m.Usr+m.Sys+m.Soft)/100-float64(ns)/1e9/seconds/float64(runtime.NumCPU()))
}

// roles is the CPU of each role between two readings, nanoseconds.
func roles(a, b meters) map[string]int64 {
	router := builder{Measurement: result.Measurement{ThreadNs: map[string]int64{}}}
	router.addNAPI(a.router, b.router)
	router.addProcesses(a.router, b.router)
	programs := programsNs(b.server) - programsNs(a.server)
	ns := map[string]int64{
		result.RoleRouter: router.RouterNs(),
		result.RoleAgents: b.router.AgentNs - a.router.AgentNs,
		result.RoleRadius: programs,
		result.RoleServer: hostNs(b.server) - hostNs(a.server) - programs,
		result.RoleClient: 0,
	}
	for i := range b.clients {
		ns[result.RoleClient] += hostNs(b.clients[i]) - hostNs(a.clients[i])
	}
	return ns
}

// programsNs is the CPU time of a host's programs.
func programsNs(s meter.Sample) (ns int64) {
	for _, p := range s.Processes {
		ns += p.RunNs
	}
	return ns
}

const (
	fullCPU  = 0.85 // share of their CPUs beyond which whoever uses them is held up by them
	keptPace = 0.95 // of the login rate: the clients themselves were the limit
)

// limit says what held the phase up.
func limit(p result.Phase, rate float64) string {
	endpoints := result.LimitGenerator
	if p.RadiusBusy > p.ClientBusy {
		endpoints = result.LimitRadius
	}
	switch {
	case rate > 0 && p.Through == p.Asked && p.PerSecond >= keptPace*rate:
		return result.LimitRate
	case p.EndpointsBusy >= fullCPU && p.EndpointsBusy > p.RouterBusy:
		return endpoints
	case p.RouterBusy >= fullCPU:
		return result.LimitDevice
	}
	return result.LimitWaiting
}
