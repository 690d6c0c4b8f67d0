package runner

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Limit is a bound of a machine that the labs of an experiment may meet. A run is refused
// where the experiment needs more; the doctor advises.
type Limit struct {
	Key   string                      // of the doctor's line; empty: it has none of this kind
	What  string                      // its subject
	Have  func(machine.Machine) int64 // 0: not shown, or no limit
	Taken func(machine.Machine) int64 // what of it is in use already; nil: nothing counts
	Need  func(Demand) int64
	None  string // what the doctor says where Have is 0; empty: nothing
	Means string // what it means that there is enough
	// Refusal says with Have why a run is refused; empty: a run goes ahead.
	Refusal string
	Raise   string // the command that raises the limit, with the number to raise it to
	Times   int64  // that number over what is needed
}

// Limits is every limit.
var Limits = []Limit{
	{
		What: "open files", Have: func(m machine.Machine) int64 { return m.Limits.FilesHard }, Need: filesNeeded,
		Refusal: "the hard limit of open files is %d", Raise: "ulimit -Hn %d", Times: 1,
	},
	{
		What: "neighbour table", Have: func(m machine.Machine) int64 { return m.Limits.Neighbours[2] }, Need: Demand.Neighbours,
		Refusal: "the machine's table of neighbours has room for %d", Raise: "sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=%d", Times: 2,
	},
	{
		Key: "limit.pid-max", What: "pid_max", Have: func(m machine.Machine) int64 { return m.Limits.PIDMax }, Taken: tasksNow, Need: Demand.Tasks,
		Means: "programs and threads of the labs fit", Refusal: moreTasks, Raise: "sudo sysctl -w kernel.pid_max=%d", Times: 4,
	},
	{
		Key: "limit.threads-max", What: "threads-max", Have: func(m machine.Machine) int64 { return m.Limits.ThreadsMax }, Taken: tasksNow, Need: Demand.Tasks,
		Means: "programs and threads of the labs fit", Refusal: moreTasks, Raise: "sudo sysctl -w kernel.threads-max=%d", Times: 4,
	},
	{
		Key: "limit.pids-cgroup", What: "pids.max", Have: func(m machine.Machine) int64 { return m.Limits.GroupTasks }, Need: Demand.Tasks, None: "no control group limits tasks",
		Means: "programs and threads of the labs fit", Raise: "docker run --pids-limit=-1, or TasksMax=infinity of the service",
	},
	{
		Key: "limit.net-namespaces", What: "net namespaces", Have: func(m machine.Machine) int64 { return m.Limits.Namespaces }, Need: Demand.Namespaces, None: "the kernel sets no limit",
		Means: "each host and each client has its own", Refusal: "the machine has room for %d network namespaces", Raise: "sudo sysctl -w user.max_net_namespaces=%d", Times: 1,
	},
	{
		Key: "limit.conntrack", What: "conntrack", Have: func(m machine.Machine) int64 { return m.Limits.Conntrack }, Need: Demand.Flows, None: "not loaded, or not shown in this network namespace",
		Means: "no flow is dropped for want of an entry", Raise: "sudo sysctl -w net.netfilter.nf_conntrack_max=%d", Times: 4,
	},
	{
		What: "memory", Have: func(m machine.Machine) int64 { return m.Memory.Available }, Need: Demand.MemoryKiB,
		Refusal: "the machine has %d KiB of memory to give",
	},
}

const moreTasks = "the machine has room for %d more processes and threads"

func tasksNow(m machine.Machine) int64 { return m.Limits.Tasks }

// Advice is the command that raises the limit so that a demand fits with room to spare.
func (l Limit) Advice(m machine.Machine, d Demand) string {
	if l.Times == 0 {
		return l.Raise
	}
	return fmt.Sprintf(l.Raise, l.Times*(l.taken(m)+l.Need(d)))
}

func (l Limit) taken(m machine.Machine) int64 {
	if l.Taken == nil {
		return 0
	}
	return l.Taken(m)
}

// checkLimits refuses a demand that a limit has no room for, with the number of clients
// that would fit and how to raise the limit; all of them at once.
func checkLimits(m machine.Machine, d Demand) error {
	var errs []error
	for _, l := range Limits {
		have, need := l.Have(m)-l.taken(m), l.Need(d)
		if l.Refusal == "" || l.Have(m) == 0 || need <= have {
			continue
		}
		text := fmt.Sprintf("clients: "+l.Refusal+", and %s takes %d: about %d clients fit", have, d, need, d.Fits(have, l.Need))
		if l.Raise != "" {
			text += ", or raise it: " + l.Advice(m, d)
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// mostWorkers bounds the processes that share a host's streams where each may have few
// open files: five are what 65,000 streams are shared by elsewhere, and threads of many more
// would get into each other's way.
const mostWorkers = 8

// filesNeeded are the least open files of a process with which a demand can be met:
// several processes share the streams of personas.
func filesNeeded(d Demand) (n int64) {
	for _, s := range d.Sides {
		need := Demand{Sides: []experiment.Side{s}}.Files()
		if s.Client == client.KindPersona {
			need = int64(agent.LeastFiles((s.Clients + mostWorkers - 1) / mostWorkers))
		}
		n = max(n, need)
	}
	return n
}

// raiseFiles raises the hard limit of open files of this process, which agents inherit,
// to what a demand would like where it is lower and that is allowed. It says so, or
// nothing; undo takes it back.
func raiseFiles(d Demand) (said string, undo func()) {
	undo = func() {}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil || was.Max >= uint64(d.Files()) {
		return "", undo
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: was.Cur, Max: uint64(d.Files())}); err != nil {
		return "", undo // a container without the capability, or beyond fs.nr_open
	}
	return fmt.Sprintf("The hard limit of open files was raised from %d to %d, for this run's processes only.", was.Max, d.Files()),
		func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) } // lowering is always allowed
}
