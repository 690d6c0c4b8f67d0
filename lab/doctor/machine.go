package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// machineChecks returns the checks of the group Machine.
func (x examination) machineChecks(ctx context.Context) ([]Check, error) {
	user := Check{Key: "machine.root", State: OK, Subject: "root", Found: "yes",
		Means:  "hosts can be made and CPU time read",
		Needed: true}
	if !x.machine.Root {
		user.State, user.Found, user.Means = Missing, "no: a run makes network namespaces", ""
		user.Remedy = "sudo gateweigh run; what this report leaves out shows with: sudo gateweigh doctor"
	}
	busy, err := x.host.Busiest(ctx)
	if err != nil {
		return nil, err
	}
	own, others := x.running.splitPrograms(busy)
	return append([]Check{user, x.rights(), x.cpus(), x.siblings(), x.frequency(), x.virtual(), x.quota(), x.memory(),
		otherPrograms(others)}, x.running.checks(own)...), nil
}

// keyRights is the key of the check of rights. When it is missing, the verdict says only that.
const keyRights = "machine.rights"

// rights checks whether a container or a service withholds rights that root has.
func (x examination) rights() Check {
	check := checkOf(keyRights, "rights", "nothing that labs need is kept from this user",
		"hosts can be metered and their threads bound to CPUs", "")
	if !x.machine.Root {
		check = checkOf(keyRights, "rights", "not looked at without root", "", needsRoot)
	}
	if len(x.machine.Bars) > 0 {
		check.State, check.Means = Missing, ""
		check.Found, check.Remedy = barText(x.machine.Bars)
	}
	check.Needed = true
	return check
}

// barText joins the reasons why labs cannot run, and joins their remedies.
func barText(bars []machine.Bar) (what, do string) {
	var texts, steps []string
	for _, b := range bars {
		texts, steps = append(texts, b.What), append(steps, b.Do)
	}
	return strings.Join(texts, "; "), strings.Join(steps, "; ")
}

// cpus checks whether routers and endpoints have different CPUs.
func (x examination) cpus() Check {
	do := ""
	if slices.Equal(x.placement.Router, x.placement.Endpoints) {
		do = "give this process two CPUs: on one, clients and routers take turns and high loads do not fit"
	}
	return checkOf("machine.cpus", "CPUs", x.placement.String(), "both labs alike: where work runs moves its cost by 40 %",
		do)
}

// siblings checks whether a router's CPU shares its core with a CPU of the endpoints.
func (x examination) siblings() Check {
	found, do := "the routers' CPU shares its core with no other CPU of the lab", ""
	var shared []int
	for _, cpu := range x.placement.Router {
		for _, sibling := range x.machine.CPUs[cpu].Siblings {
			if sibling != cpu && slices.Contains(x.placement.Endpoints, sibling) {
				shared = append(shared, sibling)
			}
		}
	}
	if len(shared) > 0 {
		found = fmt.Sprintf("routers on CPU %v share a core with clients and servers on CPU %v", x.placement.Router, shared)
		do = "leave the siblings out with taskset -c, or: echo off | sudo tee /sys/devices/system/cpu/smt/control"
	}
	return checkOf("machine.smt", "SMT siblings", found, "a router's speed does not depend on what a client does", do)
}

// frequency judges the frequency governor of the routers' CPU.
func (x examination) frequency() Check {
	var found, means, do string
	switch governor := x.machine.CPUs[x.placement.Router[0]].Governor; governor {
	case "":
		found, means = "not set from here: hypervisor or firmware decides", "the fixed loop (Noise) shows whether it shifts"
	case "performance":
		found, means = "governor performance", "the clock does not follow the load"
		if x.machine.Boost {
			found, means = found+", boost on", "the clock falls as the machine warms up, for both labs alike"
		}
	default:
		found = "governor " + governor + ": under light loads the clock is lower and packets look more expensive"
		do = "sudo cpupower frequency-set -g performance"
	}
	return checkOf("machine.frequency", "CPU frequency", found, means, do)
}

// quietStealPct is the largest steal of a quiet machine, in % of its CPU time.
const quietStealPct = 1.0

// virtual reports whether the machine is a VM, by the CPU's flags, and the steal since it was started.
func (x examination) virtual() Check {
	found, means, do := "none seen", "nanoseconds are those of this CPU", ""
	if x.machine.Virtualisation == machine.Hypervisor {
		found, means = "virtual machine", "ratios carry over; nanoseconds are those of this virtual machine"
	}
	var figures map[string]analysis.Number
	if all := x.machine.Ticks; all.Total() > 0 {
		steal := 100 * float64(all.Steal) / float64(all.Total())
		found += fmt.Sprintf(", %.2f %% steal since it was started", steal)
		figures = map[string]analysis.Number{"steal_pct": analysis.Number(steal)}
		if steal > quietStealPct {
			do = "a quieter host or dedicated CPUs give narrower intervals: beside a neighbour ratios at light loads move " +
				"towards 1, and their intervals are widened to contain that"
		}
	}
	check := checkOf("machine.virtualisation", "virtualisation", found, means, do)
	check.Figures = figures
	return check
}

// quota checks whether a control group limits the CPU time of the lab.
func (x examination) quota() Check {
	found, do := "none", ""
	if q := x.machine.TightQuota(); q.CPUs > 0 {
		found = fmt.Sprintf("a control group allows %.2f CPUs (%s) and stops the lab when they are used up", q.CPUs, q.File)
		do = "run outside of it: no CPUQuota= in systemd, no --cpus for the container (--cpuset-cpus does no harm)"
	}
	return checkOf("machine.quota", "CPU quota", found, "no control group stops the lab in the middle of a window", do)
}

// memory compares the available memory with the demand of the largest experiment.
func (x examination) memory() Check {
	found, do := "no /proc/meminfo", "mount /proc"
	if m := x.machine.Memory; m.Total > 0 {
		need := x.largest.MemoryKiB() >> 10
		found, do = fmt.Sprintf("%d MiB available, %d needed for %s", m.Available>>10, need, x.largest), ""
		if m.Available>>10 < need {
			do = "end other programs, or measure fewer clients: --set clients=20"
		}
	}
	return checkOf("machine.memory", "memory", found, "nothing is swapped while it is measured", do)
}

const (
	maxOtherCores = 0.05 // cores that other programs may use without a warning: more shows in the clean router's figures
	shownUsers    = 3    // programs that are named
	shownCores    = 0.02 // cores that a program must use to be named
)

// otherPrograms judges the CPU use of other programs. list begins with the busiest.
func otherPrograms(list []machine.User) Check {
	var all float64
	var names []string
	for i, program := range list {
		all += program.Cores
		if i < shownUsers && program.Cores >= shownCores {
			names = append(names, fmt.Sprintf("%s (process %d) %.0f %%", program.Name, program.PID, 100*program.Cores))
		}
	}
	found, do := fmt.Sprintf("%.1f %% of a core", 100*all), ""
	if len(names) > 0 {
		found += ": " + strings.Join(names, ", ")
	}
	if all > maxOtherCores {
		do = "stop them while you measure; a duet cancels much of it, single values do not"
	}
	check := checkOf("machine.load", "other programs", found, "the lab has the CPUs to itself", do)
	check.Figures = map[string]analysis.Number{"core_pct": analysis.Number(100 * all)}
	return check
}
