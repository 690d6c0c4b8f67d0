package pppoe

import (
	"container/list"
	"errors"
)

// waiting is the sessions that have not logged in, by how far they have come. Whoever invents MAC addresses
// can have many begun, so that they have a bound of their own, and one that is new takes the place of one
// that is likeliest dead: the oldest of which nothing was heard, otherwise the oldest that has not sent a password.
//
//	PADR ─▶ begun ── a frame of the session ─▶ heard ── password ─▶ queued ─▶ asked ─▶ logged in
//	          └────────── displaced ─────────────┘
//
// As many as Config.Logins are asked for at once. The others wait in the order of their passwords, and are not refused:
// a client that is refused may keep its distance for minutes, and after an outage all come at once.
type waiting [stages]list.List

// stage is how far a session has come.
type stage int

const (
	begun stage = iota
	heard
	queued // Access.Login is to decide
	asked  // it does
	stages
	loggedIn = stages
)

var errDisplaced = errors.New("other sessions that have not logged in needed the place")

// count is the number of sessions that have not logged in.
func (w *waiting) count() (n int) {
	for i := range w {
		n += w[i].Len()
	}
	return n
}

// to moves a session to a stage, as its newest. A session does not go back.
func (n *session) to(next stage) {
	if n.waits != nil {
		if next <= n.stage {
			return
		}
		n.waiting[n.stage].Remove(n.waits)
		n.waits = nil
	}
	if n.stage = next; next < stages {
		n.waits = n.waiting[next].PushBack(n)
	}
}

// makePlace reports whether one more session can begin, and ends another for it where that is needed.
func (s *Server) makePlace() bool {
	for s.waiting.count() >= s.cfg.Waiting || len(s.sessions) >= s.cfg.Most {
		oldest := s.waiting[begun].Front()
		if oldest == nil {
			oldest = s.waiting[heard].Front()
		}
		if oldest == nil {
			return false
		}
		n := oldest.Value.(*session)
		s.counts.Displaced++
		n.link.Abort(errDisplaced)
		s.schedule(n)
	}
	return true
}
