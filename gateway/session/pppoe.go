package session

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Connect is Admit for a client on PPPoE. Such a client gets its address with its login: login.For has both, and
// login.PPPoE has the session. A former client of the same subscriber at the address, with the same MAC address, is
// replaced. Where the user has as many sessions as allowed, so are the oldest of the same MAC address. The session of
// another MAC address stays, and Connect fails with ErrTaken. When the session ends, the client is gone from the table.
func (t *Table) Connect(login Login) (Session, error) {
	s, err := t.replaces(login.For.MAC, login, func() (Session, error) {
		return retryWhenFree(func() (Session, <-chan struct{}, error) { return t.connect(login) })
	})
	if err != nil {
		return Session{}, fmt.Errorf("connect %s: %w", login.For, err)
	}
	return s, nil
}

// connect begins a session, or returns a channel to wait for: connections must end before.
func (t *Table) connect(login Login) (s Session, ending <-chan struct{}, err error) {
	key := login.For
	key.Addr = key.Addr.Unmap()
	if err := login.check(); err != nil {
		return s, nil, err
	}
	if !key.Addr.Is4() || login.PPPoE.Session == 0 {
		return s, nil, errors.New("a client on a line has an IPv4 address and a PPPoE session")
	}
	if err := t.holdOpen(); err != nil {
		return s, nil, err
	}
	defer t.openLock.RUnlock()
	if t.journal.backlogSize() >= t.bounds.events {
		return s, nil, ErrBehind
	}
	c, err := t.holdFirst(key.Addr)
	if err != nil {
		return s, nil, err
	}
	defer t.release(c)
	switch {
	case c.state != "" && (c.key.MAC != key.MAC || c.extraOrZero().pppoe.Session == 0):
		return s, nil, ErrTaken
	case !t.reserve(c, key.MAC, login):
		return s, nil, ErrSessions
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unreserve(c)
	}()
	if _, err := t.dp.Counters(c.identity); errors.Is(err, datapath.ErrForeign) {
		return s, nil, err // before it is on the disk
	}
	now := t.clock.now()
	next := entry{key: key, state: Authenticated, leasedAt: now, leaseEnd: zeroTime}
	next.attach(login.Attachment)
	t.begin(&next, login, now)
	if ending, err = t.vacate(c, &next); ending != nil || err != nil {
		return s, ending, err
	}
	s, err = t.replaceConnected(c, &next, now)
	return s, nil, err
}

// replaceConnected replaces a client's entry by one with a new session. If the data path fails, the session, which is
// on the disk by then, ends at once.
func (t *Table) replaceConnected(c *client, next *entry, now tableTime) (Session, error) {
	if _, err := t.replace(c, next, UserRequest, now); err != nil {
		if c.state == Authenticated && c.id == next.id {
			_, undo := t.finish(c, nil, NASError, t.clock.now())
			err = errors.Join(err, undo)
		}
		return Session{}, err
	}
	return t.snapshot(&c.entry), nil
}

// Disconnect ends the session of a client on PPPoE, because its PPPoE session has ended. It is no error that
// the address has another session by now.
func (t *Table) Disconnect(key Key, pppoe uint16, cause Cause) error {
	if err := t.holdOpen(); err != nil {
		return fmt.Errorf("disconnect %s: %w", key, err)
	}
	defer t.openLock.RUnlock()
	c := t.lockClient(key.Addr.Unmap())
	if c == nil {
		return nil
	}
	defer t.release(c)
	if c.key != key || c.extraOrZero().pppoe.Session != pppoe || pppoe == 0 {
		return nil
	}
	if _, err := t.finish(c, nil, cause, t.clock.now()); unlessLater(err) != nil {
		return fmt.Errorf("disconnect %s: %w", key, err)
	}
	return nil
}

// Follow sets f, which is called with each PPPoE session that has ended for whatever reason. f must not call the table.
// Follow must be called before the table is used.
func (t *Table) Follow(f func(Key, PPPoESession)) { t.hungUp = f }

// begin puts a session that begins now into an entry.
func (t *Table) begin(e *entry, login Login, now tableTime) {
	t.limit(e, login.Limits)
	e.change(func(r *extraFields) {
		r.pppoe, r.ipv6, r.way, r.guest = login.PPPoE, login.IPv6, login.Way, login.Guest
		r.delegated = append(slices.Clip(r.delegated), login.Networks...)
	})
	e.user, e.class = strings.Clone(login.User), cloneClass(login.Class) // otherwise the login form stays in memory
	if e.most = int32(min(login.Sessions, math.MaxInt32)); login.Shared {
		e.most = 0
	}
	e.id, e.began, e.seen = cmp.Or(login.SessionID, NewID()), now, now
}
