// A voucher's sessions: their begin, their end, and what is left for them.

package voucher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/ticker"
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

// setOpen keeps that a session is one of a voucher's; mu is held, or nobody else has the book yet.
func (b *Book) setOpen(sessionID string, id ID) {
	b.open[sessionID] = id
	b.ofOne[id]++
}

// setClosed undoes setOpen.
func (b *Book) setClosed(sessionID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, found := b.open[sessionID]
	if !found {
		return
	}
	delete(b.open, sessionID)
	if b.ofOne[id]--; b.ofOne[id] == 0 {
		delete(b.ofOne, id)
	}
}

// openOf returns the vouchers from first to before end that have open sessions, and how many.
func (b *Book) openOf(first, end ID) map[ID]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.ofOne)
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
		done := b.takeEnded(id)
		for _, e := range done {
			r.close(e)
		}
		refused := edit(r)
		if refused != nil && len(done) == 0 {
			return refused
		}
		if refused != nil { // what has ended is written nevertheless
			r, _, _ = b.read(id)
			for _, e := range done {
				r.close(e)
			}
		}
		if is := r.encode(); !bytes.Equal(is, was) {
			err = b.store.Write(Change{Vouchers: []Record{{ID: id, Was: was, Is: is}}})
		}
		if err == nil {
			for _, e := range done {
				b.setClosed(e.session)
			}
			return refused
		}
		b.putBack(id, done)
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

// close takes a session out of a record and adds what it used, if it is there.
func (r *record) close(e ending) {
	i := slices.IndexFunc(r.Uses, func(u use) bool { return u.Session == e.session })
	if i < 0 {
		return
	}
	r.Uses = slices.Delete(r.Uses, i, i+1)
	r.Online += int64(min(max(e.online, 0), time.Duration(math.MaxInt64-r.Online)))
	r.Bytes += min(e.bytes, math.MaxUint64-r.Bytes)
}

func (b *Book) takeEnded(id ID) []ending {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.ended[id]
	delete(b.ended, id)
	return all
}

func (b *Book) putBack(id ID, all []ending) {
	if len(all) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[id] = append(all, b.ended[id]...)
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
	mine := use{Session: login.SessionID, Network: network, MAC: mac, Addr: key.Addr}
	err = b.take(first, o, mine, login)
	if !errors.Is(err, session.ErrSessions) {
		return err
	}
	r, _, failed := b.read(first)
	if failed != nil {
		return failed
	}
	i := slices.IndexFunc(r.Uses, func(u use) bool { return u.MAC == mac })
	if i < 0 {
		return err
	}
	if former := r.Uses[i]; former.Network != network && !b.serves(former.Network) {
		b.note(former.Session, 0, 0) // it ends, and counts, if its network comes back: see TakeUp
	} else if !b.endUse(former, session.UserRequest) {
		return err
	}
	return b.take(first, o, mine, login)
}

// serves reports whether the sessions of a network are looked after.
func (b *Book) serves(network string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tables[network] != nil
}

// take is Begin without replacing a session. The voucher's lock must be held.
func (b *Book) take(id ID, o *batch, mine use, login *session.Login) error {
	err := b.change(id, func(r *record) error {
		u := b.usage(r)
		online, data := r.Online+int64(u.online), r.Bytes+u.bytes
		if refused := b.state(o, r, online, data).rejection(); refused != nil {
			return refused
		}
		if len(r.Uses) >= o.Terms.Devices {
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
	if err == nil {
		b.mu.Lock()
		b.setOpen(mine.Session, id)
		b.mu.Unlock()
	}
	return err
}

// left is for how long each open session of a voucher may go on, and how many bytes they have together; 0: unlimited.
func (b *Book) left(o *batch, r *record, online int64, data uint64) (timeout time.Duration, bytesLeft uint64) {
	if valid, limited := b.validFor(o, r); limited {
		timeout = max(valid, time.Nanosecond)
	}
	if s := o.Terms.OnlineSeconds; s > 0 {
		share := max(time.Duration(s*int64(time.Second)-online)/time.Duration(max(len(r.Uses), 1)), time.Nanosecond)
		if timeout == 0 || share < timeout {
			timeout = share
		}
	}
	if o.Terms.Bytes > 0 {
		bytesLeft = max(o.Terms.Bytes-min(data, o.Terms.Bytes), 1)
	}
	return timeout, bytesLeft
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
		r.close(ending{session: login.SessionID})
		if len(r.Uses) == 0 && r.Online == 0 && r.Bytes == 0 {
			r.First = 0
		}
		return nil
	})
	if err == nil {
		b.setClosed(login.SessionID)
	}
	return err
}

// SessionEnded takes note of a session that has ended, of whatever user. It does not wait for the disk, as EndAccounted
// does.
func (b *Book) SessionEnded(s session.Session) {
	b.note(s.ID, time.Since(s.Began), s.UpBytes+s.DownBytes)
}

func (b *Book) note(sessionID string, online time.Duration, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, found := b.open[sessionID]
	if !found || slices.ContainsFunc(b.ended[id], func(e ending) bool { return e.session == sessionID }) {
		return
	}
	b.ended[id] = append(b.ended[id], ending{sessionID, online, bytes})
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// EndAccounted returns once what the session of an end used is on the disk. Before that the session table must not
// forget the end.
func (b *Book) EndAccounted(e session.Event) error {
	b.mu.Lock()
	id, found := b.open[e.ID]
	b.mu.Unlock()
	if !found || e.Kind != session.Ended {
		return nil
	}
	b.note(e.ID, e.At.Sub(e.Began), e.UpBytes+e.DownBytes)
	defer b.lock(id)()
	return b.change(id, nothing)
}

// settle writes what sessions used that have ended, and shares what is left of their vouchers anew.
func (b *Book) settle() (err error) {
	b.mu.Lock()
	ids := slices.Sorted(maps.Keys(b.ended))
	b.mu.Unlock()
	for _, id := range ids {
		err = errors.Join(err, b.balance(id))
	}
	return err
}

// notSettled is what the log says where settle fails.
const notSettled = "vouchers: what sessions used is not on the disk yet"

// lookEvery is how often vouchers are looked at whose devices use their data together, or whose date the wall clock may
// have moved away from.
const lookEvery = time.Second

// Run writes what sessions used that have ended, and ends sessions of vouchers that are used up by several devices
// together, until ctx ends. Without Run the data path still enforces what each session was told when it began.
func (b *Book) Run(ctx context.Context) error {
	look := ticker.Every(lookEvery)
	defer look.Stop()
	ahead, saved := b.ahead(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.changed:
			if err := b.settle(); err != nil {
				b.log.Warn(notSettled, "err", err)
			}
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
		if o == nil || !(n > 1 && o.Terms.Bytes > 0) && !(moved && !o.Terms.Until.IsZero()) {
			continue
		}
		if err := b.balance(id); err != nil {
			b.log.Warn("voucher: its sessions may go on for too long", "voucher", o.name(id), "err", err)
		}
	}
}
