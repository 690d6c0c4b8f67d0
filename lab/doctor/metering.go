package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// accounting reports how the kernel accounts for CPU time in /proc/stat.
func (x examination) accounting() Check {
	found, do := cmp.Or(strings.Join(x.machine.Config, ", "), "none of "+strings.Join(machine.Accounting, ", ")), ""
	if x.machine.Config == nil {
		found, do = "the kernel's configuration is not shown",
			"nothing: the comparison of ticks with exact time shows the effect"
	}
	return checkOf("metering.accounting", "accounting", found,
		"information: the lab's own figures are on-CPU nanoseconds from switch to switch either way", do)
}

// accountingGap compares tick accounting with exact time. All values are seconds, summed over the intervals in which
// the routers worked.
type accountingGap struct {
	seconds     float64 // length of the intervals
	exact       float64 // CPU time of the routers' polling threads, by schedstat
	threadTicks float64 // CPU time of the same threads, by their utime and stime
	cpuTicks    float64 // time that the routers' CPUs worked for any program, by /proc/stat
	awake       float64 // time that the routers' CPUs were not idle
}

const (
	userHz       = 100                    // ticks a second in /proc, on every Linux ABI in use
	pollInterval = 250 * time.Millisecond // between two readings of the accounts
	minWork      = 0.02                   // cores: routers that use less are being set up and carry no traffic
)

// add adds the interval between two readings, if the routers worked in it. cpus is the number of the routers' CPUs.
func (g *accountingGap) add(a, after machine.Accounts, cpus int) {
	var ns, ticks int64
	for tid, now := range after.Threads {
		if before, known := a.Threads[tid]; known {
			ns, ticks = ns+now.Ns-before.Ns, ticks+now.Ticks-before.Ticks
		}
	}
	seconds := float64(after.AtNs-a.AtNs) / 1e9
	if float64(ns)/1e9 < minWork*seconds || len(a.Threads) != len(after.Threads) {
		return
	}
	g.seconds += seconds
	g.exact += float64(ns) / 1e9
	g.threadTicks += float64(ticks) / userHz
	g.cpuTicks += float64(after.Busy-a.Busy) / userHz
	g.awake += seconds*float64(cpus) - float64(after.Idle-a.Idle)/userHz
}

// minTickShare is the least share of a CPU's work that ticks must see for mpstat and top to be right.
const minTickShare = 0.9

// check reports how much of the work of the routers' CPUs tick accounting saw.
func (g accountingGap) check(cpus []int) Check {
	const key, what = "metering.gap", "ticks and exact"
	if !(g.exact > 0) || !(g.awake > 0) {
		return checkOf(key, what, "no router's work was seen", "", "see Noise: the comparison is made while that measures")
	}
	pct := func(seconds float64) analysis.Number {
		return analysis.Number(100 * seconds / (g.seconds * float64(len(cpus))))
	}
	seen := g.cpuTicks / g.awake
	means := "the lab counts each thread from switch to switch: no tick, and nobody else's work"
	if seen < minTickShare {
		means = "mpstat and top read too low here; the lab counts each thread from switch to switch"
	}
	check := checkOf(key, what, fmt.Sprintf(
		"CPU %v was awake for %.1f %% of the time, and ticks (/proc/stat) saw %.0f %% of that; routers' threads: %.1f %% "+
			"exact, %.1f %% by utime and stime",
		cpus, pct(g.awake), 100*seen, pct(g.exact), pct(g.threadTicks)), means, "")
	check.Figures = map[string]analysis.Number{
		"router_exact_pct": pct(g.exact), "router_thread_ticks_pct": pct(g.threadTicks),
		"cpu_awake_pct": pct(g.awake), "cpu_ticks_pct": pct(g.cpuTicks), "ticks_saw_pct": analysis.Number(100 * seen),
	}
	return check
}

// watchAccounts compares tick accounting with exact time until ctx ends. The machine's agent reads the accounts on a
// CPU of the endpoints.
func (x examination) watchAccounts(ctx context.Context) (total accountingGap) {
	routers := machine.Routers{Links: topology.RouterLinks, CPUs: x.placement.Router}
	last, err := x.host.ReadAccounts(ctx, routers, x.placement.Beside())
	for err == nil {
		select {
		case <-ctx.Done():
			return total
		case <-time.After(pollInterval):
		}
		var now machine.Accounts
		if now, err = x.host.ReadAccounts(ctx, routers, x.placement.Beside()); err == nil {
			total.add(last, now, len(routers.CPUs))
			last = now
		}
	}
	return total
}
