package bench

import (
	"context"
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Rejects lists the reasons why a trial does not count: what was measured is not what the experiment asks for. A
// rejected trial is kept in the raw data and measured again.
type Rejects []string

// Add adds a reason.
func (r *Rejects) Add(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

// AddIf adds a reason if it applies.
func (r *Rejects) AddIf(applies bool, format string, args ...any) {
	if applies {
		r.Add(format, args...)
	}
}

// Rule adds its reasons if they apply. An error means that the lab no longer works; it ends the block.
//
// A measure lists its own rules and these, which hold for all measures: Window.Speed, Window.Steal, Bench.Proof,
// WaitRule.
type Rule func(r *Rejects) error

// RejectIf is the rule that adds one reason if it applies.
func RejectIf(applies bool, format string, args ...any) Rule {
	return func(r *Rejects) error { r.AddIf(applies, format, args...); return nil }
}

// RejectFor is the rule that adds reasons that were already found during the measurement.
func RejectFor(reasons ...string) Rule {
	return func(r *Rejects) error { *r = append(*r, reasons...); return nil }
}

// Judge applies rules and returns the reasons in the order of the rules. Without a reason the trial is accepted.
func Judge(rules ...Rule) (r Rejects, err error) {
	for _, rule := range rules {
		if err := rule(&r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Judge applies rules to what was measured in the lab, like the function of that name. It returns an error when a
// program of the lab has ended by itself.
func (s *Bench) Judge(ctx context.Context, rules ...Rule) (Rejects, error) {
	if err := Running(ctx, s); err != nil {
		return nil, err
	}
	return Judge(rules...)
}

// Window describes the machine during a measurement.
type Window struct {
	When        string // for texts of reasons: " during the leases", or empty
	Seconds     float64
	Machine     result.Machine
	CPUs        int     // of the machine
	WantedShare float64 // share of their CPUs' time that slowed routers were to have; 0: they are not slowed
	Share       float64 // share that they did have
}

// Window describes the time between two snapshots.
func (s *Bench) Window(a, b Snapshot, when string) Window {
	from, to := a.machineSample(), b.machineSample()
	w := Window{When: when, Seconds: secondsBetween(a, b), Machine: Machine(to.Stat.Sub(from.Stat)), CPUs: s.cpus}
	if b.Slow != nil {
		w.WantedShare, w.Share = s.speed, RouterShare(a, b)
	}
	return w
}

// machineSample is the sample of the routers' machine, or of the server's if the routers have no agent.
func (r Snapshot) machineSample() meter.Sample {
	if r.Router.MonotonicNs == 0 { // none was sampled
		return r.Server.Meter
	}
	return r.Router
}

// secondsBetween is the time between two snapshots by the clock of that machine.
func secondsBetween(a, b Snapshot) float64 {
	return float64(b.machineSample().MonotonicNs-a.machineSample().MonotonicNs) / 1e9
}

// maxSpeedError is the largest relative difference between a slowed router's share of its CPUs and the wanted share.
const maxSpeedError = 0.1

// Speed is the rule that slowed routers had the share of their CPUs that was asked for.
func (w Window) Speed(r *Rejects) error {
	r.AddIf(w.WantedShare > 0 && math.Abs(w.Share/w.WantedShare-1) > maxSpeedError,
		"machine: the routers had %.1f %% of their CPU%s instead of %.1f %%: "+
			"a program of real-time priority, or another virtual machine, had it as well",
		100*w.Share, w.When, 100*w.WantedShare)
	return nil
}

const (
	quietStealPct = 1.0 // quiet machines show less steal, in % of the machine's CPU time
	stealTicks    = 2   // the counter of steal may be wrong by so many ticks
)

// Ticks converts n ticks of the machine's clock, 10 ms each, into a share of cpus CPUs over seconds.
func Ticks(n, seconds float64, cpus int) float64 {
	return n * 0.01 / (max(seconds, 0.01) * float64(max(cpus, 1)))
}

// Steal is the rule that other virtual machines took no CPU time from this one. It is for measures without a clean
// router: with one, the disturbance shows in the clean router's figures too.
func (w Window) Steal(r *Rejects) error {
	limit := max(quietStealPct, 100*Ticks(stealTicks, w.Seconds, w.CPUs))
	r.AddIf(w.Machine.Steal > limit, "machine: %.1f %% steal%s, limit %.1f %%: another virtual machine takes the CPU",
		w.Machine.Steal, w.When, limit)
	return nil
}

// maxWaited is the share of a window for which threads may wait for a CPU that other programs have.
const maxWaited = 0.5

// WaitRule is the rule that threads did not wait longer than maxWaited for other programs. share is WaitedForOthers. It
// does not apply when precedes, that is when the threads have priority (nice -20): then they wait only until the
// scheduler's next decision.
func WaitRule(precedes bool, share float64, threads string) Rule {
	return RejectIf(!precedes && share > maxWaited,
		"%s waited %.0f %% of the window for a CPU that other programs had, limit %.0f %%", threads, 100*share, 100*maxWaited)
}
