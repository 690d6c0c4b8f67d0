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

// accounting tells how the kernel accounts for CPU time in /proc/stat.
func (x examination) accounting() Check {
	found, do := cmp.Or(strings.Join(x.machine.Config, ", "), "none of "+strings.Join(machine.Accounting, ", ")), ""
	if x.machine.Config == nil {
		found, do = "the kernel's configuration is not shown",
			"nothing: the comparison of ticks with exact time shows the effect"
	}
	return checkOf("metering.accounting", "accounting", found,
		"information: the lab's own figures are on-CPU nanoseconds from switch to switch either way", do)
}

// accountingGap compares tick accounting with exact time, summed over the periods in which
// the routers worked. All values are seconds.
type accountingGap struct {
	seconds     float64 // length of those periods
	exact       float64 // CPU time of the routers' polling threads together, by schedstat
	threadTicks float64 // the same by the threads' own utime and stime
	cpuTicks    float64 // what /proc/stat says the routers' CPUs worked, whoever for
	awake       float64 // what is left of the time when the CPUs' idle time is taken off
}

const (
	userHz       = 100                    // ticks a second in /proc, on every Linux ABI in use
	pollInterval = 250 * time.Millisecond // between two looks at the accounts
	minWork      = 0.02                   // of a core: less is no traffic but setting up
)

// add enters what lies between two looks, if the routers worked in it.
func (g *accountingGap) add(a, b machine.Accounts, cpus int) {
	var ns, ticks int64
	for tid, now := range b.Threads {
		if before, known := a.Threads[tid]; known {
			ns, ticks = ns+now.Ns-before.Ns, ticks+now.Ticks-before.Ticks
		}
	}
	seconds := float64(b.AtNs-a.AtNs) / 1e9
	if float64(ns)/1e9 < minWork*seconds || len(a.Threads) != len(b.Threads) {
		return
	}
	g.seconds += seconds
	g.exact += float64(ns) / 1e9
	g.threadTicks += float64(ticks) / userHz
	g.cpuTicks += float64(b.Busy-a.Busy) / userHz
	g.awake += seconds*float64(cpus) - float64(b.Idle-a.Idle)/userHz
}

// minTickShare is the share of a CPU's work below which tick accounting misleads.
const minTickShare = 0.9

// line says what tick accounting saw of the routers' CPUs.
func (g accountingGap) line(cpus []int) Check {
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
	l := checkOf(key, what, fmt.Sprintf(
		"CPU %v was awake for %.1f %% of the time, and ticks (/proc/stat) saw %.0f %% of that; routers' threads: %.1f %% "+
			"exact, %.1f %% by utime and stime",
		cpus, pct(g.awake), 100*seen, pct(g.exact), pct(g.threadTicks)), means, "")
	l.Figures = map[string]analysis.Number{
		"router_exact_pct": pct(g.exact), "router_thread_ticks_pct": pct(g.threadTicks),
		"cpu_awake_pct": pct(g.awake), "cpu_ticks_pct": pct(g.cpuTicks), "ticks_saw_pct": analysis.Number(100 * seen),
	}
	return l
}

// watchAccounts compares both methods until ctx ends; the machine's agent reads them on
// one of the endpoints' CPUs.
func (x examination) watchAccounts(ctx context.Context) (total accountingGap) {
	routers := machine.Routers{Links: topology.RouterLinks, CPUs: x.placement.Router}
	last, err := x.asked.ReadAccounts(ctx, routers, x.placement.Beside())
	for err == nil {
		select {
		case <-ctx.Done():
			return total
		case <-time.After(pollInterval):
		}
		var now machine.Accounts
		if now, err = x.asked.ReadAccounts(ctx, routers, x.placement.Beside()); err == nil {
			total.add(last, now, len(routers.CPUs))
			last = now
		}
	}
	return total
}
