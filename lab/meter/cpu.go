// Package meter reads what a host's work costs: exact CPU time by thread,
// link counters, memory. It runs in the host's agent; every reading is a plain
// counter, and differences are taken between two samples of one host.
package meter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Thread is what one thread has used so far: its schedstat
// (Documentation/scheduler/sched-stats), but for polling threads RunNs, which
// is their TaskClock's.
type Thread struct {
	TID    int   `json:"tid"`     // on the machine, whatever namespace the reader is in
	RunNs  int64 `json:"run_ns"`  // time on a CPU, nanoseconds
	WaitNs int64 `json:"wait_ns"` // time runnable but waiting for a CPU, nanoseconds
	Slices int64 `json:"slices"`  // times it was given a CPU
}

// ParseSchedstat reads one /proc/PID/schedstat: three decimal numbers.
func ParseSchedstat(b []byte) (Thread, error) {
	f := bytes.Fields(b)
	if len(f) != 3 {
		return Thread{}, fmt.Errorf("schedstat: want 3 fields, have %d", len(f))
	}
	var v [3]int64
	for i := range v {
		n, err := strconv.ParseInt(string(f[i]), 10, 64)
		if err != nil {
			return Thread{}, fmt.Errorf("schedstat: %w", err)
		}
		v[i] = n
	}
	return Thread{RunNs: v[0], WaitNs: v[1], Slices: v[2]}, nil
}

// ThreadFile is an open schedstat, read again and again without a new look-up.
type ThreadFile struct {
	f   *os.File
	tid int
}

// OpenThread opens the schedstat of thread or process pid.
func OpenThread(pid int) (*ThreadFile, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening schedstat of %d (the kernel needs CONFIG_SCHED_INFO): %w", pid, err)
		}
		return nil, err
	}
	return &ThreadFile{f, pid}, nil
}

// Read returns the counters now.
func (t *ThreadFile) Read() (Thread, error) {
	var buf [128]byte
	n, err := t.f.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return Thread{}, err
	}
	th, err := ParseSchedstat(buf[:n])
	th.TID = t.tid
	return th, err
}

// Close closes the file.
func (t *ThreadFile) Close() error { return t.f.Close() }

// NAPIThreads finds the kernel threads that poll the given interfaces,
// "napi/IFNAME-ID", and returns their process ids by interface name. Older
// kernels cut thread names to 15 bytes, so interface names must differ in
// their first 10.
func NAPIThreads(ifnames []string) (map[string][]int, error) {
	found := map[string][]int{}
	err := eachProcess(func(pid int) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !bytes.HasPrefix(comm, []byte("napi/")) {
			return // ended meanwhile, or another program
		}
		name := strings.TrimSpace(string(comm[len("napi/"):]))
		for _, ifname := range ifnames {
			if name == ifname || strings.HasPrefix(name, ifname+"-") {
				found[ifname] = append(found[ifname], pid)
			}
		}
	})
	return found, err
}

func eachProcess(visit func(pid int)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			visit(pid)
		}
	}
	return nil
}

// Process is what one process has used so far.
type Process struct {
	PID    int    `json:"pid"`
	Parent int    `json:"parent"` // the process it belongs to, or that took it over
	Name   string `json:"name"`
	Start  int64  `json:"start"`   // ticks since boot; tells reused ids apart
	RunNs  int64  `json:"run_ns"`  // all threads, also ended ones
	WaitNs int64  `json:"wait_ns"` // run-queue wait of the living threads
}

// ProcessesIn reads every process of a process namespace, named by its
// /proc/PID/ns/pid link, except those in skip.
func ProcessesIn(pidLink string, skip map[int]bool) ([]Process, error) {
	var list []Process
	err := eachProcess(func(pid int) {
		if skip[pid] {
			return
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err != nil || link != pidLink {
			return
		}
		if p, err := ReadProcess(pid); err == nil { // otherwise it has ended meanwhile
			list = append(list, p)
		}
	})
	return list, err
}

// ReadProcess reads the counters of one process. RunNs comes from the
// process's CPU clock (clock_getcpuclockid(3)): exact, with ended threads and
// the time slice now running.
func ReadProcess(pid int) (Process, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	p, err := ParseStat(raw)
	if err != nil {
		return Process{}, err
	}
	var ts unix.Timespec
	const cpuclockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	if err := unix.ClockGettime(int32(^pid<<3|cpuclockSched), &ts); err != nil {
		return Process{}, err
	}
	p.RunNs = ts.Nano()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return Process{}, err
	}
	for _, t := range tasks {
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name())); err == nil {
			if th, err := ParseSchedstat(raw); err == nil {
				p.WaitNs += th.WaitNs
			}
		}
	}
	return p, nil
}

// ParseStat reads pid, parent, name and start time from one /proc/PID/stat (proc_pid_stat(5)).
func ParseStat(b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Process{}, errors.New("stat: no command name in parentheses")
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return Process{}, fmt.Errorf("stat: %w", err)
	}
	f := bytes.Fields(b[end+1:]) // f[0] is field 3, the state
	if len(f) < 20 {
		return Process{}, fmt.Errorf("stat: want at least 22 fields, have %d", len(f)+2)
	}
	num := func(field int) int64 {
		n, perr := strconv.ParseInt(string(f[field-3]), 10, 64)
		if perr != nil && err == nil {
			err = fmt.Errorf("stat: field %d: %w", field, perr)
		}
		return n
	}
	p := Process{PID: pid, Parent: int(num(4)), Name: string(b[open+1 : end]), Start: num(22)}
	return p, err
}

// PSSKiB is the proportional set size of a process in KiB, from
// /proc/PID/smaps_rollup: shared pages count by their share.
func PSSKiB(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	return parsePSS(b)
}

func parsePSS(b []byte) (int64, error) {
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, errors.New("smaps_rollup: no Pss line")
}
