// Package beat has those that look at something from time to time do so at the same moments: a CPU that wakes for one of them
// serves all. Waking costs an idle daemon more than what it then does.
package beat

import "time"

// Every returns a ticker for multiples of d.
func Every(d time.Duration) *time.Ticker {
	first := d - time.Duration(time.Now().UnixNano())%d
	t := time.NewTicker(first)
	time.AfterFunc(first, func() { t.Reset(d) })
	return t
}
