package ticker

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestEvery: tickers with different periods that began at different times tick at the same moments.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, begin := range []time.Duration{0, 1, 130 * time.Millisecond, 999_999_999} {
			time.Sleep(begin)
			for _, d := range []time.Duration{250 * time.Millisecond, time.Second} {
				last := time.Time{}
				tick := Every(d)
				for range 5 {
					now := <-tick.C
					if now.UnixNano()%int64(d) != 0 {
						t.Errorf("a tick of every %v came at %v", d, now)
					}
					if !last.IsZero() && now.Sub(last) != d {
						t.Errorf("after %v came %v", last, now)
					}
					last = now
				}
				tick.Stop()
			}
		}
	})
}
