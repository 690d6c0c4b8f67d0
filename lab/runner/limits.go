package runner

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Limit is a limit of a machine that an experiment's labs may reach. A run that needs more
// is refused; the doctor gives advice.
type Limit struct {
	Unit  string                      // of Have, Taken and Need; empty: they are counts
	Key   string                      // of the doctor's line; empty: the doctor prints none from this entry
	What  string                      // name of the limit
	Have  func(machine.Machine) int64 // 0: not shown, or no limit
	Taken func(machine.Machine) int64 // the part already in use; nil: not subtracted
	Need  func(Demand) int64
	None  string // what the doctor says where Have is 0; empty: nothing
	Means string // what the doctor says where there is enough
	// Refusal is a format of Have that says why a run is refused; empty: a run goes ahead.
	Refusal string
	Raise   string                       // the command that raises the limit, with the number to raise it to, or with File
	File    func(machine.Machine) string // that says what the limit is; nil: Raise and Refusal name it
	Times   int64                        // that number is this many times the need
}

// Limits lists every limit.
var Limits = []Limit{
	{
		What: "open files", Have: func(m machine.Machine) int64 { return m.Limits.FilesHard }, Need: filesNeeded,
		Refusal: "the hard limit of open files is %d", Raise: "ulimit -Hn %d", Times: 1,
	},
	{
		What: "neighbour table", Have: func(m machine.Machine) int64 { return m.Limits.Neighbours[2] },
		Need:    Demand.Neighbours,
		Refusal: "the machine's table of neighbours has room for %d",
		Raise:   "sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=%d", Times: 2,
	},
	{
		Key: "limit.pid-max", What: "pid_max", Have: func(m machine.Machine) int64 { return m.Limits.PIDMax },
		Taken: tasksNow, Need: Demand.Tasks,
		Means: "programs and threads of the labs fit", Refusal: moreTasks, Raise: "sudo sysctl -w kernel.pid_max=%d",
		Times: 4,
	},
	{
		Key: "limit.threads-max", What: "threads-max", Have: func(m machine.Machine) int64 { return m.Limits.ThreadsMax },
		Taken: tasksNow, Need: Demand.Tasks,
		Means: "programs and threads of the labs fit", Refusal: moreTasks, Raise: "sudo sysctl -w kernel.threads-max=%d",
		Times: 4,
	},
	{
		Key: "limit.pids-cgroup", What: "tasks of the group", Have: func(m machine.Machine) int64 {
			return m.Limits.GroupTasks.Limit
		}, Need: Demand.Tasks, None: "no control group limits tasks",
		Taken:   func(m machine.Machine) int64 { return m.Limits.GroupTasks.Used },
		Means:   "programs and threads of the labs fit",
		Refusal: "the control group has room for %d more processes and threads",
		File:    func(m machine.Machine) string { return m.Limits.GroupTasks.File },
		Raise:   "podman run --pids-limit=-1 …, or a higher number in %s",
	},
	{
		Key: "limit.memory-cgroup", What: "KiB of the group", Unit: "KiB", Have: func(m machine.Machine) int64 {
			return m.Limits.GroupKiB.Limit
		}, Need: Demand.MemoryKiB, None: "no control group limits memory",
		Taken: func(m machine.Machine) int64 { return m.Limits.GroupKiB.Used },
		Means: "programs of the labs fit", Refusal: "the control group has room for %d KiB of memory",
		File:  func(m machine.Machine) string { return m.Limits.GroupKiB.File },
		Raise: "podman run without --memory …, or a higher number in %s",
	},
	{
		Key: "limit.net-namespaces", What: "net namespaces", Have: func(m machine.Machine) int64 {
			return m.Limits.Namespaces
		}, Need: Demand.Namespaces, None: "the kernel sets no limit",
		Taken: func(m machine.Machine) int64 { return m.Limits.InUse },
		Means: "each host and each client has its own", Refusal: "the machine's room for more network namespaces is %d",
		Raise: "sudo sysctl -w user.max_net_namespaces=%d", Times: 1,
	},
	{
		Key: "limit.conntrack", What: "conntrack", Have: func(m machine.Machine) int64 { return m.Limits.Conntrack },
		Need: Demand.Flows, None: "not loaded, or not shown in this network namespace",
		Means: "no flow is dropped for want of an entry", Raise: "sudo sysctl -w net.netfilter.nf_conntrack_max=%d", Times: 4,
	},
	{
		What: "memory", Unit: "KiB", Have: func(m machine.Machine) int64 { return m.Memory.Available },
		Need:    Demand.MemoryKiB,
		Refusal: "the machine has %d KiB of memory to give",
	},
}

