// A holder's sessions: their begin, their end, and what is left for them.

package daily

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Begin counts the session that is about to begin for a device and a room, "" is none, and sets the session's limits to
// what is left of their day. It fails with ErrUsedUp where nothing is. Began must follow once the session has begun, or
// Undo.
func (b *Book) Begin(login *session.Login, key session.Key, device, room Holder) error {
	all := b.holders(device, room)
	if len(all) == 0 {
		return nil
	}
	defer b.lock(all...)()
	mine := allowance.Use{Session: login.SessionID, Network: b.network, MAC: net.HardwareAddr(key.MAC[:]).String(),
		Addr: key.Addr, OwnTime: int64(login.Limits.SessionTimeout), OwnBytes: login.Limits.TotalBytes}
	err := b.change(all, func(records map[Holder]*record) error {
		for h, r := range records {
			if left := b.left(h, r); left.Over() {
				return usedUp{left.Again}
			}
			if len(r.Uses) >= maxUses {
				return session.ErrSessions
			}
			r.Uses = append(r.Uses, mine)
			timeout, bytes := b.share(h, r)
			shorten(&login.Limits.SessionTimeout, timeout)
			shorten(&login.Limits.TotalBytes, bytes)
		}
		return nil
	})
	if err == nil {
		for _, h := range all {
			b.sessions.Open(mine.Session, h)
		}
	}
	return err
}

// shorten sets a limit to another one that is less; 0 is none.
func shorten[T time.Duration | uint64](limit *T, other T) {
	if other > 0 && (*limit == 0 || other < *limit) {
		*limit = other
	}
}

// share is for how long each open session of a holder may go on, and how many bytes they have together; 0: unlimited.
func (b *Book) share(h Holder, r *record) (timeout time.Duration, bytes uint64) {
	a := b.terms.of(h)
	online, data := b.used(h, r)
	return r.Share(a.Time, online), allowance.Rest(a.Bytes, data)
}

// Began shares what is left of a holder's day anew after a session has begun.
func (b *Book) Began(login session.Login) (err error) {
	for _, h := range b.sessions.Holders(login.SessionID) {
		err = errors.Join(err, b.balance(h))
	}
	return err
}

