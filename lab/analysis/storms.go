package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// StormCell is one device with one number of clients that came at one rate. Its
// intervals are over storms, each of which had a lab of its own.
type StormCell struct {
	DUT       string `json:"dut"`
	Clients   int    `json:"clients"`
	LoginRate Number `json:"login_rate"` // clients a second; 0: all at once
	Storms    int    `json:"storms"`     // accepted
	Rejected  int    `json:"rejected"`
	Redone    int    `json:"redone"`
	Died      int    `json:"died"` // accepted storms in which a program of the device ended by itself
	// DeviceLeases: the DUT leased the addresses; otherwise the lab did, and Lease
	// says nothing of the DUT.
	DeviceLeases bool       `json:"device_leases"`
	Lease        StormPhase `json:"lease"`
	Login        StormPhase `json:"login"`

	IdlePSSMiB   Estimate `json:"idle_pss_mib"` // before the first client
	LoggedPSSMiB Estimate `json:"logged_pss_mib"`
	// PSSKiBPerClient is by how much memory grew from the first lease to the last
	// login, over the clients that were in.
	PSSKiBPerClient Estimate `json:"pss_kib_per_client"`

	Deaths  []Tally `json:"deaths"`
	Rejects []Tally `json:"rejects"`
}

// StormPhase is what the clients of a cell's storms did together: lease, or log in.
type StormPhase struct {
	Asked     int      `json:"asked"`   // clients of all storms
	Through   int      `json:"through"` // those of them that got through
	PerSecond Estimate `json:"per_second"`
	P50Ms     Estimate `json:"p50_ms"`
	P90Ms     Estimate `json:"p90_ms"`
	P99Ms     Estimate `json:"p99_ms"`
	MaxMs     Estimate `json:"max_ms"`
	LateMs    Estimate `json:"late_ms"`

	Tries    int     `json:"tries"`
	Retried  int     `json:"retried"`
	Failures []Tally `json:"failures"` // why clients gave up
	Refusals []Tally `json:"refusals"` // why first attempts failed

	// CPU a client that got through, ms.
	RouterMs  Estimate `json:"router_ms"`
	ProcessMs Estimate `json:"process_ms"` // of it the device's processes
	ClientMs  Estimate `json:"client_ms"`
	RadiusMs  Estimate `json:"radius_ms"`
	// Busy share of the CPUs each may use, %.
	RouterBusyPct    Estimate `json:"router_busy_pct"`
	EndpointsBusyPct Estimate `json:"endpoints_busy_pct"`
	ClientBusyPct    Estimate `json:"client_busy_pct"`
	RadiusBusyPct    Estimate `json:"radius_busy_pct"`

	Limits []Tally `json:"limits"` // what held the storms up, most frequent first
	// Curve is the share of all clients that were through after so long.
	Curve []CurvePoint `json:"curve"`
}

// CurvePoint is one point of a distribution.
type CurvePoint struct {
	Ms       Number `json:"ms"`
	SharePct Number `json:"share_pct"` // of the clients that asked
}

// Limit is what held most storms up, empty when there were none.
func (p StormPhase) Limit() string {
	if len(p.Limits) == 0 {
		return ""
	}
	return p.Limits[0].Text
}

// limitedBy reports whether any storm was held up by that.
func (p StormPhase) limitedBy(limit string) bool {
	return slices.ContainsFunc(p.Limits, func(t Tally) bool { return t.Text == limit })
}

// Failed is how many clients gave up.
func (p StormPhase) Failed() int { return p.Asked - p.Through }

// stormKey is a cell of storms.
type stormKey struct {
	dut     string
	clients int
	rate    float64
}

// summariseStorms fills in what a run of storms has.
func (s *Summary) summariseStorms(run result.Run, opts Options) {
	cells := map[stormKey][]result.Storm{}
	reasons := tally{}
	for _, st := range run.Storms {
		s.Trials.addAttempt(st.Attempt, st.Accepted)
		key := stormKey{st.DUT, st.Clients, st.LoginRate}
		cells[key] = append(cells[key], st)
		reasons.addRejects(st.Accepted, st.Rejects)
	}
	s.Rejects = reasons.sorted()
	keys := slices.SortedFunc(maps.Keys(cells), func(a, b stormKey) int {
		return cmp.Or(cmp.Compare(a.clients, b.clients), cmp.Compare(a.rate, b.rate), cmp.Compare(a.dut, b.dut))
	})
	for _, key := range keys {
		s.Storms = append(s.Storms, summariseStorm(key, cells[key], opts))
	}
}

// summariseStorm computes one cell from all its storms, rejected ones included.
func summariseStorm(key stormKey, storms []result.Storm, opts Options) StormCell {
	c := StormCell{DUT: key.dut, Clients: key.clients, LoginRate: Number(key.rate)}
	var accepted []result.Storm
	deaths, rejects := tally{}, tally{}
	for _, st := range storms {
		if st.Attempt > 0 {
			c.Redone++
		}
		rejects.addRejects(st.Accepted, st.Rejects)
		if !st.Accepted {
			c.Rejected++
			continue
		}
		accepted = append(accepted, st)
		c.DeviceLeases = st.DeviceLeases
		if len(st.Died) > 0 {
			c.Died++
		}
		for _, text := range st.Died {
			deaths.add(result.WithoutFigures(text), text)
		}
	}
	c.Storms, c.Deaths, c.Rejects = len(accepted), deaths.sorted(), rejects.sorted()
	over := func(within scale, of func(result.Storm) float64) Estimate {
		values := make([]float64, 0, len(accepted))
		for _, st := range accepted {
			values = append(values, of(st))
		}
		return within.estimate(values, opts.Confidence)
	}
	c.IdlePSSMiB = over(amounts, func(st result.Storm) float64 { return positive(st.IdlePSSMiB) })
	c.LoggedPSSMiB = over(amounts, func(st result.Storm) float64 { return positive(st.LoggedPSSMiB) })
	c.PSSKiBPerClient = over(changes, pssPerClient) // a device may give memory back
	c.Lease = summarisePhase(accepted, func(st result.Storm) result.Phase { return st.Lease }, opts)
	c.Login = summarisePhase(accepted, func(st result.Storm) result.Phase { return st.Login }, opts)
	return c
}

