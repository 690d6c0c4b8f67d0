package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// kept is how well a machine's clock is kept.
type kept struct {
	bound time.Duration
	own   bool // it follows none but itself
}

// askClocks asks the machines at the ends of the traffic what keeps their clocks right. Their common bound is the sum
// of both: either may be off by its own, to either side.
func (b *overSSH) askClocks(ctx context.Context) (Clock, error) {
	var mu sync.Mutex
	found := map[string]kept{}
	err := Each(slices.Sorted(maps.Keys(b.machines)), func(_ int, host string) error {
		m := b.machines[host]
		if len(m.Links[portLAN]) > 0 {
			return nil // the router stamps nothing
		}
		c, err := m.keeper.Clock(ctx)
		if err != nil {
			return &HostError{host, "clock", fmt.Errorf("reading how well the clock of %s is kept: %w", m.Address, err)}
		}
		mu.Lock()
		defer mu.Unlock()
		found[host] = kept{c.Bound, c.Own}
		return nil
	})
	if err != nil {
		return Clock{}, err
	}
	clock, own := Clock{Common: true, Kept: true}, ""
	for _, host := range slices.Sorted(maps.Keys(found)) {
		c := found[host]
		clock.Bound += c.bound
		if c.own && own != "" {
			return clock, &HostError{
				host, "clock", fmt.Errorf("the clocks of %s and %s follow none but themselves: have chronyd "+
					"of one follow the other's (server %s iburst)", b.machines[own].Address, b.machines[host].Address, own)}
		}
		if c.own {
			own = host
		}
	}
	return clock, nil
}
