package pppoe

import (
	"cmp"
	"container/list"
	"errors"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// waiting is the sessions that have not logged in, by how far they have come. Whoever invents MAC addresses can have
// many begun, so that they have a bound of their own, and one that is new takes the place of one that is over or
// likeliest dead: the oldest that is ending, otherwise of which nothing was heard, otherwise that has sent no password.
//
//	PADR ─▶ begun ── a frame of the session ─▶ heard ── password ─▶ queued ─▶ asked ─▶ logged in
//	          │                                  │                               └─▶ ending
//	          └────────── displaced ─────────────┴─────────────────────────────────────┘
//
// Config.Logins are asked for at once. The others wait in the order of their passwords, and are not refused: a client
// that is refused may keep its distance for minutes, and after an outage all come at once.
type waiting [stages]list.List

// stage is how far a session has come.
type stage int

const (
	discovered stage = iota
	negotiating
	queued       // Access.Login is to decide
	loginPending // it does
	terminating  // refused, or ended by its owner: the client is being told
	stages
	loggedIn = stages
)

var (
	errDisplaced = errors.New("other sessions that have not logged in needed the place")
	errAnew      = errors.New("the client has begun another session")
)

// count is the number of sessions that have not logged in.
func (w *waiting) count() (n int) {
	for i := range w {
		n += w[i].Len()
	}
	return n
}

// setStage moves a session to a stage, as its newest. A session does not go back. A login that is of no use any more is
// cancelled.
func (n *session) setStage(next stage) {
	if n.waitElement != nil {
		if next <= n.stage {
			return
		}
		n.waiting[n.stage].Remove(n.waitElement)
		n.waitElement = nil
	}
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
	if n.stage = next; next < stages {
		n.waitElement = n.waiting[next].PushBack(n)
	}
}

// makePlace reports whether one more session of an address can begin, and ends another for it where that is
// needed. One that takes another's place when it logs in does not count.
func (s *Server) makePlace(mac pppoe.MAC) bool {
	most := s.cfg.MaxSessions
	if len(s.byMAC[mac]) >= s.cfg.PerMAC {
		most = freeSessions
	}
	for s.waiting.count() >= s.cfg.Waiting || len(s.sessions) >= most {
		oldest := cmp.Or(s.waiting[terminating].Front(), s.waiting[discovered].Front(), s.waiting[negotiating].Front())
		if oldest == nil {
			return false
		}
		s.displace(oldest.Value.(*session), errDisplaced)
	}
	return true
}

// displace ends a session that has not logged in.
func (s *Server) displace(n *session, reason error) {
	s.counts.Displaced++
	n.link.Abort(reason)
	s.schedule(n)
}
