// Changes of a client's state: lease, login, logout. replaceEnded has the order of disk and data path.

package session

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Bounds of the values that are stored for a client. RADIUS cannot carry longer values (RFC 2865, sections 3 and 5).
const (
	hostnameMax = 255  // bytes; a DHCP option's length is one byte (RFC 2132, section 2)
	userMax     = 253  // bytes
	idMax       = 253  // bytes
	classMax    = 4096 // bytes, of all attributes together with the 2 bytes of each one's header
)

// Forget removes a client whose lease was released or has expired; its session ends with LeaseReleased or LeaseEnded. A
// missing client is no error. An address that another MAC has meanwhile is left to that client.
func (t *Table) Forget(key Key) error {
	_, err := t.forget(key, false)
	return err
}

func (t *Table) forget(key Key, strangersOnly bool) (gone bool, err error) {
	key.Addr = key.Addr.Unmap()
	if err := t.holdOpen(); err != nil {
		return false, fmt.Errorf("forget %s: %w", key, err)
	}
	defer t.openLock.RUnlock()
	c := t.lockClient(key.Addr)
	if c == nil {
		return true, nil
	}
	defer t.release(c)
	switch {
	case c.key != key:
		return true, nil
	case strangersOnly && c.state == Authenticated:
		return false, nil
	}
	now, cause := t.clock.now(), LeaseReleased
	if now.after(clockError) >= c.leaseEnd || c.only6() {
		cause = LeaseEnded
	}
	if _, err := t.finish(c, nil, cause, now); unlessLater(err) != nil {
		return false, fmt.Errorf("forget %s: %w", key, err)
	}
	return true, nil
}

// Shown records that the client was redirected to the portal: Leased becomes PreAuth. It is cheap; the disk is written
// up to a second later.
func (t *Table) Shown(addr netip.Addr) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	addr = addr.Unmap()
	t.mu.Lock()
	seen := t.clientAt(addr)
	known := seen != nil && seen.state != "" && seen.state != Leased
	t.mu.Unlock()
	if known { // repeated requests to the portal end here
		return nil
	}
	c := t.lockClient(addr)
	if c == nil {
		return fmt.Errorf("show the portal to %s: %w", addr, ErrUnknown)
	}
	defer t.release(c)
	if c.state == Leased {
		next := c.withoutSession()
		t.journal.save(c.identity, t.record(&next))
		t.publish(c, next)
	}
	return nil
}

// Admit begins a session with the limits of login, and returns it once the data path forwards for the client. An
// authenticated client's old session first ends with UserRequest, and where the user has as many sessions as allowed,
// so do the oldest of the same MAC address. When the data path fails, the session has begun and ended with NASError.
func (t *Table) Admit(addr netip.Addr, login Login) (Session, error) {
	s, err := t.replaces(t.macOf(addr.Unmap()), login, func() (Session, error) {
		return retryWhenFree(func() (Session, <-chan struct{}, error) { return t.admit(addr.Unmap(), login) })
	})
	if err != nil {
		return Session{}, fmt.Errorf("admit %s: %w", addr, err)
	}
	return s, nil
}

// macOf returns the MAC address of the client with an address; zero: there is no such client.
func (t *Table) macOf(addr netip.Addr) datapath.MAC {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clientAt(addr); c != nil {
		return c.key.MAC
	}
	return datapath.MAC{}
}

// admit begins a session, or returns a channel to wait for: connections must end before.
func (t *Table) admit(addr netip.Addr, login Login) (s Session, ending <-chan struct{}, err error) {
	if err := login.check(); err != nil {
		return s, nil, err
	}
	if err := t.holdOpen(); err != nil {
		return s, nil, err
	}
	defer t.openLock.RUnlock()
	if t.journal.backlogSize() >= t.bounds.events {
		return s, nil, ErrBehind
	}
	c := t.lockClient(addr)
	if c == nil {
		return s, nil, ErrUnknown
	}
	defer t.release(c)
	if login.For != (Key{}) && (login.For.MAC != c.key.MAC || login.For.Addr.Unmap() != addr) {
		return s, nil, ErrMoved
	}
	if !t.reserve(c, c.key.MAC, login) {
		return s, nil, ErrSessions
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unreserve(c)
	}()
	now := t.clock.now()
	next := c.withoutSession()
	next.state = Authenticated
	t.begin(&next, login, now)
	if ending, err = t.vacate(c, &next); ending != nil || err != nil {
		return s, ending, err
	}
	if _, err := t.replace(c, &next, UserRequest, now); err != nil {
		if c.state == Authenticated && c.id == next.id { // on the disk, but the data path failed
			lapsed := c.withoutSession()
			_, undo := t.finish(c, &lapsed, NASError, t.clock.now())
			err = errors.Join(err, undo)
		}
		return s, nil, err
	}
	return t.snapshot(&c.entry), nil, nil
}

