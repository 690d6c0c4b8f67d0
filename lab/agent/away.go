package agent

import (
	"context"
	"time"

	"github.com/gateweigh/gateweigh/lab/watch"
)

// WatchCPUs starts to notice, until the agent ends, when one of the CPUs is away, that is runs nothing although it
// should: a hypervisor may have given it to another virtual machine. The result is why this is impossible here, or
// empty.
func (a *Agent) WatchCPUs(_ context.Context, cpus []int) (reason string, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cpu := range cpus {
		w, err := watch.Start(cpu)
		if err != nil {
			return err.Error(), nil
		}
		a.watched = append(a.watched, w)
	}
	return "", nil
}

// Away is the longest time for which a watched CPU was away since the last call.
func (a *Agent) Away(context.Context) (longest time.Duration, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watched {
		longest = max(longest, w.Away())
	}
	return longest, nil
}
