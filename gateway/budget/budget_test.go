package budget

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var five = Rate{AtOnce: 5, EachSecond: 10}

// count calls f with the times of ten seconds, one every 10 ms, and returns how often it was true.
func count(f func(now int64) bool) (n int) {
	for tick := range int64(1000) {
		if f(int64(time.Hour) + tick*int64(10*time.Millisecond)) {
			n++
		}
	}
	return n
}

// TestClock: a bucket gives its tokens at once, and then as many as its rate.
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

// TestClockOfManyThreads: several threads together get no more tokens than one.
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

// TestCharge: events that were charged beyond the bucket must be made up for before others are allowed.
func TestCharge(t *testing.T) {
	var c Clock
	now := int64(time.Hour)
	c.Charge(five, 25, now)
	for after, want := range map[int64]bool{0: false, 1999: false, 2099: false, 2100: true} {
		if got := c.Has(five, 1, now+after*int64(time.Millisecond)); got != want {
			t.Errorf("%d ms after 25 of 5: %v", after, got)
		}
	}
}

// TestSenders: a sender that is remembered has its own bucket, whatever others send.
func TestSenders(t *testing.T) {
	s := Senders[int]{Rate: five, Size: 100}
	other := 0
	n := count(func(now int64) bool {
		passed := s.Spend(0, false, now)
		for range 100 {
			other++
			s.Spend(other, false, now)
		}
		return passed
	})
	if s.bySender.Len() > 100 {
		t.Errorf("%d senders are remembered", s.bySender.Len())
	}
	if n < 5+99 || n > 5+100 {
		t.Errorf("%d of the sender's own", n)
	}
	flood := Senders[int]{Rate: five, Size: 100}
	n = count(func(now int64) bool { return flood.Spend(1, false, now) })
	if n > 5+100 || flood.Refused() != uint64(1000-n) {
		t.Errorf("%d passed and %d were refused", n, flood.Refused())
	}
}

// TestMadeUpSenders: a device that makes up a sender for each message has no more than the shared bound, also once the
// table is full, and takes nothing from senders with a lease or that are remembered.
func TestMadeUpSenders(t *testing.T) {
	s := Senders[int]{Rate: five, Size: 100}
	passed, made := 0, 1000
	leased, first := 0, 0
	count(func(now int64) bool {
		if first == 0 && s.Spend(1, false, now) {
			first = 1
		}
		for range 50 {
			if made++; s.Spend(made, false, now) {
				passed++
			}
		}
		if s.Spend(2, true, now) {
			leased++
		}
		return true
	})
	// Half of the table at once, and in ten seconds, in which a bucket fills twenty times, half of it each time.
	if most := 50 + 20*50; passed > most || passed < most/2 {
		t.Errorf("%d of made-up senders, want at most %d", passed, most)
	}
	if leased < 5+99 || first == 0 {
		t.Errorf("%d of a sender with a lease, %d of an early one", leased, first)
	}
}
