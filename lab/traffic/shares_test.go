package traffic

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// sharesOf returns the shares of streams that have carried these bytes.
func sharesOf(bytes ...int64) (s Shares) {
	for _, n := range bytes {
		s = s.With(Shares{1, float64(n), float64(n) * float64(n), n, n})
	}
	return s
}

// TestJain: Jain's fairness index of streams, and the largest possible index (even) if each stream carries whole bursts
// of 100 bytes.
func TestJain(t *testing.T) {
	const burst = 100
	for _, tt := range []struct {
		name       string
		bytes      []int64
		jain, even float64
	}{
		{"none", nil, 0, 0},
		{"nothing carried", []int64{0, 0}, 0, 0},
		{"all alike", []int64{300, 300, 300}, 1, 1},
		{"one has all", []int64{400, 0, 0, 0}, 0.25, 1},
		// 25/(4·7): one stream of four had its second burst already.
		{"as even as bursts allow", []int64{100, 100, 100, 200}, 25. / 28, 25. / 28},
		{"less than a burst each", []int64{100, 0, 0, 0, 0}, 0.2, 0.2},
	} {
		s := sharesOf(tt.bytes...)
		if got := s.Jain(); math.Abs(got-tt.jain) > 1e-9 {
			t.Errorf("%s: Jain %v, want %v", tt.name, got, tt.jain)
		}
		if got := s.Even(burst); math.Abs(got-tt.even) > 1e-9 {
			t.Errorf("%s: at most %v, want %v", tt.name, got, tt.even)
		}
	}
	a, b := sharesOf(5, 7), sharesOf(2)
	if got, want := a.With(b), sharesOf(5, 7, 2); got != want || got.Min != 2 || got.Max != 7 {
		t.Errorf("two sets together: %+v, want %+v", got, want)
	}
}

// TestSharesCountFromTheMark: the receiving end counts the streams' bytes from the last mark on.
func TestSharesCountFromTheMark(t *testing.T) {
	r := newRun(0, Config{Streams: 3, Direction: result.Down})
	for i := range r.streams {
		r.streams[i].bytes.Store(int64(1000 * i))
	}
	var s Stats
	if r.addToStats(&s); s.Shares != (Shares{}) {
		t.Errorf("before the first mark: %+v", s.Shares)
	}
	r.mark()
	r.streams[1].bytes.Add(40)
	r.streams[2].bytes.Add(20)
	if r.addToStats(&s); s.Shares != sharesOf(0, 40, 20) {
		t.Errorf("since the mark: %+v, want 0, 40 and 20", s.Shares)
	}
	if r.mark(); r.shares() != sharesOf(0, 0, 0) {
		t.Errorf("marked again: %+v", r.shares())
	}
	sender := newRun(0, Config{Streams: 1, Direction: result.Up})
	if sender.mark(); sender.shares() != (Shares{}) {
		t.Errorf("the sending end has shares too: %+v", sender.shares())
	}
}
