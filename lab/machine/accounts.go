package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// routerThread recognises the polling threads of the lab's routers by name.
var routerThread = regexp.MustCompile(`^napi/g[a-z0-9]{5}-r[01]`)

// Accounts are the CPU times of the routers' polling threads at one moment, by exact
// accounts and by ticks.
type Accounts struct {
	AtNs    int64           `json:"at_ns"`   // the machine's monotonic clock
	Threads map[int]Account `json:"threads"` // by thread id
	Busy    int64           `json:"busy"`    // ticks that found the routers' CPUs at work, by /proc/stat
	Idle    int64           `json:"idle"`    // ticks of the same CPUs without work, with steal; the kernel's idle loop counts them exactly
}

// Account is one thread's CPU time by both methods.
type Account struct {
	Ns    int64 `json:"ns"`
	Ticks int64 `json:"ticks"`
}

// ReadAccounts reads them now, for the routers' CPUs, on one of the CPUs own. A thread
// that ends meanwhile is left out.
func ReadAccounts(router, own []int) Accounts {
	done := make(chan Accounts)
	go func() {
		runtime.LockOSThread() // never unlocked: the bound thread ends with the goroutine
		bind(own)
		done <- readAccounts(router)
	}()
	return <-done
}

func readAccounts(router []int) Accounts {
	b := Accounts{AtNs: meter.MonotonicNs(), Threads: map[int]Account{}}
	for _, tid := range routerThreads() {
		sched, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
		stat, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
		exact, err3 := meter.ParseSchedstat(sched)
		ticks, err4 := parseTicks(stat)
		if errors.Join(err1, err2, err3, err4) == nil {
			b.Threads[tid] = Account{exact.RunNs, ticks}
		}
	}
	if raw, err := os.ReadFile("/proc/stat"); err == nil {
		if _, cpus, err := meter.ParseProcStat(bytes.NewReader(raw)); err == nil {
			for cpu, s := range cpus {
				if slices.Contains(router, cpu) {
					idle := s.Idle + s.IOWait + s.Steal
					b.Busy, b.Idle = b.Busy+s.Total()-idle, b.Idle+idle
				}
			}
		}
	}
	return b
}

func routerThreads() (tids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile("/proc/" + e.Name() + "/comm"); err == nil && routerThread.Match(comm) {
			tids = append(tids, tid)
		}
	}
	return tids
}

// parseTicks reads utime + stime, fields 14 and 15, from /proc/PID/stat (proc_pid_stat(5)).
func parseTicks(b []byte) (int64, error) {
	end := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[end+1:]) // f[0] is field 3
	if end < 0 || len(f) < 13 {
		return 0, errors.New("stat: want at least 15 fields")
	}
	u, err1 := strconv.ParseInt(string(f[11]), 10, 64)
	s, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return u + s, nil
}
