// Package allowance counts what the sessions of a holder use together, such as those that one voucher admits, or those
// of one device on one day, and shares among them what is left of the holder's time and bytes.
//
// A session is in its holder's record (Used) before it begins. When it ends, what it used is added to the record and
// the session is taken out of it, in one write: after a crash at any moment each session is counted once. The owner of
// the records keeps them, and locks a holder while it changes; Sessions knows which sessions are open, and what those
// used that have ended and are not in the record yet.
package allowance

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Table is the session table of a network.
type Table interface {
	// Get returns the client that has an address, and Each all of them.
	Get(netip.Addr) (session.Session, bool)
	Each(func(session.Session) bool)
	// Alter changes the limits of the session with an ID at an address, and Kick ends it.
	Alter(addr netip.Addr, id string, edit func(*session.Limits)) error
	Kick(addr netip.Addr, id string, cause session.Cause) error
	// Ends calls visit with the ends of sessions that are not accounted yet.
	Ends(visit func(session.Event)) error
}

// Sessions are the open sessions of holders, and those that have ended and whose use is not in a record yet. A session
// may have several holders. Its methods may be called from several goroutines.
type Sessions[Holder cmp.Ordered] struct {
	// Elsewhere returns a session of another gateway, as far as it is known here, with times of this machine; nil: there
	// is no other. It is set before the first call.
	Elsewhere func(Use) (s session.Session, known bool)

	log *slog.Logger

	mu      sync.Mutex // guards what follows
	open    map[string][]Holder
	ofOne   map[Holder]int // open sessions of each
	ended   map[Holder][]End
	tables  map[string]Table // by network
	changed chan struct{}    // has an element when ended has
}

// End is what a session used.
type End struct {
	Session string // its ID
	Online  time.Duration
	Bytes   uint64
}

// New returns Sessions without any.
func New[Holder cmp.Ordered](log *slog.Logger) *Sessions[Holder] {
	return &Sessions[Holder]{log: log, open: map[string][]Holder{}, ofOne: map[Holder]int{}, ended: map[Holder][]End{},
		tables: map[string]Table{}, changed: make(chan struct{}, 1)}
}

// Open keeps that a session is one of a holder's.
func (a *Sessions[Holder]) Open(sessionID string, h Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[sessionID] = append(a.open[sessionID], h)
	a.ofOne[h]++
}

// Close undoes Open.
func (a *Sessions[Holder]) Close(sessionID string, h Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	holders := a.open[sessionID]
	i := slices.Index(holders, h)
	if i < 0 {
		return
	}
	if holders = slices.Delete(slices.Clone(holders), i, i+1); len(holders) == 0 {
		delete(a.open, sessionID)
	} else {
		a.open[sessionID] = holders
	}
	if a.ofOne[h]--; a.ofOne[h] == 0 {
		delete(a.ofOne, h)
	}
}

// Holders returns the holders of an open session.
func (a *Sessions[Holder]) Holders(sessionID string) []Holder {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[sessionID]
}

// Number returns how many sessions are open.
func (a *Sessions[Holder]) Number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open)
}

// OfEach returns the holders that have open sessions, and how many.
func (a *Sessions[Holder]) OfEach() map[Holder]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.ofOne)
}

// Note takes note of what a session used that has ended, of whatever user. It does not wait for the disk.
func (a *Sessions[Holder]) Note(e End) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.open[e.Session] {
		if slices.ContainsFunc(a.ended[h], func(o End) bool { return o.Session == e.Session }) {
			continue
		}
		a.ended[h] = append(a.ended[h], e)
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// Changed has an element when sessions have ended since it was last received from.
func (a *Sessions[Holder]) Changed() <-chan struct{} { return a.changed }

// Ended returns the holders of sessions that have ended and are not in the record yet, in their order.
func (a *Sessions[Holder]) Ended() []Holder {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.ended))
}

// TakeEnded returns the ends of a holder's sessions, to be written to its record, and forgets them. PutBack undoes it,
// where they cannot be written.
func (a *Sessions[Holder]) TakeEnded(h Holder) []End {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.ended[h]
	delete(a.ended, h)
	return all
}

// PutBack undoes TakeEnded.
func (a *Sessions[Holder]) PutBack(h Holder, all []End) {
	if len(all) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended[h] = append(all, a.ended[h]...)
}

// Pending returns the ends of a holder's sessions that are not in its record yet.
func (a *Sessions[Holder]) Pending(h Holder) []End {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ended[h])
}

