package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// user is a process and what it used while it was watched.
type user struct {
	pid   int
	name  string
	cores float64
}

// watchTime is how long other programs are watched.
const watchTime = time.Second

// watchProcesses lists the processes that used a CPU during a second, busiest
// first, without this one.
func watchProcesses(ctx context.Context) ([]user, error) {
	before, start := processes(), time.Now()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(watchTime):
	}
	seconds := time.Since(start).Seconds()
	var list []user
	for pid, now := range processes() {
		if was, known := before[pid]; known && was.Start == now.Start && now.RunNs > was.RunNs {
			list = append(list, user{pid, now.Name, float64(now.RunNs-was.RunNs) / 1e9 / seconds})
		}
	}
	slices.SortFunc(list, func(a, b user) int { return cmp.Or(cmp.Compare(b.cores, a.cores), cmp.Compare(a.pid, b.pid)) })
	return list, nil
}

// processes reads the exact CPU time of every other process there is.
func processes() map[int]meter.Process {
	found := map[int]meter.Process{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, err := meter.ReadProcess(pid); err == nil { // otherwise it has ended meanwhile
			found[pid] = p
		}
	}
	return found
}

const (
	maxOtherCores = 0.05 // of one core: more shows in the clean router's figures
	shownUsers    = 3
	shownCores    = 0.02
)

// busyLine judges what other programs use.
func busyLine(list []user) Line {
	var all float64
	var names []string
	for i, u := range list {
		all += u.cores
		if i < shownUsers && u.cores >= shownCores {
			names = append(names, fmt.Sprintf("%s (process %d) %.0f %%", u.name, u.pid, 100*u.cores))
		}
	}
	l := Line{
		Key: "machine.load", State: OK, What: "other programs", Found: fmt.Sprintf("%.1f %% of a core", 100*all),
		Means: "the lab has the CPUs to itself", Figures: map[string]analysis.Number{"core_pct": analysis.Number(100 * all)},
	}
	if len(names) > 0 {
		l.Found += ": " + strings.Join(names, ", ")
	}
	if all > maxOtherCores {
		l.State, l.Means, l.Do = Warn, "", "stop them while you measure; a duet cancels much of it, single values do not"
	}
	return l
}
