package machine

import (
	"errors"
	"os"
	"regexp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Accounts are the CPU times of the routers' polling threads at one moment, by two of the kernel's methods: exactly,
// and by ticks, that is by what a CPU does when its timer interrupts it.
type Accounts struct {
	AtNs    int64           `json:"at_ns"`   // the machine's monotonic clock
	Threads map[int]Account `json:"threads"` // by thread id
	Busy    int64           `json:"busy"`    // ticks in which the routers' CPUs worked (/proc/stat)
	// Idle is the ticks in which the same CPUs did not work, steal included. The kernel counts idle time exactly.
	Idle int64 `json:"idle"`
}

// Account is one thread's CPU time by both methods.
type Account struct {
	Ns    int64 `json:"ns"`    // exact
	Ticks int64 `json:"ticks"` // of 10 ms
}

// Routers says whose accounts to read.
type Routers struct {
	Links string `json:"links"` // a regular expression for the names of the routers' interfaces
	CPUs  []int  `json:"cpus"`  // of the routers
}

// ReadAccounts reads the accounts while it runs on readerCPUs, so that it takes no time of the routers' CPUs. It leaves
// out threads that end meanwhile.
func ReadAccounts(routers Routers, readerCPUs []int) (a Accounts) {
	onCPUs(readerCPUs, func() { a = readAccounts(routers) })
	return a
}

// readAccounts is ReadAccounts on the calling thread's CPU.
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
