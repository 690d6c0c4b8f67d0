package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
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

// Settings of each network namespace, below /proc/sys.
const (
	portRange = "net/ipv4/ip_local_port_range"
	backlog   = "net/core/somaxconn"
)

// limits compares the machine's limits with what the largest experiment needs.
// inside are settings of a new network namespace, empty when none could be made.
func (x examination) limits(ctx context.Context, inside map[string]string) []Line {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		files = unix.Rlimit{} // every Linux has this limit
	}
	lines := []Line{x.nofile(softLimit(ctx, int64(files.Cur)), int64(files.Max)), x.neighbourTable()}
	lines = append(lines, x.tasks()...)
	return append(lines, x.namespaces(), x.conntrack(), x.ports(inside), x.listenQueue(inside), x.personas(int64(files.Max)))
}

// softLimit is the soft limit of open files that programs of the lab get. Go
// raises its own to the hard limit at start and hands children the one before.
func softLimit(ctx context.Context, own int64) int64 {
	out, err := exec.CommandContext(ctx, "sh", "-c", "ulimit -Sn").Output()
	if err != nil {
		return own
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return own // "unlimited"
	}
	return n
}

// atLeast makes a line of a limit: ok from need on.
func (x examination) atLeast(key, what string, have, need int64, means, do string) Line {
	l := Line{Key: key, State: OK, What: what, Found: fmt.Sprintf("%d; %s needs %d", have, x.largest, need), Means: means}
	if have < need {
		l.State, l.Means, l.Do = Warn, "", do
	}
	return l
}

// nofile judges the hard limit, up to which agents go, and the soft one of the
// devices' daemons, which may hold a connection of every client at once.
func (x examination) nofile(soft, hard int64) Line {
	agent, daemon := x.largest.Files(), int64(runner.FilesPerHost+x.largest.Clients())
	l := Line{
		Key: "limit.nofile", State: OK, What: "open files",
		Found: fmt.Sprintf("hard limit %d, soft %d; %s needs %d in an agent, %d in a daemon", hard, soft, x.largest, agent, daemon),
		Means: fmt.Sprintf("agents raise their own: enough for %d clients", (hard-runner.FilesPerHost)/int64(client.KindOf(x.largest.Sides[0].Client).Needs.Files)),
	}
	switch {
	case hard < agent:
		l.State, l.Means, l.Do = Warn, "", fmt.Sprintf("ulimit -n %d as root, or LimitNOFILE=%d of the service", 2*agent, 2*agent)
	case soft < daemon:
		l.State, l.Means, l.Do = Warn, "", fmt.Sprintf("ulimit -Sn %d", 2*daemon)
	}
	return l
}

func (x examination) neighbourTable() Line {
	const dir = "/proc/sys/net/ipv4/neigh/default/gc_thresh"
	var t [3]int64
	for i := range t {
		n, there := x.sys.number(dir + strconv.Itoa(i+1))
		if !there { // a container has its own network namespace, and these settings only the first one
			return Line{Key: "limit.neighbours", State: Warn, What: "neighbour table", Found: "gc_thresh1-3 cannot be read from this network namespace",
				Do: "look on the machine itself: sysctl net.ipv4.neigh.default.gc_thresh2"}
		}
		t[i] = n
	}
	need := x.largest.Neighbours()
	l := x.atLeast("limit.neighbours", "neighbour table", t[1], need, "", "")
	l.Found = fmt.Sprintf("gc_thresh1-3 %d, %d, %d for the whole machine; %s needs %d", t[0], t[1], t[2], x.largest, need)
	l.Means = fmt.Sprintf("no neighbour is forgotten up to %d clients", (t[1]/int64(len(x.largest.Sides))-runner.NeighboursPerLab)/runner.NeighboursPerClient)
	if t[1] < need {
		l.State, l.Means = Warn, ""
		l.Do = fmt.Sprintf("sudo sysctl -w net.ipv4.neigh.default.gc_thresh2=%d net.ipv4.neigh.default.gc_thresh3=%d", 2*need, 4*need)
	}
	return l
}

