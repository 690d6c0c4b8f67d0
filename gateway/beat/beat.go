// Package beat has those that look at something from time to time do so at the same moments: a CPU that wakes for one of them
// serves all. Waking costs an idle daemon more than what it then does.
package beat

import "time"

// Ticker is a time.Ticker of which all of a period tick at the same moments.
type Ticker struct {
	C     <-chan time.Time
	tick  *time.Ticker
	begin *time.Timer
}

// Every returns a ticker for multiples of d.
func Every(d time.Duration) *Ticker {
	first := d - time.Duration(time.Now().UnixNano())%d
	tick := time.NewTicker(first)
	return &Ticker{tick.C, tick, time.AfterFunc(first, func() { tick.Reset(d) })}
}

// Stop ends it, as a time.Ticker's.
func (t *Ticker) Stop() {
	t.begin.Stop()
	t.tick.Stop()
}