// End ends the client's session and returns it with its final counts, once the data path no longer forwards for the
// client. With ErrLater it has ended too.
func (t *Table) End(addr netip.Addr, cause Cause) (Session, error) {
	s, err := t.endSession(addr.Unmap(), cause)
	if err != nil {
		return s, fmt.Errorf("end the session of %s: %w", addr, err)
	}
	return s, nil
}

func (t *Table) endSession(addr netip.Addr, cause Cause) (Session, error) {
	if err := t.holdOpen(); err != nil {
		return Session{}, err
	}
	defer t.openLock.RUnlock()
	c := t.lockClient(addr)
	if c == nil {
		return Session{}, ErrUnknown
	}
	defer t.release(c)
	if c.state != Authenticated {
		return Session{}, ErrNoSession
	}
	next := c.withoutSession()
	return t.finish(c, &next, cause, t.clock.now())
}

// replace sets a client's entry to next; nil removes the client, and a different session ends the present one with
// cause. A client that leaves with its session is removed. op must be held.
func (t *Table) replace(c *client, next *entry, cause Cause, instant tableTime) (ended Session, err error) {
	return t.replaceEnded(c, c.ifStays(next, cause), cause, instant, false)
}

// finish is replace for a session that ends even where the disk refuses the write. The client is then blocked, the end
// is written later, and the error is ErrLater.
func (t *Table) finish(c *client, next *entry, cause Cause, instant tableTime) (ended Session, err error) {
	return t.replaceEnded(c, c.ifStays(next, cause), cause, instant, true)
}

// ifStays returns next, or nil for a client that leaves with its session.
func (c *client) ifStays(next *entry, cause Cause) *entry {
	if next != nil && next.state != Authenticated && next.key == c.key && c.goesWith(cause) {
		return nil
	}
	return next
}

// replaceEnded is replace for a client that stays without its session. It closes the data path, writes to the disk,
// ends connections and opens the data path, in this order, so that a crash at any moment leaves the data path closed.
// With firm the session ends even where the disk refuses the write.
func (t *Table) replaceEnded(c *client, next *entry, cause Cause, instant tableTime, firm bool) (
	ended Session, err error) {
	before := c.entry
	written := change{id: c.identity, mustHappen: firm && before.state == Authenticated}
	left := before.droppedPrefixes(next)
	if next == nil || before.state == Authenticated {
		if err := t.closePath(c, &before, next == nil); err != nil {
			return Session{}, err
		}
	}
	if before.state == Authenticated {
		ended = t.snapshot(&before)
		written.events = append(written.events, t.event(Ended, &before, cause, instant))
		next = next.withLastEnding(before.key, ended.endingOf(cause))
	}
	if next != nil {
		if next.state == Authenticated {
			started, err := t.start(c, next)
			if err != nil {
				return Session{}, errors.Join(err, t.setDatapath(c, &before))
			}
			written.events = append(written.events, started)
		}
		written.record = t.record(next)
	}
	late := t.journal.commit(written)
	if late != nil && !written.mustHappen {
		return Session{}, errors.Join(late, t.restored(c))
	}
	if before.state == Authenticated {
		t.report(&ended, cause, late)
	}
	t.tellEnded(&before, ended, cause)
	t.cutter.Schedule(left...)
	if next == nil {
		t.remove(c)
		return ended, laterError(late)
	}
	c.inDatapath = c.inDatapath && before.key == next.key &&
		(before.state != Authenticated || len(before.extraOrZero().delegated) == len(next.extraOrZero().delegated))
	t.arm(c, next, t.clock.now())
	t.publish(c, *next)
	if !c.inDatapath || next.state == Authenticated {
		err = t.setDatapath(c, next)
	}
	return ended, cmp.Or(err, laterError(late))
}