// tasks compares all limits on the number of processes and threads.
func (x examination) tasks() []Line {
	now, err := parseLoadTasks(x.sys.text("/proc/loadavg"))
	if err != nil {
		now = 0
	}
	var lines []Line
	for _, limit := range []struct{ key, what, file, do string }{
		{"limit.pid-max", "pid_max", "/proc/sys/kernel/pid_max", "sudo sysctl -w kernel.pid_max=%d"},
		{"limit.threads-max", "threads-max", "/proc/sys/kernel/threads-max", "sudo sysctl -w kernel.threads-max=%d"},
	} {
		have, there := x.sys.number(limit.file)
		if !there {
			continue
		}
		l := x.atLeast(limit.key, limit.what, have, now+x.largest.Tasks(), "", fmt.Sprintf(limit.do, 4*(now+x.largest.Tasks())))
		l.Found = fmt.Sprintf("%d, of which %d are in use; %s needs %d more", have, now, x.largest, x.largest.Tasks())
		if l.State == OK {
			l.Means = "programs and threads of the labs fit"
		}
		lines = append(lines, l)
	}
	l := Line{Key: "limit.pids-cgroup", State: OK, What: "pids.max", Found: "no control group limits tasks", Means: "programs and threads of the labs fit"}
	if most := x.sys.maxTasks(); most > 0 {
		l = x.atLeast(l.Key, l.What, most, x.largest.Tasks(), l.Means, "docker run --pids-limit=-1, or TasksMax=infinity of the service")
	}
	return append(lines, l)
}

func (x examination) namespaces() Line {
	have, there := x.sys.number("/proc/sys/user/max_net_namespaces")
	if !there {
		return Line{Key: "limit.net-namespaces", State: OK, What: "net namespaces", Found: "the kernel sets no limit", Means: "each host and each client has its own"}
	}
	need := x.largest.Namespaces()
	return x.atLeast("limit.net-namespaces", "net namespaces", have, need, "each host and each client has its own", fmt.Sprintf("sudo sysctl -w user.max_net_namespaces=%d", 4*need))
}

func (x examination) conntrack() Line {
	have, there := x.sys.number("/proc/sys/net/netfilter/nf_conntrack_max")
	if !there {
		return Line{Key: "limit.conntrack", State: OK, What: "conntrack", Found: "not loaded, or not shown in this network namespace", Means: "gateways that track connections load it; its default suits"}
	}
	need := x.largest.Flows()
	return x.atLeast("limit.conntrack", "conntrack", have, need, "no flow is dropped for want of an entry", fmt.Sprintf("sudo sysctl -w net.netfilter.nf_conntrack_max=%d", 4*need))
}

// setting is a network setting of a new namespace, or of this one where none could be made.
func (x examination) setting(inside map[string]string, name string) (text, where string) {
	if text = inside[name]; text != "" {
		return text, "in each new network namespace"
	}
	return x.sys.text("/proc/sys/" + name), "in this network namespace; those of the lab were not tried"
}

func (x examination) ports(inside map[string]string) Line {
	text, where := x.setting(inside, portRange)
	l := Line{Key: "limit.ports", State: OK, What: "local ports", Found: fmt.Sprintf("%s %s", strings.Join(strings.Fields(text), " to "), where)}
	var low, high int64
	if n, err := fmt.Sscan(text, &low, &high); err != nil || n != 2 {
		l.State, l.Found, l.Do = Warn, cmp.Or(text, "no "+portRange), "mount /proc"
		return l
	}
	// A client binds to its own address and has a stream and a probe; log-ins
	// leave connections in TIME_WAIT.
	if high-low+1 < runner.FlowsPerClient {
		l.State, l.Do = Warn, "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
		return l
	}
	l.Means = fmt.Sprintf("each client has them all and uses %d at most", runner.FlowsPerClient)
	return l
}

func (x examination) listenQueue(inside map[string]string) Line {
	text, where := x.setting(inside, backlog)
	have, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Line{Key: "limit.somaxconn", State: Warn, What: "somaxconn", Found: "no " + backlog, Do: "mount /proc"}
	}
	need := int64(x.largest.Clients())
	l := x.atLeast("limit.somaxconn", "somaxconn", have, need, "all clients may connect at the same moment", fmt.Sprintf("sudo sysctl -w net.core.somaxconn=%d", 16*need))
	l.Found = fmt.Sprintf("%d %s; %d clients need %d", have, where, need, need)
	return l
}