// Of returns the open sessions of a holder. It looks at those of all.
func (a *Sessions[Holder]) Of(h Holder) (sessions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ofOne[h] == 0 {
		return nil
	}
	for id, holders := range a.open {
		if slices.Contains(holders, h) {
			sessions = append(sessions, id)
		}
	}
	return sessions
}

// EachTable calls visit with the networks that are served, and their tables.
func (a *Sessions[Holder]) EachTable(visit func(network string, t Table)) {
	a.mu.Lock()
	tables := maps.Clone(a.tables)
	a.mu.Unlock()
	for network, t := range tables {
		visit(network, t)
	}
}

// Serve has the sessions of a network looked after in its table, and Leave ends that: they go on as they are.
func (a *Sessions[Holder]) Serve(network string, t Table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tables[network] = t
}

// Leave ends Serve.
func (a *Sessions[Holder]) Leave(network string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tables, network)
}

// Table returns the table of a network that is served; nil: it is not.
func (a *Sessions[Holder]) Table(network string) Table {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tables[network]
}

// NoteLost takes note of the ends of sessions that are in records and no longer in a network's table: what they used is
// in the ends that are not accounted yet. Of others, which never began, it is nothing.
func (a *Sessions[Holder]) NoteLost(t Table, recorded map[string]bool) error {
	lost := maps.Clone(recorded)
	if len(lost) > 0 {
		t.Each(func(s session.Session) bool { delete(lost, s.ID); return true })
	}
	if len(lost) > 0 {
		err := t.Ends(func(e session.Event) {
			if lost[e.ID] {
				a.Note(End{e.ID, e.At.Sub(e.Began), e.UpBytes + e.DownBytes})
				delete(lost, e.ID)
			}
		})
		if err != nil {
			return err
		}
	}
	for id := range lost {
		a.Note(End{Session: id})
	}
	return nil
}

// Find returns the session of a use and its table; a nil table: it is not known.
func (a *Sessions[Holder]) Find(u Use) (s session.Session, t Table) {
	t = a.Table(u.Network)
	if t == nil {
		return s, nil
	}
	if s, found := t.Get(u.Addr); found && s.ID == u.Session {
		return s, t
	}
	found := false // the client may have another first address by now
	if !u.Addr.Is4() {
		t.Each(func(other session.Session) bool {
			if other.ID == u.Session {
				s, found = other, true
			}
			return !found
		})
	}
	if !found {
		return session.Session{}, nil
	}
	return s, t
}

// Kick ends the session of a use, and reports whether it has ended.
func (a *Sessions[Holder]) Kick(u Use, cause session.Cause) bool {
	s, t := a.Find(u)
	if t == nil {
		return false
	}
	err := t.Kick(s.Addr, s.ID, cause)
	if err != nil && !errors.Is(err, session.ErrLater) && !errors.Is(err, session.ErrNoSession) {
		a.log.Warn("a session cannot be ended", "user", s.User, "session", s.ID, "err", err)
		return false
	}
	return true
}

// Limit gives a session the time and bytes that are left for it; 0: unlimited, and with lift a limit that it has is
// taken away. It changes nothing while the session's present limits are near: its time within a second, and its bytes
// within an eighth of what is left.
func (a *Sessions[Holder]) Limit(u Use, s session.Session, timeout time.Duration, bytesLeft uint64, lift bool) error {
	t := a.Table(u.Network)
	now, fresh := time.Since(s.Began), s.Limits
	if timeout > 0 {
		if end := now + timeout; (end - fresh.SessionTimeout).Abs() >= time.Second {
			fresh.SessionTimeout = end
		}
	} else if lift {
		fresh.SessionTimeout = 0
	}
	if used := s.UpBytes + s.DownBytes; bytesLeft > 0 {
		if has := fresh.TotalBytes - min(used, fresh.TotalBytes); has < bytesLeft || has-bytesLeft > bytesLeft/8 {
			fresh.TotalBytes = used + bytesLeft
		}
	} else if lift {
		fresh.TotalBytes = 0
	}
	if t == nil || fresh == s.Limits {
		return nil
	}
	err := t.Alter(s.Addr, s.ID, func(l *session.Limits) {
		l.SessionTimeout, l.TotalBytes = fresh.SessionTimeout, fresh.TotalBytes
	})
	if errors.Is(err, session.ErrNoSession) { // it has ended meanwhile
		return nil
	}
	return err
}