// pssPerClient is the growth of a device's memory over the clients that got in, KiB.
func pssPerClient(st result.Storm) float64 {
	if !(st.LoggedPSSMiB > 0) { // it died
		return positive(0)
	}
	return over(1024*(st.LoggedPSSMiB-st.IdlePSSMiB), float64(st.Login.Through))
}

// phaseFigures is every figure of a phase that is estimated over storms.
var phaseFigures = []struct {
	field  func(*StormPhase) *Estimate
	of     func(result.Phase) float64
	within scale
}{
	{func(p *StormPhase) *Estimate { return &p.PerSecond }, func(p result.Phase) float64 { return over(float64(p.Through), p.ThroughSeconds) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.P50Ms }, func(p result.Phase) float64 { return result.Quantile(p.ThroughMs(), 0.5) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.P90Ms }, func(p result.Phase) float64 { return result.Quantile(p.ThroughMs(), 0.9) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.P99Ms }, func(p result.Phase) float64 { return result.Quantile(p.ThroughMs(), 0.99) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.MaxMs }, func(p result.Phase) float64 { return result.Quantile(p.ThroughMs(), 1) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.LateMs }, func(p result.Phase) float64 { return p.LateMs }, amounts},
	{func(p *StormPhase) *Estimate { return &p.RouterMs }, func(p result.Phase) float64 { return msPerClient(p, p.RouterNs()) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.ProcessMs }, func(p result.Phase) float64 { return msPerClient(p, p.ProcessNs) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.ClientMs }, func(p result.Phase) float64 { return msPerClient(p, p.RoleNs[result.RoleClient]) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.RadiusMs }, func(p result.Phase) float64 { return msPerClient(p, p.RoleNs[result.RoleRadius]) }, amounts},
	{func(p *StormPhase) *Estimate { return &p.RouterBusyPct }, func(p result.Phase) float64 { return 100 * p.RouterBusy }, percents},
	{func(p *StormPhase) *Estimate { return &p.EndpointsBusyPct }, func(p result.Phase) float64 { return 100 * p.EndpointsBusy }, percents},
	{func(p *StormPhase) *Estimate { return &p.ClientBusyPct }, func(p result.Phase) float64 { return 100 * p.ClientBusy }, percents},
	{func(p *StormPhase) *Estimate { return &p.RadiusBusyPct }, func(p result.Phase) float64 { return 100 * p.RadiusBusy }, percents},
}

func msPerClient(p result.Phase, ns int64) float64 { return over(float64(ns)/1e6, float64(p.Through)) }

// summarisePhase computes one phase of accepted storms.
func summarisePhase(storms []result.Storm, of func(result.Storm) result.Phase, opts Options) StormPhase {
	var out StormPhase
	failures, refusals, limits := tally{}, tally{}, tally{}
	var through []float64
	for _, st := range storms {
		p := of(st)
		out.Asked += p.Asked
		out.Through += p.Through
		out.Tries += p.Tries
		out.Retried += p.Retried
		limits.add(p.Limit, p.Limit)
		failures.addReasons(p.Failures)
		refusals.addReasons(p.Refusals)
		through = append(through, p.ThroughMs()...)
	}
	for _, fig := range phaseFigures {
		values := make([]float64, 0, len(storms))
		for _, st := range storms {
			values = append(values, fig.of(of(st)))
		}
		*fig.field(&out) = fig.within.estimate(values, opts.Confidence)
	}
	out.Failures, out.Refusals, out.Limits = failures.sorted(), refusals.sorted(), limits.sorted()
	out.Curve = throughCurve(through, out.Asked)
	return out
}

// curveSteps parts the clients of a distribution, 2.5 % each.
const curveSteps = 40

// throughCurve is how long it took until each fortieth of all that asked was through;
// it ends where nobody else got through.
func throughCurve(through []float64, asked int) []CurvePoint {
	slices.Sort(through)
	out := []CurvePoint{}
	for step := range curveSteps + 1 {
		nth := (asked*step + curveSteps - 1) / curveSteps // rounded up
		if nth = max(nth, 1); nth > len(through) {
			break
		}
		share := over(100*float64(nth), float64(asked))
		if n := len(out); n == 0 || out[n-1].SharePct < Number(share) {
			out = append(out, CurvePoint{Number(through[nth-1]), Number(share)})
		}
	}
	return out
}

// addReasons counts clients by reason; texts that differ in figures are one.
func (t tally) addReasons(reasons []result.Reason) {
	for _, r := range reasons {
		key := result.WithoutFigures(r.First)
		t.add(key, r.First)
		t[key].Count += r.Count - 1
	}
}

// label names a cell of storms in warnings.
func (c StormCell) label() string {
	text := c.DUT + " with " + plural(c.Clients, "client")
	if c.LoginRate > 0 {
		text += fmt.Sprintf(" at %s a second", c.LoginRate)
	}
	return text
}

// noun is what the run's trials are called.
func (s Summary) noun() string {
	if s.Measure == result.MeasureLogins {
		return "storm"
	}
	return "trial"
}
