package daily

import (
	"errors"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestLimitsAreLifted: once the configuration limits the day no longer, sessions that go on have their own limits
// again; one that a room comes to share keeps its own, and not what its device had left.
func TestLimitsAreLifted(t *testing.T) {
	s := newScene(t, Amount{2 * time.Hour, 1000}, Amount{})
	s.must(s.begin(1, "204", session.Limits{}))
	s.must(s.begin(2, "204", session.Limits{SessionTimeout: 3 * time.Hour, TotalBytes: 5000}))
	if l := s.limits(2); l.SessionTimeout != 2*time.Hour || l.TotalBytes != 1000 {
		t.Fatalf("the day leaves %+v", l)
	}
	s.inRoom, s.terms.Device, s.terms.Room = true, Amount{}, Amount{Bytes: 1_000_000}
	s.kill()
	if one, two := s.limits(1), s.limits(2); one.SessionTimeout != 0 || one.TotalBytes != 1_000_000 ||
		(two.SessionTimeout-3*time.Hour).Abs() > time.Second || two.TotalBytes != 5000 {
		t.Errorf("with a day of the room alone: %+v, %+v", one, two)
	}
	s.terms.Room = Amount{}
	s.kill()
	if one, two := s.limits(1), s.limits(2); one != (session.Limits{}) ||
		(two.SessionTimeout-3*time.Hour).Abs() > time.Second || two.TotalBytes != 5000 {
		t.Errorf("without a day: %+v, %+v", one, two)
	}
}

// TestAgain: who has used up the day is told when the next one begins.
func TestAgain(t *testing.T) {
	s := newScene(t, Amount{Bytes: 1000}, Amount{})
	s.must(s.begin(1, "", session.Limits{}))
	s.use(1, 1000)
	err := s.begin(1, "", session.Limits{})
	later, is := err.(interface{ Again() time.Time })
	if !is || !errors.Is(err, session.ErrRejected) || !later.Again().Equal(time.Date(2026, 3, 2, 4, 0, 0, 0, time.UTC)) {
		t.Errorf("%v, %#v", err, err)
	}
}
