package routeradv

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/due"
)

// Constants of RFC 4861, section 10, with the names that they have there.
const (
	initialInterval = 16 * time.Second       // MAX_INITIAL_RTR_ADVERT_INTERVAL
	initialAdverts  = 3                      // MAX_INITIAL_RTR_ADVERTISEMENTS
	finalAdverts    = 3                      // MAX_FINAL_RTR_ADVERTISEMENTS
	minInterval     = 3 * time.Second        // MIN_DELAY_BETWEEN_RAS
	answerDelay     = 500 * time.Millisecond // MAX_RA_DELAY_TIME
)

const (
	// finalPause is between the final advertisements to all. Hosts may not answer multicast, so one can be lost.
	finalPause = 100 * time.Millisecond
	// clientPause is between two advertisements to one client: whatever asks for them, they are no flood.
	clientPause = 200 * time.Millisecond
	// retellPause is between the clients that are told of a change: 5,000 a second, as much as a slow link carries.
	retellPause = 200 * time.Microsecond
)

// singleAnswers bounds the answers to single hosts where all are told the same: as much as a slow link carries. When
// more hosts solicit, one advertisement to all answers them, which may come 3 s later. Tests change it.
var singleAnswers = budget.Rate{AtOnce: 5000, EachSecond: 5000}

// audience is a client or all hosts, and when it is told something next.
type audience struct {
	due.Place
	at        time.Time
	client    Client
	last      time.Time // when it was told something; zero: never
	solicited bool      // the next one answers a solicitation
	soon      int       // so many come initialInterval apart at most
	history   history
}

// Before orders audiences by their times.
func (a *audience) Before(b *audience) bool { return a.at.Before(b.at) }

// announce has all hosts told, thrice in a short time.
func (s *Server) announce() {
	if s.all == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.soon = initialAdverts
	s.bring(s.all, time.Now())
}

// solicited plans the answer to a solicitation, after a random delay (RFC 4861, section 6.2.6). An answer that is
// planned already serves this one too.
func (s *Server) solicited(from Client, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.all
	if s.all == nil || s.clients[from] != nil || s.answers.Spend(singleAnswers, budget.Now()) {
		to = s.client(from)
	}
	if to == nil {
		s.stats.refused.Add(1)
		return
	}
	to.solicited = true
	s.bring(to, now.Add(rand.N(answerDelay)))
}

// bring has an audience told at a moment at the latest, or as soon as the pause after the last time is over. The caller
// has the lock.
func (s *Server) bring(to *audience, at time.Time) {
	pause := clientPause
	if to == s.all {
		pause = minInterval
	}
	if first := to.last.Add(pause); at.Before(first) {
		at = first
	}
	if to.Queued() && !at.Before(to.at) {
		return
	}
	to.at = at
	if s.queue.Put(to) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// tellAll sends what is due, until ctx ends.
func (s *Server) tellAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		to, wait := s.next(now)
		if to != nil {
			s.tell(to, now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// next takes the audience that is due, or returns how long none will be.
func (s *Server) next(now time.Time) (*audience, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch to := s.queue.First(); {
	case to == nil:
		return nil, time.Hour // something new wakes the caller
	case to.at.After(now):
		return nil, to.at.Sub(now)
	default:
		s.queue.Remove(to)
		return to, 0
	}
}

// tell sends an audience its advertisement, and plans the next one. A client that is told nothing any more is told once
// that what it had is over.
func (s *Server) tell(to *audience, now time.Time) {
	a, ok, err := s.words(to)
	s.mu.Lock()
	if err != nil || !ok && to.last.IsZero() {
		s.stats.refused.Add(1)
		s.plan(to, err != nil && !to.last.IsZero(), now)
		s.mu.Unlock()
		return
	}
	if !ok {
		a = Advertisement{}
	}
	a = s.historyOf(to).advertise(a, now)
	counter := &s.stats.unsolicited
	if to.solicited {
		counter = &s.stats.solicited
	}
	to.last, to.solicited = now, false
	s.plan(to, ok, now)
	s.mu.Unlock()
	counter.Add(1)
	s.send(to.client, a, now)
}

// words are what an audience is to be told; false: nothing. An error says why hosts would refuse it: then nothing is
// sent, so that a client keeps what it has.
func (s *Server) words(to *audience) (Advertisement, bool, error) {
	if s.all != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.advert, true, nil
	}
	a, ok := s.cfg.Told(to.client)
	if !ok {
		return a, false, nil
	}
	err := s.cfg.check(a)
	if err != nil {
		s.badLog.Do(func() {
			s.cfg.Log.Error("a client's router advertisement is wrong and was not sent",
				"interface", s.cfg.Interface, "client", to.client.String(), "err", err)
		})
	}
	return a, true, err
}

// historyOf is what an audience has been told. Where all are told the same, a host that solicited shares that of all.
func (s *Server) historyOf(to *audience) *history {
	if s.all != nil {
		return &s.all.history
	}
	return &to.history
}

// plan has an audience told again after a random interval (RFC 4861, section 6.2.4), or forgets it. The caller has the
// lock.
func (s *Server) plan(to *audience, again bool, now time.Time) {
	if s.all != nil && to != s.all {
		again = to.Queued() // it has solicited again meanwhile
	}
	if to != s.all && s.clients[to.client] != to {
		return // Forget was called meanwhile
	}
	if !again {
		s.queue.Remove(to)
		delete(s.clients, to.client)
		return
	}
	interval := s.cfg.MinInterval + rand.N(s.cfg.MaxInterval-s.cfg.MinInterval+1)
	if to.soon--; to.soon > 0 {
		interval = min(interval, initialInterval)
	}
	s.bring(to, now.Add(interval))
}

// sayFarewell sends final advertisements (RFC 4861, section 6.2.5). Run has ended.
func (s *Server) sayFarewell() {
	s.mu.Lock()
	list, times := []*audience{s.all}, finalAdverts
	if s.all == nil {
		list, times = slices.Collect(maps.Values(s.clients)), 1 // each client's station answers for its frame
	}
	s.mu.Unlock()
	for i := range times {
		if i > 0 {
			time.Sleep(finalPause)
		}
		for _, to := range list {
			a, ok, err := s.words(to)
			if err != nil || !ok || to.last.IsZero() {
				a = Advertisement{}
			}
			now := time.Now()
			s.send(to.client, to.history.advertise(a, now).Final(), now)
			s.stats.unsolicited.Add(1)
		}
	}
}
