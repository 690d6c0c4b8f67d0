package agent

import (
	"context"
	"time"

	"github.com/gateweigh/gateweigh/lab/watch"
)

// WatchCPUs watches CPUs until the agent ends: see Away. The text says why it cannot; empty: it does.
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

// Away is the longest time for which one of the watched CPUs was away since the request before.
func (a *Agent) Away(context.Context) (longest time.Duration, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watched {
		longest = max(longest, w.Away())
	}
	return longest, nil
}
