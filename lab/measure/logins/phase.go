package logins

import (
	"context"
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
)

// phase measures one phase of all clients. It reads the meters before the phase, at its end, and after the tail. do
// runs the phase on one client host.
func (b *openBlock) phase(ctx context.Context, do func(int, bench.ClientHost) ([]client.Outcome, error)) (
	p Phase, err error) {
	first, err := b.ReadMeters(ctx)
	if err != nil {
		return p, err
	}
	outcomes, err := b.Outcomes(do)
	if err != nil {
		return p, err
	}
	end, err := b.ReadMeters(ctx)
	if err == nil {
		err = bench.Sleep(ctx, phaseTail)
	}
	if err != nil {
		return p, err
	}
	tail, err := b.ReadMeters(ctx)
	if err != nil {
		return p, err
	}
	p = phaseOf(outcomes)
	addCost(&p, b.Placement, first, end, tail)
	p.Limit = limit(p, rateOf(b.Block))
	return p, nil
}

// phaseOf summarises the clients' outcomes, without the phase's cost.
func phaseOf(outcomes []client.Outcome) Phase {
	p := Phase{Asked: len(outcomes)}
	slices.SortFunc(outcomes, func(a, b client.Outcome) int { return a.Num - b.Num })
	var failures, refusals []string
	for i, o := range outcomes {
		end := (o.TurnMs + o.Ms) / 1e3
		p.Seconds = max(p.Seconds, end)
		p.Tries += o.Tries
		p.LateMs = max(p.LateMs, bench.Millis(o.LateMs))
		p.Ms = append(p.Ms, bench.Millis(o.Ms))
		if o.Refusal != "" {
			p.Retried++
			refusals = append(refusals, o.Refusal)
		}
		if !o.Succeeded() {
			p.GaveUp = append(p.GaveUp, i)
			failures = append(failures, o.Error)
			continue
		}
		p.Through++
		p.ThroughSeconds = max(p.ThroughSeconds, end)
	}
	p.Failures, p.Refusals = bench.Reasons(failures), bench.Reasons(refusals)
	if p.Through > 0 {
		times := p.ThroughMs()
		quantile := func(q float64) float64 { return bench.Millis(result.Quantile(times, q)) }
		p.P50Ms, p.P90Ms, p.P99Ms = quantile(0.5), quantile(0.9), quantile(0.99)
		p.MaxMs = times[len(times)-1]
		p.PerSecond = float64(p.Through) / p.ThroughSeconds
	}
	return p
}

// addCost adds the cost of the phase. CPU times count until the end of the tail. Busy shares count until the phase's
// end.
func addCost(phase *Phase, cpus backend.Placement, first, end, tail bench.Snapshot) {
	router := bench.UsageOf(first.Router, tail.Router)
	phase.NAPINs, phase.ProcessNs, phase.WaitNs, phase.ThreadNs = router.NAPINs, router.ProcessNs, router.WaitNs,
		router.ThreadNs
	phase.RoleNs = bench.Roles(first, tail)
	phase.Machine = bench.Machine(end.Router.Stat.Sub(first.Router.Stat))
	seconds := float64(end.Router.MonotonicNs-first.Router.MonotonicNs) / 1e9
	share := func(ns int64, cpus []int) float64 {
		if seconds <= 0 {
			return 0
		}
		return float64(ns) / 1e9 / seconds / float64(len(cpus))
	}
	until := bench.Roles(first, end)
	left := bench.RouterShare(first, end)
	if first.Slow != nil {
		phase.RouterShare = left
	}
	phase.RouterBusy = share(until[result.RoleRouter], cpus.Router) / max(left, 0.01)
	phase.ClientBusy = share(until[result.RoleClient], cpus.Endpoints)
	phase.RadiusBusy = share(until[result.RoleRadius], cpus.Endpoints)
	phase.EndpointsBusy = phase.ClientBusy + phase.RadiusBusy + share(until[result.RoleServer], cpus.Endpoints)
	if !cpus.Apart { // all agents run on the endpoints' CPUs
		phase.EndpointsBusy += share(until[result.RoleAgents], cpus.Endpoints)
	} else { // the endpoints are on another machine: they use none of the routers' CPUs
		maps.DeleteFunc(until, func(role string, _ int64) bool {
			return role != result.RoleRouter && role != result.RoleAgents
		})
	}
	until["slowing"] = int64((1 - left) * seconds * 1e9 * float64(len(cpus.Router)))
	phase.OtherBusy = otherBusy(phase.Machine, until, seconds, end.Router.CPUs)
}

// otherBusy returns the share of all CPUs' time that programs outside the lab used. lab has the lab's CPU time, ns, by
// role.
func otherBusy(m result.Machine, lab map[string]int64, seconds float64, cpus int) float64 {
	if seconds <= 0 || cpus == 0 {
		return 0
	}
	var ns int64
	for _, role := range lab {
		ns += role
	}
	return max(0, (m.Usr+m.Sys+m.Soft)/100-float64(ns)/1e9/seconds/float64(cpus))
}

const (
	fullCPU       = 0.85 // busy share of a host's CPUs from which they limit the phase
	keptPaceShare = 0.95 // share of the login rate from which nothing but the rate limits the phase
)

// limit returns what limited the speed of the phase: one of the constants LimitRate to LimitWaiting.
func limit(p Phase, rate float64) string {
	endpoints := LimitGenerator
	if p.RadiusBusy > p.ClientBusy {
		endpoints = LimitRadius
	}
	switch {
	case rate > 0 && p.Through == p.Asked && p.PerSecond >= keptPaceShare*rate:
		return LimitRate
	case p.EndpointsBusy >= fullCPU && p.EndpointsBusy > p.RouterBusy:
		return endpoints
	case p.RouterBusy >= fullCPU:
		return LimitDevice
	}
	return LimitWaiting
}
