package budget

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var five = Rate{AtOnce: 5, EachSecond: 10}

// count returns how often f is true, asked every 10 ms for ten seconds.
func count(f func(now int64) bool) (n int) {
	for tick := range int64(1000) {
		if f(int64(time.Hour) + tick*int64(10*time.Millisecond)) {
			n++
		}
	}
	return n
}

func TestClock(t *testing.T) {
	var c Clock
	if n := count(func(now int64) bool { return c.Spend(five, now) }); n < 5+99 || n > 5+100 {
		t.Errorf("%d in ten seconds, want 5 and 10 a second", n)
	}
	var young Clock
	for range five.AtOnce {
		if !young.Spend(five, 1) {
			t.Error("a bucket is not full when the clock begins")
		}
	}
	later := 2 * int64(time.Hour)
	for i := range 6 {
		if got, want := c.Spend(five, later), i < 5; got != want {
			t.Errorf("after a silence, number %d: %v", i, got)
		}
	}
}

func TestClockOfManyThreads(t *testing.T) {
	var c Clock
	var n atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 1000 {
				if c.Spend(Rate{AtOnce: 100, EachSecond: 1}, int64(time.Hour)) {
					n.Add(1)
				}
			}
		})
	}
	running.Wait()
	if n.Load() > 100 {
		t.Errorf("%d of at most 100", n.Load())
	}
}

// TestSenders: each sender has its own bucket, memory is bounded, and a sender that is
// remembered stays bounded while others fill the table.
func TestSenders(t *testing.T) {
	s := Senders[int]{Rate: five, Size: 100}
	other := 0
	n := count(func(now int64) bool {
		for range 100 {
			other++
			if !s.Spend(other, now) {
				t.Fatal("a sender's first is refused")
			}
		}
		return s.Spend(0, now)
	})
	if len(s.used) > 100 {
		t.Errorf("%d senders are remembered", len(s.used))
	}
	if n < 5+99 {
		t.Errorf("%d of the sender's own", n)
	}
	flood := Senders[int]{Rate: five, Size: 100}
	if n := count(func(now int64) bool { return flood.Spend(1, now) }); n > 5+100 || flood.Refused() != uint64(1000-n) {
		t.Errorf("%d passed and %d were refused", n, flood.Refused())
	}
}
