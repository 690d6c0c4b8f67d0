package voucher

import (
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// usage is what the open sessions of a voucher have used so far.
type usage struct {
	online   time.Duration
	bytes    uint64
	sessions []session.Session // by use; zero: it is not known
}

// usage reads the open sessions of a record. Sessions that have ended, and those of networks that are not served now,
// count as nothing.
func (b *Book) usage(r *record) (all usage) {
	now := time.Now()
	for _, u := range r.Uses {
		s, _ := b.sessionOf(u)
		if s.ID != "" {
			all.online += now.Sub(s.Began)
			all.bytes += s.UpBytes + s.DownBytes
		}
		all.sessions = append(all.sessions, s)
	}
	return all
}

// sessionOf returns the session of a use and its table; a nil table: it is not known.
func (b *Book) sessionOf(u use) (s session.Session, t Table) {
	b.mu.Lock()
	t = b.tables[u.Network]
	b.mu.Unlock()
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

// endUse ends the session of a use, and reports whether it has ended.
func (b *Book) endUse(u use, cause session.Cause) bool {
	s, t := b.sessionOf(u)
	if t == nil {
		return false
	}
	err := t.Kick(s.Addr, s.ID, cause)
	if err != nil && !errors.Is(err, session.ErrLater) && !errors.Is(err, session.ErrNoSession) {
		b.log.Warn("voucher: its session cannot be ended", "user", s.User, "session", s.ID, "err", err)
		return false
	}
	return true
}

// upToNow returns a voucher with what its sessions used, open ones up to now.
func (b *Book) upToNow(o *batch, id ID, r *record) Voucher {
	v := b.show(o, id, r)
	if len(r.Uses) == 0 {
		return v
	}
	u := b.usage(r)
	online, bytes := r.Online+int64(u.online), r.Bytes+u.bytes
	v.UsedSeconds, v.UsedBytes = int64(time.Duration(online).Seconds()), bytes
	v.State = b.state(o, r, online, bytes)
	return v
}

// balance writes what sessions of a voucher used that have ended, ends the open ones if the voucher admits nobody any
// more, and tells them otherwise what is left for them.
func (b *Book) balance(id ID) error {
	defer b.lock(id)()
	if err := b.change(id, nothing); err != nil {
		return err
	}
	r, _, err := b.read(id)
	if err != nil || len(r.Uses) == 0 {
		return err
	}
	o := b.batchOf(id)
	u := b.usage(r)
	online, bytes := r.Online+int64(u.online), r.Bytes+u.bytes
	if cause := b.causeOf(o, r, online, bytes); cause != "" {
		for _, one := range r.Uses {
			b.endUse(one, cause)
		}
		return b.change(id, nothing)
	}
	timeout, bytesLeft := b.left(o, r, online, bytes)
	for i, s := range u.sessions {
		if s.ID != "" {
			err = errors.Join(err, b.limit(r.Uses[i], s, timeout, bytesLeft))
		}
	}
	return err
}

// causeOf is why the sessions of a voucher must end; empty: they need not.
func (b *Book) causeOf(o *batch, r *record, online int64, bytes uint64) session.Cause {
	switch b.state(o, r, online, bytes) {
	case Revoked:
		return session.AdminReset
	case Expired:
		return session.SessionTimeout
	case UsedUp:
		if o.Terms.Bytes > 0 && bytes >= o.Terms.Bytes {
			return session.Quota
		}
		return session.SessionTimeout
	}
	return ""
}

// limit gives a session the time and bytes that are left of its voucher; 0: unlimited. It changes nothing while the
// session's own limits are near: its time within a second, and its bytes within an eighth of what is left.
func (b *Book) limit(u use, s session.Session, timeout time.Duration, bytesLeft uint64) error {
	t := func() Table { b.mu.Lock(); defer b.mu.Unlock(); return b.tables[u.Network] }()
	now, fresh := time.Since(s.Began), s.Limits
	if timeout > 0 {
		if end := now + timeout; (end - fresh.SessionTimeout).Abs() >= time.Second {
			fresh.SessionTimeout = end
		}
	}
	if used := s.UpBytes + s.DownBytes; bytesLeft > 0 {
		if has := fresh.TotalBytes - min(used, fresh.TotalBytes); has < bytesLeft || has-bytesLeft > bytesLeft/8 {
			fresh.TotalBytes = used + bytesLeft
		}
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

// revokedAtOnce is how many vouchers are revoked in one write.
const revokedAtOnce = 1000

// revokeSome revokes the vouchers from first to before end, and returns how many were not revoked before.
func (b *Book) revokeSome(first, end ID) (n int, err error) {
	for range changeTries {
		var c Change
		err = b.store.Vouchers(first, func(id ID, data []byte) (bool, error) {
			if id >= end {
				return false, nil
			}
			r, err := decodeRecord(data)
			if err == nil && !r.Revoked {
				r.Revoked = true
				c.Vouchers = append(c.Vouchers, Record{ID: id, Was: append([]byte(nil), data...), Is: r.encode()})
			}
			return true, err
		})
		if err != nil || len(c.Vouchers) == 0 {
			return 0, err
		}
		if err = b.store.Write(c); !errors.Is(err, ErrChanged) {
			return len(c.Vouchers), err
		}
	}
	return 0, err
}

// Sessions returns how many sessions of vouchers are open.
func (b *Book) Sessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}
