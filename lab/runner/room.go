package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// room is what the machine's limits leave. Zero: not shown here, or no limit.
type room struct {
	neighbours int64 // entries of its table, for all namespaces together
	tasks      int64 // processes and threads beside those there are
	namespaces int64
	files      int64 // open files of a process, the hard limit
	memoryKiB  int64
}

// machineRoom reads the limits. What cannot be read is not checked: the lab then finds
// out by itself.
func machineRoom() room {
	r := room{
		neighbours: numberIn("/proc/sys/net/ipv4/neigh/default/gc_thresh3"), // only the machine's own namespace has it
		namespaces: numberIn("/proc/sys/user/max_net_namespaces"),
	}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if most := numberIn(file) - tasksNow(); most > 0 && (r.tasks == 0 || most < r.tasks) {
			r.tasks = most
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Max < 1<<62 {
		r.files = int64(files.Max)
	}
	if m, err := meter.ReadMemory(); err == nil {
		r.memoryKiB = m.Available
	}
	return r
}

// numberIn is the number that a file holds, 0 without one.
func numberIn(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// tasksNow is how many processes and threads there are: the fourth field of
// /proc/loadavg, "3/602".
func tasksNow() (n int64) {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) > 3 {
		_, all, _ := strings.Cut(f[3], "/")
		n, _ = strconv.ParseInt(all, 10, 64)
	}
	return n
}

// mostWorkers bounds the processes that share a host's streams where each may have few
// open files: five are what 65,000 streams are shared by elsewhere, and threads of many more
// would get into each other's way.
const mostWorkers = 8

// check refuses a demand that a limit has no room for, with the number of clients that
// would fit and how to raise the limit; all of them at once.
func (r room) check(d Demand) error {
	var errs []error
	for _, limit := range []struct {
		have  int64
		taken func(Demand) int64
		what  string // the limit and what it holds, in the words "table with room for %d"
		raise string // with the number to raise it to
		times int64  // how much more than is needed it is to be raised to
	}{
		{r.neighbours, Demand.Neighbours, "the machine's table of neighbours has room for %d", "sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=%d", 2},
		{r.namespaces, Demand.Namespaces, "the machine has room for %d network namespaces", "sudo sysctl -w user.max_net_namespaces=%d", 2},
		{r.tasks, Demand.Tasks, "the machine has room for %d more processes and threads", "sudo sysctl -w kernel.pid_max=%[1]d kernel.threads-max=%[1]d", 4},
		{r.memoryKiB, Demand.MemoryKiB, "the machine has %d KiB of memory to give", "", 0},
		{r.files, filesNeeded, "the hard limit of open files is %d", "ulimit -Hn %d", 1},
	} {
		need := limit.taken(d)
		if limit.have == 0 || need <= limit.have {
			continue
		}
		text := fmt.Sprintf("clients: "+limit.what+", and %s takes %d: about %d clients fit", limit.have, d, need, d.Fits(limit.have, limit.taken))
		if limit.raise != "" {
			text += fmt.Sprintf(", or raise it: "+limit.raise, limit.times*need)
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// filesNeeded are the least open files of a process with which a demand can be met:
// several processes share the streams of clients that share their host's files.
func filesNeeded(d Demand) (n int64) {
	for _, s := range d.Sides {
		need := Demand{Sides: []experiment.Side{s}}.Files()
		if client.KindOf(s.Client).Shared {
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
