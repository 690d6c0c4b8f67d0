// Package allowancetest is for tests of packages that keep records with package allowance: a network's table of
// sessions in memory, and a process that is killed while it changes records.
package allowancetest

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Table is a network's table of sessions. The zero value has none.
type Table struct {
	// Ended is told of each session that Kick ends, as a gateway tells the keeper of records; nil: nobody is told.
	Ended func(session.Session)

	mu       sync.Mutex // guards what follows
	sessions map[netip.Addr]session.Session
	causes   map[string]session.Cause // of sessions that have ended, by ID
	ends     []session.Event          // that are not accounted
}

var _ allowance.Table = (*Table)(nil)

// Begin begins the session of a login now.
func (t *Table) Begin(key session.Key, login session.Login) {
	t.Set(session.Session{Key: key, State: session.Authenticated, Login: login, ID: login.SessionID, Began: time.Now()})
}

// Set puts a session in the place of the one that has its address.
func (t *Table) Set(s session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions == nil {
		t.sessions = map[netip.Addr]session.Session{}
	}
	t.sessions[s.Addr] = s
}

// Lose takes a session out without an end, as if the table had been lost.
func (t *Table) Lose(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sessions, addr)
}

// End ends a session and tells nobody.
func (t *Table) End(addr netip.Addr, cause session.Cause) (session.Session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, found := t.sessions[addr]
	if found {
		delete(t.sessions, addr)
		if t.causes == nil {
			t.causes = map[string]session.Cause{}
		}
		t.causes[s.ID] = cause
		t.ends = append(t.ends, session.Event{Kind: session.Ended, Session: s, At: time.Now()})
	}
	return s, found
}

// Use has a session receive bytes.
func (t *Table) Use(addr netip.Addr, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, found := t.sessions[addr]; found {
		s.DownBytes += bytes
		t.sessions[addr] = s
	}
}

// Age lets time pass: all sessions began so much earlier.
func (t *Table) Age(by time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, s := range t.sessions {
		s.Began = s.Began.Add(-by)
		t.sessions[addr] = s
	}
}

// Account forgets the ends: they are accounted.
func (t *Table) Account() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = nil
}

// Number is how many sessions there are.
func (t *Table) Number() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sessions)
}

// Causes says by what sessions have ended, by their IDs.
func (t *Table) Causes() map[string]session.Cause {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.causes)
}

// Get implements allowance.Table.
func (t *Table) Get(addr netip.Addr) (session.Session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, found := t.sessions[addr]
	return s, found
}

// Each implements allowance.Table.
func (t *Table) Each(visit func(session.Session) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		if !visit(s) {
			return
		}
	}
}

// Alter implements allowance.Table.
func (t *Table) Alter(addr netip.Addr, id string, edit func(*session.Limits)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, found := t.sessions[addr]
	if !found || s.ID != id {
		return session.ErrNoSession
	}
	edit(&s.Limits)
	t.sessions[addr] = s
	return nil
}

// Kick implements allowance.Table.
func (t *Table) Kick(addr netip.Addr, id string, cause session.Cause) error {
	if s, found := t.Get(addr); !found || s.ID != id {
		return session.ErrNoSession
	}
	if s, found := t.End(addr, cause); found && t.Ended != nil {
		t.Ended(s)
	}
	return nil
}

// Ends implements allowance.Table.
func (t *Table) Ends(visit func(session.Event)) error {
	t.mu.Lock()
	all := slices.Clone(t.ends)
	t.mu.Unlock()
	for _, e := range all {
		visit(e)
	}
	return nil
}