// restored has the data path admit a client as before a change that failed.
func (t *Table) restored(c *client) error {
	if c.state == "" {
		return nil
	}
	return t.setDatapath(c, &c.entry)
}

// laterError returns ErrLater with err, the disk's error; nil where err is nil.
func laterError(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLater, err)
	}
	return nil
}

// withLastEnding returns the entry of a client without a session, if it is that of a key, with how its last one ended.
func (e *entry) withLastEnding(key Key, last Ending) *entry {
	if e == nil || e.state == Authenticated || e.key != key {
		return e
	}
	next := *e
	next.change(func(r *extraFields) { r.lastEnding = last })
	return &next
}

// endingOf returns how a session ended.
func (s *Session) endingOf(cause Cause) Ending {
	if cause != Quota {
		return Ending{Cause: cause}
	}
	return Ending{cause, s.Spent()}
}

// report logs the end of a session, once it is on the disk, or with why it is not yet.
func (t *Table) report(s *Session, cause Cause, late error) {
	args := []any{"client", s.Key.String(), "user", s.User, "session", s.ID, "cause", cause}
	if quota := s.endingOf(cause).Quota; quota != "" {
		args = append(args, "quota", quota)
	}
	args = append(args, "up_bytes", s.UpBytes, "down_bytes", s.DownBytes)
	if late != nil {
		t.log.Warn("session ended; it is not on the disk yet", append(args, "error", late)...)
		return
	}
	t.log.Info("session ended", args...)
}

// closePath closes the data path to a client and reads its final counts. remove means that the client also loses its
// address.
func (t *Table) closePath(c *client, e *entry, remove bool) error {
	switch {
	case remove:
		if err := t.dp.Remove(c.identity); err != nil {
			return fmt.Errorf("shut out %s: %w", e.key, err)
		}
		c.inDatapath, c.open = false, false
	case c.open:
		if err := t.set(c, shut(c, e)); err != nil {
			return fmt.Errorf("shut out %s: %w", e.key, err)
		}
	}
	if e.state == Authenticated {
		// The session ends even when its counters cannot be read.
		if now, err := t.dp.Counters(c.identity); err == nil {
			t.count(e, now)
		}
	}
	return nil
}

// start reads the counter values at which a session begins, and returns its start event.
func (t *Table) start(c *client, e *entry) (event []byte, err error) {
	now, err := t.dp.Counters(c.identity)
	if err != nil {
		return nil, fmt.Errorf("read the counters of %s: %w", e.key, err)
	}
	e.read = readingOf(now)
	return t.event(Started, e, "", e.began), nil
}

// setDatapath sets a client in the data path to an entry's state.
func (t *Table) setDatapath(c *client, e *entry) error {
	if err := t.set(c, t.permit(c, e)); err != nil {
		return fmt.Errorf("let %s in: %w", e.key, err)
	}
	return nil
}

func (t *Table) set(c *client, want datapath.Client) error {
	err := t.dp.Set(want)
	if err == nil {
		c.inDatapath, c.open = true, want.Admitted
	}
	return err
}

// check compares a login with the bounds of a table.
func (l *Login) check() error {
	size := 0
	for _, class := range l.Class {
		size += len(class) + 2
	}
	switch {
	case len(l.User) > userMax:
		return fmt.Errorf("a user name of %d bytes, more than %d", len(l.User), userMax)
	case len(l.SessionID) > idMax:
		return fmt.Errorf("a session id of %d bytes, more than %d", len(l.SessionID), idMax)
	case size > classMax:
		return fmt.Errorf("class attributes of %d bytes, more than %d", size, classMax)
	case min(l.Limits.SessionTimeout, l.Limits.IdleTimeout, l.Limits.Interim) < 0:
		return errors.New("a negative time limit")
	}
	return nil
}

// NewID returns an unpredictable Acct-Session-Id of 16 hexadecimal digits. A collision is likely only after some four
// thousand million sessions.
func NewID() string {
	var id [8]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// cleanHostname makes a client's hostname safe to store and show.
func cleanHostname(hostname string) string {
	hostname = hostname[:min(len(hostname), hostnameMax)]
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, hostname)
}
