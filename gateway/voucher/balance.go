package voucher

import (
	"cmp"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// upToNow returns a voucher with what its sessions used, open ones up to now.
func (b *Book) upToNow(o *batch, id ID, r *record) Voucher {
	for _, e := range b.sessions.Pending(id) {
		r.Close(e)
	}
	v := b.show(o, id, r)
	if len(r.Uses) == 0 {
		return v
	}
	u := b.sessions.Usage(&r.Used)
	online, bytes := r.Online+int64(u.Online), r.Bytes+u.Bytes
	v.UsedSeconds, v.UsedBytes = int64(time.Duration(online).Seconds()), bytes
	v.State = b.state(o, r, online, bytes)
	return v
}

// balance writes what sessions of a voucher used that have ended, ends the open ones if the voucher admits nobody any
// more, and tells them otherwise what is left for them.
func (b *Book) balance(id ID) error {
	defer b.lock(id)()
	away := b.change(id, nothing)
	if away != nil && !errors.Is(away, session.ErrTryAgain) {
		return away
	}
	r, _, err := b.read(id)
	if err != nil {
		return err
	}
	for _, e := range b.sessions.Pending(id) {
		r.Close(e)
	}
	o := b.batchOf(id)
	b.noteSpread(id, r)
	if len(r.Uses) == 0 || o == nil {
		return away
	}
	return cmp.Or(b.enforce(id, o, r), away)
}

// enforce ends the open sessions of a voucher that admits nobody any more, and those that have left, and tells the
// others what is left for them. The voucher's lock must be held.
func (b *Book) enforce(id ID, o *batch, r *record) (err error) {
	u := b.sessions.Usage(&r.Used)
	online, bytes := r.Online+int64(u.Online), r.Bytes+u.Bytes
	all, kicked := b.causeOf(o, r, online, bytes), false
	for _, one := range r.Uses {
		cause := all
		if cause == "" && one.Left {
			cause = session.UserRequest
		}
		if cause != "" && b.mine(one) {
			b.sessions.Kick(one, cause)
			kicked = true
		}
	}
	if kicked || all != "" {
		err = b.change(id, nothing)
	}
	if all != "" {
		return err
	}
	timeout, bytesLeft := b.left(o, r, online, bytes)
	for i, s := range u.Sessions {
		if s.ID != "" && !r.Uses[i].Left {
			err = errors.Join(err, b.sessions.Limit(r.Uses[i], s, timeout, bytesLeft, false))
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
	return b.sessions.Number()
}
