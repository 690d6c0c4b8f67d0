// A voucher's sessions: their begin, their end, and what is left for them.

package voucher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Table is the session table of a network.
type Table = allowance.Table

// openOf returns the vouchers from first to before end that have open sessions, and how many.
func (b *Book) openOf(first, end ID) map[ID]int {
	all := b.sessions.OfEach()
	maps.DeleteFunc(all, func(id ID, _ int) bool { return id < first || id >= end })
	return all
}

// read returns the record of a voucher, as it is and decoded.
func (b *Book) read(id ID) (r *record, data []byte, err error) {
	err = b.store.Vouchers(id, func(found ID, was []byte) (bool, error) {
		if found == id {
			data = slices.Clone(was)
		}
		return false, nil
	})
	if err == nil && data == nil {
		err = fmt.Errorf("voucher %d: %w", id, ErrUnknown)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err = decodeRecord(data)
	return r, data, err
}

// changeTries bounds how often a change is tried again after others that came between.
const changeTries = 10

// change changes a voucher's record: first by the sessions that have ended, then by edit, whose error it returns. The
// voucher's lock must be held.
func (b *Book) change(id ID, edit func(*record) error) error {
	for range changeTries {
		r, was, err := b.read(id)
		if err != nil {
			return err
		}
		done := b.sessions.TakeEnded(id)
		b.closeAll(r, done)
		refused := edit(r)
		if refused != nil && len(done) == 0 {
			return refused
		}
		if refused != nil { // what has ended is written nevertheless
			if r, _, err = b.read(id); err != nil {
				b.sessions.PutBack(id, done)
				return err
			}
			b.closeAll(r, done)
		}
		var c Change
		if is := r.encode(); !bytes.Equal(is, was) {
			c.Vouchers = []Record{{ID: id, Was: was, Is: is}}
		}
		for _, e := range done {
			c.settled = append(c.settled, e.Session)
		}
		if len(c.Vouchers) > 0 || b.common != nil && len(done) > 0 {
			err = b.store.Write(c)
		}
		if err == nil {
			for _, e := range done {
				b.sessions.Close(e.Session, id)
			}
			return refused
		}
		b.sessions.PutBack(id, done)
		if !errors.Is(err, ErrChanged) {
			return cmp.Or(refused, err)
		}
	}
	return ErrChanged
}

// closeAll closes sessions that have ended in a record. One that is not there may have its begin on the way to the
// store.
func (b *Book) closeAll(r *record, done []allowance.End) {
	for _, e := range done {
		if !r.Close(e) && b.common != nil {
			r.Fence = e.Session
		}
	}
}

// lock holds a voucher for a change.
func (b *Book) lock(id ID) (unlock func()) {
	m := &b.one[id%ID(len(b.one))]
	m.Lock()
	return m.Unlock
}

// nothing is an edit that changes nothing.
func nothing(*record) error { return nil }

// Begin takes a place of the voucher that admits a client for the session that is about to begin, and sets the
// session's limits. It fails with session.ErrSessions where all places are taken, unless one of them is the same
// device's: that session ends then. Began must follow once the session has begun, or Undo. network is the client's.
func (b *Book) Begin(login *session.Login, key session.Key, network string) error {
	first, _, err := b.find(login.Voucher)
	if err != nil {
		return err
	}
	defer b.lock(first)()
	o := b.batchOf(first)
	mac := net.HardwareAddr(key.MAC[:]).String()
	mine := allowance.Use{Session: login.SessionID, Network: network, Gateway: b.gateway(), MAC: mac, Addr: key.Addr}
	err = b.take(first, o, mine, login, false)
	if !errors.Is(err, session.ErrSessions) {
		return err
	}
	r, _, failed := b.read(first)
	if failed != nil {
		return failed
	}
	i := slices.IndexFunc(r.Uses, func(u allowance.Use) bool { return u.MAC == mac && !u.Left })
	if i < 0 {
		return err
	}
	if former := r.Uses[i]; !b.mine(former) {
		return b.take(first, o, mine, login, true)
	} else if former.Network != network && !b.serves(former.Network) {
		b.sessions.Note(allowance.End{Session: former.Session}) // it ends, and counts, if its network comes back: see TakeUp
	} else if !b.sessions.Kick(former, session.UserRequest) {
		return err
	}
	return b.take(first, o, mine, login, false)
}

// serves reports whether the sessions of a network are looked after.
func (b *Book) serves(network string) bool {
	return b.sessions.Table(network) != nil
}

// take is Begin without replacing a session of this gateway; roamed: one of the device at another gateway ends, which
// that one sees. The voucher's lock must be held.
func (b *Book) take(id ID, o *batch, mine allowance.Use, login *session.Login, roamed bool) error {
	b.sessions.Open(mine.Session, id) // before: other gateways' changes are compared with it
	err := b.change(id, func(r *record) error {
		u := b.sessions.Usage(&r.Used)
		online, data := r.Online+int64(u.Online), r.Bytes+u.Bytes
		if refused := b.state(o, r, online, data).rejection(); refused != nil {
			return refused
		}
		for i, u := range r.Uses {
			r.Uses[i].Left = u.Left || roamed && u.MAC == mine.MAC && !b.mine(u)
		}
		if r.Places() >= o.Terms.Devices || len(r.Uses) >= maxUses {
			return session.ErrSessions
		}
		if r.First == 0 {
			r.First = b.clock.line().UnixNano()
		}
		r.Uses = append(r.Uses, mine)
		timeout, bytesLeft := b.left(o, r, online, data)
		if timeout > 0 {
			login.Limits.SessionTimeout = timeout
		}
		if bytesLeft > 0 {
			login.Limits.TotalBytes = bytesLeft
		}
		return nil
	})
	if err != nil {
		b.giveUp(id, mine.Session, err)
	}
	return err
}

// left is for how long each open session of a voucher may go on, and how many bytes they have together; 0: unlimited.
func (b *Book) left(o *batch, r *record, online int64, data uint64) (timeout time.Duration, bytesLeft uint64) {
	if valid, limited := b.validFor(o, r); limited {
		timeout = max(valid, time.Nanosecond)
	}
	share := r.Share(time.Duration(o.Terms.OnlineSeconds)*time.Second, time.Duration(online))
	if share > 0 && (timeout == 0 || share < timeout) {
		timeout = share
	}
	return timeout, allowance.Rest(o.Terms.Bytes, data)
}

// Began shares a voucher's time anew after a session has begun. It fails, and the session ends, if the voucher was
// revoked meanwhile.
func (b *Book) Began(login session.Login) error {
	first, _, err := b.find(login.Voucher)
	if err != nil {
		return err
	}
	if err := b.balance(first); err != nil {
		return err
	}
	r, _, err := b.read(first)
	if err == nil && r.Revoked {
		err = Revoked.rejection()
	}
	return err
}

// Undo gives a place back that Begin took for a session that did not begin. A voucher that was not used otherwise is
// new again.
func (b *Book) Undo(login session.Login) error {
	first, _, err := b.find(login.Voucher)
	if err != nil {
		return err
	}
	defer b.lock(first)()
	err = b.change(first, func(r *record) error {
		r.Close(allowance.End{Session: login.SessionID})
		if len(r.Uses) == 0 && r.Online == 0 && r.Bytes == 0 {
			r.First = 0
		}
		return nil
	})
	if err == nil || errors.Is(err, session.ErrTryAgain) {
		b.giveUp(first, login.SessionID, err)
		err = nil
	}
	return err
}

// SessionEnded takes note of a session that has ended, of whatever user. It does not wait for the disk, as EndAccounted
// does.
func (b *Book) SessionEnded(s session.Session) {
	b.sessions.Note(allowance.End{Session: s.ID, Online: time.Since(s.Began), Bytes: s.UpBytes + s.DownBytes})
}

// EndAccounted returns once what the session of an end used is on the disk. Before that the session table must not
// forget the end.
func (b *Book) EndAccounted(e session.Event) error {
	holders := b.sessions.Holders(e.ID)
	if len(holders) == 0 || e.Kind != session.Ended {
		return nil
	}
	id := holders[0]
	end := allowance.End{Session: e.ID, Online: e.At.Sub(e.Began), Bytes: e.UpBytes + e.DownBytes}
	b.sessions.Note(end)
	if b.common != nil {
		return b.common.keep(id, end)
	}
	defer b.lock(id)()
	return b.change(id, nothing)
}

// settle writes what sessions used that have ended, and shares what is left of their vouchers anew.
func (b *Book) settle() (err error) {
	for _, id := range b.sessions.Ended() {
		failed := b.balance(id)
		if errors.Is(failed, session.ErrTryAgain) {
			break // they are kept, and written when the store is back
		}
		err = errors.Join(err, failed)
	}
	return err
}

// notSettled is what the log says where settle fails.
const notSettled = "vouchers: what sessions used is not on the disk yet"

// lookEvery is how often vouchers are looked at whose devices use their data together, or are at several gateways, or
// whose date the wall clock may have moved away from.
const lookEvery = time.Second

// Run writes what sessions used that have ended, and ends sessions of vouchers that are used up by several devices
// together, until ctx ends. Without Run the data path still enforces what each session was told when it began.
func (b *Book) Run(ctx context.Context) error {
	look := ticker.Every(lookEvery)
	defer look.Stop()
	ahead, saved := b.ahead(), time.Now()
	var back chan struct{} // nil: there is no store that may be back
	if b.common != nil {
		back = b.common.back
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.sessions.Changed():
			if err := b.settle(); err != nil {
				b.log.Warn(notSettled, "err", err)
			}
			continue
		case <-back:
			b.returned()
			continue
		case <-b.changed:
			b.merge()
			continue
		case <-look.C:
		}
		now := b.ahead()
		moved := (now - ahead).Abs() >= time.Second
		if moved {
			ahead = now
		}
		b.look(moved)
		if moved || time.Since(saved) >= time.Minute {
			if saved = time.Now(); b.clock.save() != nil {
				b.log.Warn("vouchers: how the state folder's times relate to the clock is not on the disk yet")
			}
		}
	}
}

// ahead is how far the wall clock is ahead of the time line. It changes where the wall clock is set.
func (b *Book) ahead() time.Duration { return b.clock.wall().Round(0).Sub(b.clock.line().Round(0)) }

// look balances the vouchers that need it from time to time; moved says that the wall clock was set.
func (b *Book) look(moved bool) {
	for id, n := range b.openOf(0, math.MaxUint64) {
		o := b.batchOf(id)
		if o == nil || !(n > 1 && o.Terms.Bytes > 0) && !b.isSpread(id) && !(moved && !o.Terms.Until.IsZero()) {
			continue
		}
		if err := b.balance(id); err != nil && !errors.Is(err, session.ErrTryAgain) {
			b.log.Warn("voucher: its sessions may go on for too long", "voucher", o.name(id), "err", err)
		}
	}
}
