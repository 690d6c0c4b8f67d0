package agent

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/watch"
)

// WatchCPUs watches CPUs until the agent ends: see Away. False: it may not.
func (a *Agent) WatchCPUs(_ context.Context, cpus []int) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cpu := range cpus {
		w, err := watch.Start(cpu)
		if errors.Is(err, watch.ErrDenied) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		a.watched = append(a.watched, w)
	}
	return true, nil
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
