package machine

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// User is a process that uses CPU time.
type User struct {
	PID   int     `json:"pid"`
	Name  string  `json:"name"`
	Cores float64 `json:"cores"` // CPU time divided by wall time
}

// watchTime is how long Busiest watches processes.
const watchTime = time.Second

// Busiest watches the machine for a second and lists the processes that used CPU time, the busiest
// first. It leaves out this process and its parent, the lab.
func Busiest(ctx context.Context) ([]User, error) {
	before, start := processes(), time.Now()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(watchTime):
	}
	seconds := time.Since(start).Seconds()
	var list []User
	for pid, now := range processes() {
		if earlier, known := before[pid]; known && earlier.Start == now.Start && now.RunNs > earlier.RunNs {
			list = append(list, User{pid, now.Name, float64(now.RunNs-earlier.RunNs) / 1e9 / seconds})
		}
	}
	slices.SortFunc(list, func(a, b User) int { return cmp.Or(cmp.Compare(b.Cores, a.Cores), cmp.Compare(a.PID, b.PID)) })
	return list, nil
}

// processes reads the exact CPU time of every process but this one and its parent.
func processes() map[int]meter.Process {
	found := map[int]meter.Process{}
	pids, _ := meter.PIDs() // an error: no processes are shown
	for _, pid := range pids {
		if pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		if p, err := meter.ReadProcess(pid); err == nil { // an error: it has ended meanwhile
			found[pid] = p
		}
	}
	return found
}
