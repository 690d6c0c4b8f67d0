package doctor

import (
	"fmt"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// runningLab is the run that measures on this machine during the examination, if there is one.
type runningLab struct {
	measuring bool // there is one
	pid       int
	folder    string
}

// waitForRun is the remedy where another run disturbs the examination.
const waitForRun = "wait for the other run, then: gateweigh doctor"

// runningNow returns the run that measures now, which holds the lock of the machine (runner.Holder).
func runningNow() (r runningLab) {
	holder, folder, is := strings.Cut(runner.Holder(), ", folder ")
	if _, err := fmt.Sscanf(holder, "process %d", &r.pid); is && err == nil {
		r.measuring, r.folder = true, folder
	}
	return r
}

func (r runningLab) String() string {
	return fmt.Sprintf("a gateweigh run (process %d, folder %s)", r.pid, r.folder)
}

// splitPrograms separates the run's programs from the others. Polling threads of links count as the run's: they belong
// to the kernel, but without labs there are hardly any.
func (r runningLab) splitPrograms(list []machine.User) (own, others []machine.User) {
	for _, program := range list {
		if r.measuring && (strings.HasPrefix(program.Name, "napi/") || descendsFrom(program.PID, r.pid)) {
			own = append(own, program)
		} else {
			others = append(others, program)
		}
	}
	return own, others
}

// descendsFrom reports whether the process pid is ancestor or descends from it.
func descendsFrom(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
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
	return pid == ancestor
}

// checks returns the checks of the run and of its programs.
func (r runningLab) checks(users []machine.User) []Check {
	if !r.measuring {
		return nil
	}
	var cores float64
	for _, program := range users {
		cores += program.Cores
	}
	return []Check{checkOf(
		"machine.run", "a run", fmt.Sprintf("%s measures and uses %.1f %% of a core", r, 100*cores), "", waitForRun)}
}
