package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
)

func (x examination) machineLines(ctx context.Context) ([]Line, error) {
	user := Line{Key: "machine.root", State: OK, What: "root", Found: "yes", Means: "hosts can be made and CPU time read", Needed: true}
	if !x.machine.Root {
		user.State, user.Found, user.Means = Missing, "no: a run makes network namespaces", ""
		user.Do = "sudo gateweigh run; what this report leaves out shows with: sudo gateweigh doctor"
	}
	busy, err := x.asked.Busiest(ctx)
	if err != nil {
		return nil, err
	}
	return []Line{user, x.cpus(), x.siblings(), x.frequency(), x.virtual(), x.quota(), x.memory(), busyLine(busy)}, nil
}

func (x examination) cpus() Line {
	l := Line{Key: "machine.cpus", State: OK, What: "CPUs", Found: x.placement.String(), Means: "both labs alike: where work runs moves its cost by 40 %"}
	if slices.Equal(x.placement.Router, x.placement.Endpoints) {
		l.State, l.Means = Warn, ""
		l.Do = "give this process two CPUs: on one, clients and routers take turns and high loads do not fit"
	}
	return l
}

// siblings tells whether a router shares its core with an endpoint.
func (x examination) siblings() Line {
	l := Line{Key: "machine.smt", State: OK, What: "SMT siblings", Found: "the routers' CPU shares its core with no other CPU of the lab",
		Means: "a router's speed does not depend on what a client does"}
	var shared []int
	for _, cpu := range x.placement.Router {
		for _, sibling := range x.machine.CPUs[cpu].Siblings {
			if sibling != cpu && slices.Contains(x.placement.Endpoints, sibling) {
				shared = append(shared, sibling)
			}
		}
	}
	if len(shared) > 0 {
		l.State, l.Means = Warn, ""
		l.Found = fmt.Sprintf("routers on CPU %v share a core with clients and servers on CPU %v", x.placement.Router, shared)
		l.Do = "leave the siblings out with taskset -c, or: echo off | sudo tee /sys/devices/system/cpu/smt/control"
	}
	return l
}

func (x examination) frequency() Line {
	l := Line{Key: "machine.frequency", State: OK, What: "CPU frequency"}
	governor := x.machine.CPUs[x.placement.Router[0]].Governor
	switch governor {
	case "":
		l.Found, l.Means = "not set from here: hypervisor or firmware decides", "the fixed loop (Noise) shows whether it shifts"
	case "performance":
		l.Found, l.Means = "governor performance", "the clock does not follow the load"
		if x.machine.Boost {
			l.Found, l.Means = l.Found+", boost on", "the clock falls as the machine warms up, for both labs alike"
		}
	default:
		l.State, l.Found = Warn, "governor "+governor+": under light loads the clock is lower and packets look dearer"
		l.Do = "sudo cpupower frequency-set -g performance"
	}
	return l
}

// virtual tells a virtual machine by the CPU's flags, and what its host has
// taken away since it was started.
func (x examination) virtual() Line {
	l := Line{Key: "machine.virtualisation", State: OK, What: "virtualisation", Found: "none seen", Means: "nanoseconds are those of this CPU"}
	if x.machine.Virtualisation == machine.Hypervisor {
		l.Found, l.Means = "virtual machine", "ratios carry over; nanoseconds are those of this guest"
	}
	all := x.machine.Ticks
	if all.Total() == 0 {
		return l
	}
	steal := 100 * float64(all.Steal) / float64(all.Total())
	l.Found += fmt.Sprintf(", %.2f %% steal since it was started", steal)
	l.Figures = map[string]analysis.Number{"steal_pct": analysis.Number(steal)}
	if steal > maxStealPct {
		l.State, l.Means = Warn, ""
		l.Do = "use a quieter host or dedicated CPUs; trials with more than 1 % steal are rejected and measured again"
	}
	return l
}

// maxStealPct is the limit of a trial's self-test, of the machine.
const maxStealPct = 1.0

func (x examination) quota() Line {
	l := Line{Key: "machine.quota", State: OK, What: "CPU quota", Found: "none", Means: "no control group stops the lab in the middle of a window"}
	if cpus := x.machine.Quota; cpus > 0 {
		l.State, l.Means = Warn, ""
		l.Found = fmt.Sprintf("a control group allows %.2f CPUs and stops the lab when they are used up", cpus)
		l.Do = "run outside of it: no CPUQuota= in systemd, no --cpus for the container (--cpuset-cpus does no harm)"
	}
	return l
}

func (x examination) memory() Line {
	l := Line{Key: "machine.memory", State: OK, What: "memory", Means: "nothing is swapped while it is measured"}
	m := x.machine.Memory
	if m.Total == 0 {
		l.State, l.Found, l.Means, l.Do = Warn, "no /proc/meminfo", "", "mount /proc"
		return l
	}
	need := x.largest.MemoryKiB() >> 10
	l.Found = fmt.Sprintf("%d MiB available, %d needed for %s", m.Available>>10, need, x.largest)
	if m.Available>>10 < need {
		l.State, l.Means, l.Do = Warn, "", "end other programs, or measure fewer clients: --set clients=20"
	}
	return l
}
