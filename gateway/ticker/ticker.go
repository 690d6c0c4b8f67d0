// Package ticker has those that look at something from time to time do so at the same moments: a CPU that wakes for one
// of them serves all. Waking costs an idle daemon more than what it then does.
package ticker

import (
	"sync"
	"time"
)

// Ticker is like time.Ticker, but all tickers of one period tick at the same moments, so that the machine wakes less
// often.
type Ticker struct {
	C     <-chan time.Time
	tick  *time.Ticker
	first *time.Timer

	mu      sync.Mutex // guards stopped, and tick against begin
	stopped bool
}

// Every returns a ticker for multiples of d; the first comes after a tenth of d at least.
func Every(d time.Duration) *Ticker {
	first := d - time.Duration(time.Now().UnixNano())%d
	if first < d/10 { // it would come again before the period is set
		first += d
	}
	tick := time.NewTicker(first)
	t := &Ticker{C: tick.C, tick: tick}
	t.first = time.AfterFunc(first, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.stopped {
			tick.Reset(d)
		}
	})
	return t
}

// Stop ends it, as a time.Ticker's.
func (t *Ticker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.first.Stop()
	t.tick.Stop()
}
