package machine

import (
	"errors"
	"os"
	"regexp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Accounts are the CPU times of the routers' polling threads at one moment, by exact
// accounts and by ticks.
type Accounts struct {
	AtNs    int64           `json:"at_ns"`   // the machine's monotonic clock
	Threads map[int]Account `json:"threads"` // by thread id
	Busy    int64           `json:"busy"`    // ticks that found the routers' CPUs at work, by /proc/stat
	// ticks of the same CPUs without work, with steal; the kernel's idle loop counts them exactly
	Idle int64 `json:"idle"`
}

// Account is one thread's CPU time by both methods.
type Account struct {
	Ns    int64 `json:"ns"`
	Ticks int64 `json:"ticks"`
}

// Routers says which threads and CPUs Accounts are of.
type Routers struct {
	Links string `json:"links"` // a regular expression of the names of their interfaces
	CPUs  []int  `json:"cpus"`
}

// ReadAccounts reads them now, on one of the CPUs own. A thread that ends meanwhile is left out.
func ReadAccounts(routers Routers, own []int) (a Accounts) {
	onCPUs(own, func() { a = readAccounts(routers) })
	return a
}

func readAccounts(routers Routers) Accounts {
	a := Accounts{AtNs: meter.MonotonicNs(), Threads: map[int]Account{}}
	links := regexp.MustCompile(routers.Links)
	polling, _ := meter.PollingThreads() // an error: no threads are shown
	for tid, name := range polling {
		if !links.MatchString(name) {
			continue
		}
		exact, err1 := meter.ReadThread(tid)
		sampled, err2 := meter.ReadStat(tid)
		if errors.Join(err1, err2) == nil {
			a.Threads[tid] = Account{exact.RunNs, sampled.Ticks}
		}
	}
	raw, _ := os.ReadFile("/proc/stat")
	_, cpus, _ := meter.ParseProcStat(string(raw)) // an error: no CPUs
	for cpu, s := range cpus {
		if slices.Contains(routers.CPUs, cpu) {
			idle := s.Idle + s.IOWait + s.Steal
			a.Busy, a.Idle = a.Busy+s.Total()-idle, a.Idle+idle
		}
	}
	return a
}
