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
	Unit  string                      // unit of Have, Taken and Need; empty: they are counts
	Key   string                      // key of the doctor's line; empty: the doctor has no line for this limit
	What  string                      // name of the limit
	Have  func(machine.Machine) int64 // 0: not shown, or no limit
	Taken func(machine.Machine) int64 // the part already in use; nil: not subtracted
	Need  func(Demand) int64
	None  string // doctor's text if Have is 0; empty: no text
	Means string // doctor's text if the limit is high enough
	// Refusal is the text with which a run is refused. It is a format for Have. Empty: the run begins all the same.
	Refusal string
	Raise   string                       // command that raises the limit, with a place for the number or for File
	File    func(machine.Machine) string // file with the limit; nil: Raise and Refusal name it
	Times   int64                        // the number in Raise is this many times the need
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

// Advice returns the command that raises the limit for a demand, with a reserve.
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

// checkLimits refuses a demand that exceeds limits. The error names each exceeded limit, the number of clients that
// would fit, and the command that raises the limit.
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

// refuse says why a demand exceeds the limit, how many clients would fit, and how to raise the limit.
func (l Limit) refuse(m machine.Machine, d Demand) error {
	have, need := l.Have(m)-l.taken(m), l.Need(d)
	text := fmt.Sprintf(l.Refusal, have)
	if l.File != nil {
		text += fmt.Sprintf(" (%s)", l.File(m))
	}
	text += fmt.Sprintf(", and %s takes %d", d, need)
	fit := d.Fits(have, l.Need)
	switch least := l.Need(d.limitedTo(fit)); {
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

// mostWorkers is the largest number of processes that share a host's streams when each process may open only few files.
// With the usual limit five processes share 65,000 streams. The threads of many more processes would compete for the
// CPUs.
const mostWorkers = 8

// filesNeeded returns the smallest limit of open files for each process that meets a demand. Several processes may
// share the streams of personas (simulated clients).
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

// raiseFiles raises this process's hard limit of open files to a demand's number of files, if the limit is lower and
// the system allows it. Agents inherit the limit. text is the message about it, and undo restores the limit.
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
