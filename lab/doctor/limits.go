package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// largestExperiment returns the demand of the experiment with the most clients that have a namespace each. Of equal
// ones it returns the first.
func largestExperiment(all []*experiment.Experiment) runner.Demand { return largestDemand(all, false) }

// mostPersonas returns the demand of the experiment with the most clients of a kind that shares its host's namespace.
func mostPersonas(all []*experiment.Experiment) runner.Demand { return largestDemand(all, true) }

// largestDemand returns the demand of the experiment with the most clients: of kinds that share their host's namespace
// (shared), or of those that do not.
func largestDemand(all []*experiment.Experiment, shared bool) (demand runner.Demand) {
	for _, exp := range all {
		if client.KindOf(exp.Client.Kind).Shared == shared && slices.Max(exp.Clients) > demand.Clients() {
			demand = runner.DemandOf(exp)
		}
	}
	return demand
}

// limits compares the machine's limits with the demand of the largest experiment.
// netnsSettings are settings of a new network namespace, empty when none could be made.
func (x examination) limits(netnsSettings map[string]string) []Check {
	checks := []Check{x.nofile(), x.neighbourTable()}
	for _, limit := range runner.Limits {
		if limit.Key != "" && (limit.Have(x.machine) > 0 || limit.None != "") {
			checks = append(checks, x.limit(limit))
		}
	}
	return append(checks, x.ports(netnsSettings), x.listenQueue(netnsSettings), x.personaCheck())
}

// limit compares one limit with the demand of the largest experiment.
func (x examination) limit(limit runner.Limit) Check {
	have, need, taken := limit.Have(x.machine), limit.Need(x.largest), int64(0)
	found, do := limit.None, ""
	if have > 0 {
		found = fmt.Sprintf("%d; %s needs %d", have, x.largest, need)
		if limit.Taken != nil {
			taken = limit.Taken(x.machine)
			found = fmt.Sprintf(
				"%d, of which %s in use; %s needs %d more", have, words.Agreed(int(taken), "is", "are"), x.largest, need)
		}
		if have < taken+need {
			do = limit.Advice(x.machine, x.largest)
		}
	}
	return checkOf(limit.Key, limit.What, found, limit.Means, do)
}

// nofile judges the limits of open files: the hard limit, to which agents raise their own, and the soft limit, which
// holds for the devices' daemons. A daemon may have a connection of every client at once.
func (x examination) nofile() Check {
	soft, hard := x.machine.Limits.FilesSoft, x.machine.Limits.FilesHard
	agent, daemon := x.largest.Files(), int64(runner.FilesPerHost+x.largest.Clients())
	found := fmt.Sprintf(
		"hard limit %d, soft %d; %s needs %d in an agent, %d in a daemon", hard, soft, x.largest, agent, daemon)
	fit := (hard - runner.FilesPerHost) / int64(client.KindOf(x.largest.Sides[0].Client).Needs.Files)
	means, do := fmt.Sprintf("agents raise their own: enough for %s", words.Agreed(int(fit), "client", "clients")), ""
	if hard == 0 {
		found = fmt.Sprintf("no hard limit, soft %d; %s needs %d in a daemon", soft, x.largest, daemon)
		means = "agents raise their own"
	}
	switch {
	case hard > 0 && hard < agent:
		do = fmt.Sprintf("ulimit -n %d as root, or LimitNOFILE=%d of the service", 2*agent, 2*agent)
	case soft > 0 && soft < daemon:
		do = fmt.Sprintf("ulimit -Sn %d", 2*daemon)
	}
	return checkOf("limit.nofile", "open files", found, means, do)
}

// neighbourTable judges the size of the kernel's neighbour table, which all namespaces of the machine share.
func (x examination) neighbourTable() Check {
	// Only the machine's first network namespace has these settings. A container has another one.
	found, means := "gc_thresh1-3 cannot be read from this network namespace", ""
	do := "look on the machine itself: sysctl net.ipv4.neigh.default.gc_thresh2"
	if t := x.machine.Limits.Neighbours; t[1] > 0 {
		need := x.largest.Neighbours()
		fit := (t[1]/int64(len(x.largest.Sides)) - int64(x.largest.Lab.Neighbours)) / runner.NeighboursPerClient
		found = fmt.Sprintf("gc_thresh1-3 %d, %d, %d for the whole machine; %s needs %d", t[0], t[1], t[2], x.largest, need)
		means, do = fmt.Sprintf("no neighbour is forgotten up to %s", words.Agreed(int(fit), "client", "clients")), ""
		if t[1] < need {
			do = fmt.Sprintf(
				"sudo sysctl -w net.ipv4.neigh.default.gc_thresh2=%d net.ipv4.neigh.default.gc_thresh3=%d", 2*need, 4*need)
		}
	}
	return checkOf("limit.neighbours", "neighbour table", found, means, do)
}

// setting returns a network setting of a new namespace and says where it was read. When no namespace could be made it
// returns this namespace's setting (here).
func (x examination) setting(netnsSettings map[string]string, name, here string) (text, where string) {
	if text = netnsSettings[name]; text != "" {
		return text, "in each new network namespace"
	}
	return here, "in this network namespace; those of the lab were not tried"
}

// ports judges the range of local ports of a new network namespace.
func (x examination) ports(netnsSettings map[string]string) Check {
	text, where := x.setting(netnsSettings, machine.PortRange, x.machine.Limits.Ports)
	found, do := cmp.Or(text, "no "+machine.PortRange), "mount /proc"
	var low, high int64
	if n, err := fmt.Sscan(text, &low, &high); err == nil && n == 2 {
		found, do = fmt.Sprintf("%d to %d %s", low, high, where), ""
		// Each client has an address of its own, and therefore all ports. Logins leave connections in TIME_WAIT.
		if high-low+1 < bench.FlowsPerClient {
			do = "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
		}
	}
	return checkOf("limit.ports", "local ports", found,
		fmt.Sprintf("each client has them all and uses %d at most", bench.FlowsPerClient), do)
}

// listenQueue judges how many connections may wait for a program to accept them, in a new network namespace.
func (x examination) listenQueue(netnsSettings map[string]string) Check {
	text, where := x.setting(netnsSettings, machine.Backlog, x.machine.Limits.Backlog)
	found, do := "no "+machine.Backlog, "mount /proc"
	if have, err := strconv.Atoi(text); err == nil {
		need := x.largest.Clients()
		found, do = fmt.Sprintf("%d %s; %s %d", have, where, words.Agreed(int(need), "client needs", "clients need"), need),
			""
		if have < need {
			do = fmt.Sprintf("sudo sysctl -w net.core.somaxconn=%d", 16*need)
		}
	}
	return checkOf("limit.somaxconn", "somaxconn", found, "all clients may connect at the same moment", do)
}

// personaCheck compares memory and open files with the demand of the most personas, which a host spreads over several
// processes. Personas take no entries of the machine's neighbour table.
func (x examination) personaCheck() Check {
	need, hard, do := x.personas.MemoryKiB(), x.machine.Limits.FilesHard, ""
	if m := x.machine.Memory; m.Total > 0 && m.Available < need {
		do = fmt.Sprintf("fewer clients: --set clients=%d", x.personas.Fits(m.Available, runner.Demand.MemoryKiB))
	}
	found := fmt.Sprintf("%s takes %d MiB and %s a host under the hard limit of %d files",
		x.personas, need>>10, words.Counted(agent.ProcessesFor(x.personas.Clients(), hard), "process"), hard)
	return checkOf("limit.personas", "personas", found, "clients of kind persona share namespace, link and files", do)
}