const moreTasks = "the machine's room for more processes and threads is %d"

func tasksNow(m machine.Machine) int64 { return m.Limits.Tasks }

// Advice is the command that raises the limit for a demand, with a reserve.
func (l Limit) Advice(m machine.Machine, d Demand) string {
	if l.File != nil {
		return fmt.Sprintf(l.Raise, l.File(m))
	}
	return fmt.Sprintf(l.Raise, l.Times*(l.taken(m)+l.Need(d)))
}

func (l Limit) taken(m machine.Machine) int64 {
	if l.Taken == nil {
		return 0
	}
	return l.Taken(m)
}

// checkLimits refuses a demand that exceeds limits. The error names each exceeded limit with
// the number of clients that would fit and how to raise the limit.
func checkLimits(m machine.Machine, d Demand) error {
	var errs []error
	for _, l := range Limits {
		have, need := l.Have(m)-l.taken(m), l.Need(d)
		if l.Refusal == "" || l.Have(m) == 0 || need <= have {
			continue
		}
		errs = append(errs, l.refuse(m, d))
	}
	return errors.Join(errs...)
}

// refuse is why a demand does not go, with how many clients would and how to raise the limit.
func (l Limit) refuse(m machine.Machine, d Demand) error {
	have, need := l.Have(m)-l.taken(m), l.Need(d)
	text := fmt.Sprintf(l.Refusal, have)
	if l.File != nil {
		text += fmt.Sprintf(" (%s)", l.File(m))
	}
	text += fmt.Sprintf(", and %s takes %d", d, need)
	fit := d.Fits(have, l.Need)
	switch least := l.Need(d.with(fit)); {
	case least > have && l.Raise != "":
		return fmt.Errorf("%s, with one client %d: raise it: %s", text, least, l.Advice(m, d))
	case least > have:
		return fmt.Errorf("%s, with one client %d", text, least)
	case l.Raise != "":
		return fmt.Errorf(
			"clients: %s: about %s, or raise it: %s", text, words.Agreed(fit, "client fits", "clients fit"), l.Advice(m, d))
	}
	return fmt.Errorf("clients: %s: about %s", text, words.Agreed(fit, "client fits", "clients fit"))
}

// mostWorkers bounds the processes that share a host's streams where each process may open
// few files. With the usual limit five processes share 65,000 streams; the threads of many
// more would compete for the CPUs.
const mostWorkers = 8

// filesNeeded are the least open files of a process with which a demand can be met:
// several processes share the streams of personas.
func filesNeeded(d Demand) (n int64) {
	for _, s := range d.Sides {
		need := Demand{Sides: []experiment.Side{s}}.Files()
		if client.KindOf(s.Client).Shared {
			need = int64(agent.MinOpenFiles((s.Clients + mostWorkers - 1) / mostWorkers))
		}
		n = max(n, need)
	}
	return n
}

// raiseFiles raises this process's hard limit of open files, which agents inherit, to a
// demand's number of files, if the limit is lower and the system allows it. said is the
// message when the limit was raised; undo restores it.
func raiseFiles(d Demand) (text string, undo func()) {
	undo = func() {}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil || before.Max >= uint64(d.Files()) {
		return "", undo
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: before.Cur, Max: uint64(d.Files())}); err != nil {
		return "", undo // a container without the capability, or beyond fs.nr_open
	}
	return fmt.Sprintf(
			"The hard limit of open files was raised from %d to %d, for this run's processes only.", before.Max, d.Files()),
		func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) } // lowering is always allowed
}