// Undo forgets a session that Begin counted and that did not begin.
func (b *Book) Undo(login session.Login) error {
	all := slices.Clone(b.sessions.Holders(login.SessionID))
	if len(all) == 0 {
		return nil
	}
	defer b.lock(all...)()
	err := b.change(all, func(records map[Holder]*record) error {
		for _, r := range records {
			r.Close(allowance.End{Session: login.SessionID})
		}
		return nil
	})
	if err == nil {
		for _, h := range all {
			b.sessions.Close(login.SessionID, h)
		}
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
	all := slices.Clone(b.sessions.Holders(e.ID))
	if len(all) == 0 || e.Kind != session.Ended {
		return nil
	}
	b.sessions.Note(allowance.End{Session: e.ID, Online: e.At.Sub(e.Began), Bytes: e.UpBytes + e.DownBytes})
	defer b.lock(all...)()
	return b.change(all, nothing)
}

// settle writes what sessions used that have ended, and shares what is left of their holders' days anew.
func (b *Book) settle() (err error) {
	for _, h := range b.sessions.Ended() {
		err = errors.Join(err, b.balance(h))
	}
	return err
}

// balance writes what sessions of a holder used that have ended, ends the open ones if nothing is left of the day, and
// tells them otherwise what is left for them.
func (b *Book) balance(h Holder) error {
	defer b.lock(h)()
	var r *record
	err := b.change([]Holder{h}, func(records map[Holder]*record) error { r = records[h]; return nil })
	if err != nil || len(r.Uses) == 0 {
		return err
	}
	over := b.left(h, r)
	for i, s := range b.sessions.Usage(&r.Used).Sessions {
		if s.ID == "" {
			continue
		}
		if over.Over() {
			cause := session.SessionTimeout
			if over.Counted && over.Bytes == 0 {
				cause = session.Quota
			}
			b.sessions.Kick(r.Uses[i], cause)
			continue
		}
		timeout, bytes, failed := b.limitsOf(r.Uses[i], s, h, r)
		if failed == nil {
			failed = b.sessions.Limit(r.Uses[i], s, timeout, bytes, true)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// limitsOf is what is left for a session: the least of its own limits, and of what its holders have, of one of which
// the record is given.
func (b *Book) limitsOf(u allowance.Use, s session.Session, h Holder, r *record) (timeout time.Duration, bytes uint64,
	err error) {
	timeout, bytes = b.share(h, r)
	if u.OwnTime > 0 {
		shorten(&timeout, max(time.Duration(u.OwnTime)-time.Since(s.Began), time.Nanosecond))
	}
	shorten(&bytes, allowance.Rest(u.OwnBytes, s.UpBytes+s.DownBytes))
	for _, other := range b.sessions.Holders(s.ID) {
		if other == h {
			continue
		}
		or, err := b.read(other)
		if err != nil {
			return 0, 0, err
		}
		otherTimeout, otherBytes := b.share(other, or)
		shorten(&timeout, otherTimeout)
		shorten(&bytes, otherBytes)
	}
	return timeout, bytes, nil
}

// look balances the holders that need it from time to time: those of several sessions, whose bytes are counted
// together, and those of whom other gateways have told; when a day begins, all.
func (b *Book) look(moved bool) {
	told := b.takeChanged()
	for h, n := range b.sessions.OfEach() {
		if !moved && !told[h] && !(n > 1 && b.terms.of(h).Bytes > 0) {
			continue
		}
		if err := b.balance(h); err != nil {
			b.log.Warn("sessions may go on for too long", "of", h, "err", err)
		}
	}
}

// readAtOnce is how many records are read at a time.
const readAtOnce = 1000

// each calls visit with the records of all holders, as they are on the disk, until it fails. None is held.
func (b *Book) each(visit func(Holder, *record) error) error {
	for behind := Holder(""); ; {
		var holders []Holder
		var records []*record
		err := b.store.Each(behind, func(h Holder, data []byte) (bool, error) {
			r, err := decode(data)
			holders, records = append(holders, h), append(records, r)
			return len(holders) < readAtOnce, err
		})
		if err != nil || len(holders) == 0 {
			return err
		}
		for i, h := range holders {
			if err := visit(h, records[i]); err != nil {
				return err
			}
			behind = h
		}
	}
}

// tidy deletes records of former days that have no session.
func (b *Book) tidy() error {
	return b.each(func(h Holder, r *record) error {
		day := r.Day
		if b.begin(r); r.Day == day || len(r.Uses) > 0 {
			return nil
		}
		return b.forget(h)
	})
}

// forget deletes a record, if it is still of a former day.
func (b *Book) forget(h Holder) error {
	defer b.lock(h)()
	r, err := b.read(h)
	if err != nil || len(r.Uses) > 0 || r.Online > 0 || r.Bytes > 0 {
		return err
	}
	if err = b.store.Put(map[Holder][]byte{h: nil}); err == nil {
		b.tell(h, nil)
	}
	return err
}

// Serve begins to look after the sessions of the network. It first closes those that have ended while nobody looked:
// what they used is in the ends that are not accounted yet. holdersOf says whose a session is; sessions that are not
// counted come into the records, so that they count.
func (b *Book) Serve(t allowance.Table, holdersOf func(session.Session) (device, room Holder)) error {
	recorded := map[string]bool{}
	held := b.sessions.OfEach()
	for h := range held {
		r, err := b.read(h)
		if err != nil {
			return err
		}
		for _, u := range r.Uses {
			recorded[u.Session] = true
		}
	}
	if err := b.sessions.NoteLost(t, recorded); err != nil {
		return err
	}
	b.sessions.Serve(b.network, t)
	var err error
	for h := range held {
		err = errors.Join(err, b.balance(h))
	}
	var mine []session.Session
	t.Each(func(s session.Session) bool {
		if s.State == session.Authenticated {
			mine = append(mine, s)
		}
		return true
	})
	for _, s := range mine {
		err = errors.Join(err, b.takeUp(s, b.holders(holdersOf(s))))
	}
	if b.shared != nil {
		b.shared.mirror.Read(b.source)
	}
	return err
}

// takeUp counts a session that goes on for those of its holders that do not have it: from a configuration without them.
func (b *Book) takeUp(s session.Session, all []Holder) error {
	all = slices.DeleteFunc(all, func(h Holder) bool { return slices.Contains(b.sessions.Holders(s.ID), h) })
	if len(all) == 0 {
		return nil
	}
	ownTime, ownBytes, err := b.ownLimits(s)
	if err != nil {
		return err
	}
	unlock := b.lock(all...)
	err = b.change(all, func(records map[Holder]*record) error {
		for _, r := range records {
			r.Uses = append(r.Uses, allowance.Use{Session: s.ID, Network: b.network,
				MAC: net.HardwareAddr(s.MAC[:]).String(), Addr: s.Addr,
				OnlineBefore: int64(max(time.Since(s.Began), 0)), BytesBefore: s.UpBytes + s.DownBytes,
				OwnTime: ownTime, OwnBytes: ownBytes})
		}
		return nil
	})
	unlock()
	for _, h := range all {
		if err == nil {
			b.sessions.Open(s.ID, h)
			err = b.balance(h)
		}
	}
	return err
}

// ownLimits are a session's own limits: those that a holder's record has of it, of which the present ones may be a
// part; without one its present ones.
func (b *Book) ownLimits(s session.Session) (ownTime int64, ownBytes uint64, err error) {
	for _, h := range b.sessions.Holders(s.ID) {
		r, err := b.read(h)
		if err != nil {
			return 0, 0, err
		}
		for _, u := range r.Uses {
			if u.Session == s.ID {
				return u.OwnTime, u.OwnBytes, nil
			}
		}
	}
	return int64(s.Limits.SessionTimeout), s.Limits.TotalBytes, nil
}

// Leave ends Serve: the sessions go on as they are.
func (b *Book) Leave() {
	if b.shared != nil {
		b.shared.mirror.Read(nil)
	}
	b.sessions.Leave(b.network)
}
