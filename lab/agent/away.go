package agent

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/realtime"
)

// WatchCPUs watches CPUs until the agent ends: see Away. False: it may not, for want of real-time priority.
func (a *Agent) WatchCPUs(_ context.Context, cpus []int) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cpu := range cpus {
		w, err := realtime.StartWatch(context.Background(), cpu)
		if errors.Is(err, realtime.ErrDenied) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		a.watches = append(a.watches, w)
	}
	return true, nil
}

// Away is the longest time for which one of the watched CPUs worked for nobody since the request before.
func (a *Agent) Away(context.Context) (longest time.Duration, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		longest = max(longest, w.Longest())
	}
	return longest, nil
}
