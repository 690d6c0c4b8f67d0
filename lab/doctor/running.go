package doctor

import (
	"fmt"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// runningLab is a lab that measures on this machine while it is examined.
type runningLab struct {
	is     bool
	pid    int
	folder string
}

// waitForRun is the remedy where another run disturbs the examination.
const waitForRun = "wait for the other run, then: gateweigh doctor"

func runningNow() (r runningLab) {
	holder, folder, is := strings.Cut(runner.Holder(), ", folder ")
	if _, err := fmt.Sscanf(holder, "process %d", &r.pid); is && err == nil {
		r.is, r.folder = true, folder
	}
	return r
}

func (r runningLab) String() string {
	return fmt.Sprintf("a gateweigh run (process %d, folder %s)", r.pid, r.folder)
}

// parted are the programs of the run, and the others. Polling threads of links are the run's: they are the kernel's,
// and without labs there are hardly any.
func (r runningLab) parted(list []machine.User) (own, others []machine.User) {
	for _, u := range list {
		if r.is && (strings.HasPrefix(u.Name, "napi/") || descendsFrom(u.PID, r.pid)) {
			own = append(own, u)
		} else {
			others = append(others, u)
		}
	}
	return own, others
}

// descendsFrom reports whether a process is another one, or was started by it or by what it has started.
func descendsFrom(pid, from int) bool {
	for pid > 1 && pid != from {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return false // it has ended
		}
		stat, err := p.Stat()
		if err != nil {
			return false
		}
		pid = stat.PPID
	}
	return pid == from
}

// checks returns the checks of the run and of its programs.
func (r runningLab) checks(users []machine.User) []Check {
	if !r.is {
		return nil
	}
	var cores float64
	for _, u := range users {
		cores += u.Cores
	}
	return []Check{checkOf(
		"machine.run", "a run", fmt.Sprintf("%s measures and uses %.1f %% of a core", r, 100*cores), "", waitForRun)}
}
