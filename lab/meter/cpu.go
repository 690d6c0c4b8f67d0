// Package meter reads what a host's work costs: exact CPU time by thread,
// link counters, memory. It runs in the host's agent; every reading is a plain
// counter, and differences are taken between two samples of one host.
package meter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// numbers parses decimal fields. file names the file below /proc that has them, for the error.
func numbers(file string, fields []string) ([]int64, error) {
	list := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		list[i] = n
	}
	return list, nil
}

// Thread is what one thread has used so far. The counters are those of its schedstat
// (Documentation/scheduler/sched-stats). Only RunNs of a polling thread comes from its task clock, which is more exact
// (see taskClock).
type Thread struct {
	TID    int   `json:"tid"`     // id on the machine, in whatever namespace the reader is; 0: of interrupts
	RunNs  int64 `json:"run_ns"`  // time on a CPU, nanoseconds
	WaitNs int64 `json:"wait_ns"` // time runnable but waiting for a CPU, nanoseconds
	Slices int64 `json:"slices"`  // times it was given a CPU
}

// ParseSchedstat reads one /proc/PID/schedstat: three decimal numbers.
func ParseSchedstat(b []byte) (Thread, error) {
	f := strings.Fields(string(b))
	if len(f) != 3 {
		return Thread{}, fmt.Errorf("schedstat: want 3 fields, have %d", len(f))
	}
	v, err := numbers("schedstat", f)
	if err != nil {
		return Thread{}, err
	}
	return Thread{RunNs: v[0], WaitNs: v[1], Slices: v[2]}, nil
}

// ReadThread reads the schedstat of a thread.
func ReadThread(tid int) (Thread, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
	if err != nil {
		return Thread{}, err
	}
	t, err := ParseSchedstat(raw)
	t.TID = tid
	return t, err
}

// PIDs lists the ids of all processes.
func PIDs() ([]int, error) { return ids("/proc") }

// PIDsIn lists the ids of the processes in one process namespace. pidLink is what the link /proc/PID/ns/pid of such a
// process holds: "pid:[4026531836]".
func PIDsIn(pidLink string) ([]int, error) {
	pids, err := PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return err != nil || link != pidLink
	}), err
}

// threads lists the ids of the threads of a process.
func threads(pid int) ([]int, error) { return ids(fmt.Sprintf("/proc/%d/task", pid)) }

// ids lists the entries of a folder whose names are numbers: processes in /proc, threads in /proc/PID/task.
func ids(path string) (list []int, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			list = append(list, id)
		}
	}
	return list, err
}

// PollingThreads finds the kernel threads that poll network interfaces (threaded NAPI). It returns, by thread id, the
// thread's name without the prefix "napi/": "IFNAME-ID". Older kernels cut this name to 10 bytes.
func PollingThreads() (map[int]string, error) {
	found := map[int]string{}
	pids, err := PIDs()
	for _, pid := range pids {
		// An error: the process has ended meanwhile.
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(comm)), "napi/"); ok {
			found[pid] = name
		}
	}
	return found, err
}

// Process is what one process has used so far.
type Process struct {
	PID    int    `json:"pid"`
	Parent int    `json:"parent"` // the process it belongs to, or that took it over
	Name   string `json:"name"`
	Start  int64  `json:"start"`   // ticks since boot; tells reused ids apart
	RunNs  int64  `json:"run_ns"`  // all threads, also ended ones
	WaitNs int64  `json:"wait_ns"` // run-queue wait of the living threads
	Ticks  int64  `json:"-"`       // user and system time of all threads, in ticks of 10 ms
}

// processesIn reads the counters of the processes in one process namespace (see PIDsIn), by process id. It leaves out
// those in skip.
func processesIn(pidLink string, skip map[int]bool) (map[int]Process, error) {
	found := map[int]Process{}
	pids, err := PIDsIn(pidLink)
	for _, pid := range pids {
		if skip[pid] {
			continue
		}
		if p, err := ReadProcess(pid); err == nil { // otherwise it has ended meanwhile
			found[pid] = p
		}
	}
	return found, err
}

// ReadStat reads /proc/PID/stat of one process or thread: name, parent, start and Ticks.
func ReadStat(pid int) (Process, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	return parseStat(raw)
}

// ReadProcess reads the counters of one process. RunNs comes from the
// process's CPU clock (clock_getcpuclockid(3)): exact, with ended threads and
// the time slice now running.
func ReadProcess(pid int) (Process, error) {
	p, err := ReadStat(pid)
	if err != nil {
		return Process{}, err
	}
	var ts unix.Timespec
	const cpuclockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	if err := unix.ClockGettime(int32(^pid<<3|cpuclockSched), &ts); err != nil {
		return Process{}, err
	}
	p.RunNs = ts.Nano()
	tids, err := threads(pid)
	for _, tid := range tids {
		t, _ := ReadThread(tid) // an error: it has ended meanwhile
		p.WaitNs += t.WaitNs
	}
	return p, err
}

// parseStat reads one /proc/PID/stat (proc_pid_stat(5)).
func parseStat(b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Process{}, errors.New("stat: no command name in parentheses")
	}
	f := strings.Fields(string(b[end+1:])) // f[0] is field 3, the state
	if len(f) < 20 {
		return Process{}, fmt.Errorf("stat: want at least 22 fields, have %d", len(f)+2)
	}
	v, err := numbers("stat", []string{strings.TrimSpace(string(b[:open])), f[1], f[11], f[12], f[19]})
	if err != nil {
		return Process{}, err
	}
	return Process{PID: int(v[0]), Parent: int(v[1]), Name: string(b[open+1 : end]), Ticks: v[2] + v[3], Start: v[4]}, nil
}

// pssKiB is the proportional set size of a process in KiB, from
// /proc/PID/smaps_rollup: shared pages count by their share.
func pssKiB(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	kib, err := ParseSizes("smaps_rollup", string(b), "Pss")
	return kib["Pss"], err
}

// ParseSizes reads lines "NAME: NUMBER kB", and returns the numbers (KiB) by name. file names the file that has the
// text, for errors. It is an error if the name needed is missing.
func ParseSizes(file, text, needed string) (map[string]int64, error) {
	kib := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			v, err := numbers(file+": "+name, f[:1])
			if err != nil {
				return nil, err
			}
			kib[name] = v[0]
		}
	}
	if _, found := kib[needed]; !found {
		return nil, fmt.Errorf("%s: no %s", file, needed)
	}
	return kib, nil
}
