// How exact the clocks of the backend SSH's machines are.

package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// clockQuality is how exact a machine's clock is.
type clockQuality struct {
	bound          time.Duration // largest difference to its reference
	unsynchronised bool          // its reference is itself
}

// askClocks asks the endpoints' machines how exact their clocks are. Each may be off by its bound, in opposite
// directions, so the bound of the difference is the sum of both.
func (b *overSSH) askClocks(ctx context.Context) (Clock, error) {
	var mu sync.Mutex
	found := map[string]clockQuality{}
	err := Each(slices.Sorted(maps.Keys(b.machines)), func(_ int, host string) error {
		m := b.machines[host]
		if len(m.Links[portLAN]) > 0 {
			return nil // no stamps are made on the router
		}
		c, err := m.keeper.Clock(ctx)
		if err != nil {
			return &HostError{host, "clock", fmt.Errorf("reading how well the clock of %s is kept: %w", m.Address, err)}
		}
		mu.Lock()
		defer mu.Unlock()
		found[host] = clockQuality{c.Bound, c.Unsynchronised}
		return nil
	})
	if err != nil {
		return Clock{}, err
	}
	clock, unsynchronised := Clock{Common: true, Kept: true}, ""
	for _, host := range slices.Sorted(maps.Keys(found)) {
		c := found[host]
		clock.Bound += c.bound
		if c.unsynchronised && unsynchronised != "" {
			return clock, &HostError{
				host, "clock", fmt.Errorf("the clocks of %s and %s follow none but themselves: have chronyd "+
					"of one follow the other's (server %s iburst)", b.machines[unsynchronised].Address, b.machines[host].Address,
					unsynchronised)}
		}
		if c.unsynchronised {
			unsynchronised = host
		}
	}
	return clock, nil
}
