package routeradv

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestPauses: whatever asks for advertisements, there is a pause between two to the same audience, and what is planned
// is never put off.
func TestPauses(t *testing.T) {
	now := time.Now()
	all, one := &audience{last: now}, &audience{last: now}
	s := &Server{all: all, wake: make(chan struct{}, 1)}
	for _, tt := range []struct {
		to         *audience
		asked, due time.Duration
	}{
		{all, time.Minute, time.Minute},
		{all, 0, minInterval},
		{all, time.Hour, minInterval},
		{all, minInterval + 1, minInterval},
		{one, 0, clientPause},
		{one, time.Second, clientPause},
	} {
		s.bring(tt.to, now.Add(tt.asked))
		if got := tt.to.at.Sub(now); got != tt.due {
			t.Errorf("asked for after %s, it comes after %s, not %s", tt.asked, got, tt.due)
		}
	}
	if first, _ := s.next(now.Add(time.Second)); first != one {
		t.Errorf("%+v is first", first)
	}
	if first, wait := s.next(now.Add(time.Second)); first != nil || wait != minInterval-time.Second {
		t.Errorf("%+v is due, or something after %s", first, wait)
	}
}

// TestIntervals: three advertisements come at intervals of 16 s at most, the others at random ones of the range.
func TestIntervals(t *testing.T) {
	cfg, err := config().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: cfg, all: &audience{soon: initialAdverts}, wake: make(chan struct{}, 1)}
	now := time.Now()
	var seen []time.Duration
	for range 20 {
		s.all.last = now
		s.plan(s.all, true, now)
		seen = append(seen, s.all.at.Sub(now))
		now = s.all.at
		s.queue.Remove(s.all)
	}
	for i, interval := range seen {
		initial := i < initialAdverts-1
		if initial && interval != initialInterval ||
			!initial && (interval < cfg.MinInterval || interval > cfg.MaxInterval || interval == seen[i-1]) {
			t.Errorf("interval %d of %s", i, seen)
		}
	}
}

// TestManyUpdates are told together, however fast they come.
func TestManyUpdates(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.silence()
	c.up()
	w := c.wire()
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	begin := time.Now()
	s := start(t, cfg)
	w.await()
	const updates = 200
	for i := range updates {
		err := s.Update(func(a *Advertisement) {
			a.Prefixes[0].Prefix = netip.MustParsePrefix(fmt.Sprintf("2001:db8:2:%x::/64", i))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for got := w.await(); ; got = w.await() {
		if _, ok := got.prefixes()[fmt.Sprintf("2001:db8:2:%x::/64", updates-1)]; ok && got.to == groupMAC(allNodes.As16()) {
			break
		}
	}
	st := s.Stats()
	if most := 1 + uint64(time.Since(begin)/minInterval); st.Unsolicited > most || st.Solicited > 0 {
		t.Errorf("%+v, more than %d to all", st, most)
	}
}

// TestUpdateWithoutChange tells nobody anything.
func TestUpdateWithoutChange(t *testing.T) {
	cfg, err := config().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: cfg, all: &audience{}, advert: slaac("2001:db8:1::/64"), wake: make(chan struct{}, 1)}
	if err := s.Update(func(a *Advertisement) { a.MTU = 0 }); err != nil || s.all.Queued() {
		t.Errorf("an update without a change is told, or %v", err)
	}
	if err := s.Update(func(a *Advertisement) { a.MTU = 1400 }); err != nil || !s.all.Queued() || s.all.soon != 3 {
		t.Errorf("a change is not told, or %v", err)
	}
	old := s.advert
	if err := s.Update(func(a *Advertisement) { a.Prefixes[0].Valid = 0 }); err == nil ||
		s.advert.Prefixes[0] != old.Prefixes[0] {
		t.Errorf("%+v, %v after a wrong change", s.advert, err)
	}
}
