package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// largestExperiment is the one with the most clients that have something of the
// machine's own each, the first of equals.
func largestExperiment(all []*experiment.Experiment) runner.Demand {
	return most(all, func(kind string) bool { return !client.KindOf(kind).Shared })
}

// most is the demand of the experiment with the most clients of some kinds.
func most(all []*experiment.Experiment, of func(kind string) bool) (d runner.Demand) {
	for _, e := range all {
		if of(e.Client.Kind) && slices.Max(e.Clients) > d.Clients() {
			d = runner.DemandOf(e)
		}
	}
	return d
}

// limits compares the machine's limits with what the largest experiment needs.
// inside are settings of a new network namespace, empty when none could be made.
func (x examination) limits(inside map[string]string) []Line {
	lines := []Line{x.nofile(), x.neighbourTable()}
	for _, l := range runner.Limits {
		if l.Key != "" && (l.Have(x.machine) > 0 || l.None != "") {
			lines = append(lines, x.limit(l))
		}
	}
	return append(lines, x.ports(inside), x.listenQueue(inside), x.personasLine())
}

// limit compares one limit with what the largest experiment needs.
func (x examination) limit(l runner.Limit) Line {
	have, need, taken := l.Have(x.machine), l.Need(x.largest), int64(0)
	line := Line{Key: l.Key, State: OK, What: l.What, Found: l.None, Means: l.Means}
	if have == 0 {
		return line
	}
	line.Found = fmt.Sprintf("%d; %s needs %d", have, x.largest, need)
	if l.Taken != nil {
		taken = l.Taken(x.machine)
		line.Found = fmt.Sprintf("%d, of which %d are in use; %s needs %d more", have, taken, x.largest, need)
	}
	if have < taken+need {
		line.State, line.Means, line.Do = Warn, "", l.Advice(x.machine, x.largest)
	}
	return line
}

// nofile judges the hard limit, up to which agents go, and the soft one of the
// devices' daemons, which may hold a connection of every client at once.
func (x examination) nofile() Line {
	soft, hard := x.machine.Limits.FilesSoft, x.machine.Limits.FilesHard
	agent, daemon := x.largest.Files(), int64(runner.FilesPerHost+x.largest.Clients())
	l := Line{
		Key: "limit.nofile", State: OK, What: "open files",
		Found: fmt.Sprintf("hard limit %d, soft %d; %s needs %d in an agent, %d in a daemon", hard, soft, x.largest, agent, daemon),
		Means: fmt.Sprintf("agents raise their own: enough for %d clients", (hard-runner.FilesPerHost)/int64(client.KindOf(x.largest.Sides[0].Client).Needs.Files)),
	}
	if hard == 0 {
		l.Found, l.Means = fmt.Sprintf("no hard limit, soft %d; %s needs %d in a daemon", soft, x.largest, daemon), "agents raise their own"
	}
	switch {
	case hard > 0 && hard < agent:
		l.State, l.Means, l.Do = Warn, "", fmt.Sprintf("ulimit -n %d as root, or LimitNOFILE=%d of the service", 2*agent, 2*agent)
	case soft > 0 && soft < daemon:
		l.State, l.Means, l.Do = Warn, "", fmt.Sprintf("ulimit -Sn %d", 2*daemon)
	}
	return l
}

func (x examination) neighbourTable() Line {
	l := Line{Key: "limit.neighbours", State: OK, What: "neighbour table"}
	t := x.machine.Limits.Neighbours
	if t[1] == 0 { // a container has its own network namespace, and these settings only the first one
		l.State, l.Found = Warn, "gc_thresh1-3 cannot be read from this network namespace"
		l.Do = "look on the machine itself: sysctl net.ipv4.neigh.default.gc_thresh2"
		return l
	}
	need := x.largest.Neighbours()
	l.Found = fmt.Sprintf("gc_thresh1-3 %d, %d, %d for the whole machine; %s needs %d", t[0], t[1], t[2], x.largest, need)
	l.Means = fmt.Sprintf("no neighbour is forgotten up to %d clients", (t[1]/int64(len(x.largest.Sides))-int64(x.largest.Lab.Neighbours))/runner.NeighboursPerClient)
	if t[1] < need {
		l.State, l.Means = Warn, ""
		l.Do = fmt.Sprintf("sudo sysctl -w net.ipv4.neigh.default.gc_thresh2=%d net.ipv4.neigh.default.gc_thresh3=%d", 2*need, 4*need)
	}
	return l
}

// setting is a network setting of a new namespace, or of this one where none could be made.
func (x examination) setting(inside map[string]string, name, here string) (text, where string) {
	if text = inside[name]; text != "" {
		return text, "in each new network namespace"
	}
	return here, "in this network namespace; those of the lab were not tried"
}

func (x examination) ports(inside map[string]string) Line {
	text, where := x.setting(inside, machine.PortRange, x.machine.Limits.Ports)
	l := Line{Key: "limit.ports", State: OK, What: "local ports", Found: fmt.Sprintf("%s %s", strings.Join(strings.Fields(text), " to "), where)}
	var low, high int64
	if n, err := fmt.Sscan(text, &low, &high); err != nil || n != 2 {
		l.State, l.Found, l.Do = Warn, cmp.Or(text, "no "+machine.PortRange), "mount /proc"
		return l
	}
	// A client binds to its own address and has a stream and a probe; log-ins
	// leave connections in TIME_WAIT.
	if high-low+1 < side.FlowsPerClient {
		l.State, l.Do = Warn, "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
		return l
	}
	l.Means = fmt.Sprintf("each client has them all and uses %d at most", side.FlowsPerClient)
	return l
}

func (x examination) listenQueue(inside map[string]string) Line {
	text, where := x.setting(inside, machine.Backlog, x.machine.Limits.Backlog)
	have, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Line{Key: "limit.somaxconn", State: Warn, What: "somaxconn", Found: "no " + machine.Backlog, Do: "mount /proc"}
	}
	need := int64(x.largest.Clients())
	l := Line{
		Key: "limit.somaxconn", State: OK, What: "somaxconn", Found: fmt.Sprintf("%d %s; %d clients need %d", have, where, need, need),
		Means: "all clients may connect at the same moment",
	}
	if have < need {
		l.State, l.Means, l.Do = Warn, "", fmt.Sprintf("sudo sysctl -w net.core.somaxconn=%d", 16*need)
	}
	return l
}
