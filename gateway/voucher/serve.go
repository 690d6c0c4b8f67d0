// A network's sessions at its start and its end.

package voucher

import (
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TakeUp decides about a session that a network has from before, when the network starts and before the session's
// packets pass. It returns why the session must end; empty: it goes on. A voucher's session that is not in the
// voucher's record comes into it, so that it takes a place and counts, even if it must end: then Serve counts it. That
// happens where the record is of a copy that was put back, or another network's session took the place meanwhile.
//
// In a book without batches all sessions go on: its file was lost, and a copy may be put back.
func (b *Book) TakeUp(network string, s session.Session) (cause session.Cause) {
	name, mine := strings.CutPrefix(s.User, userPrefix)
	if !mine || s.State != session.Authenticated || s.Way != "" || s.PPPoE.Session != 0 || b.empty() {
		return ""
	}
	_, number := SplitName(name)
	id, _, err := b.find(name)
	if err != nil && b.common != nil && !b.common.ready() {
		return "" // other gateways may know it: see merge
	}
	if err != nil || number == 0 {
		b.log.Warn("voucher: a session ends, because nobody knows its voucher", "user", s.User, "session", s.ID)
		return session.AdminReset
	}
	defer b.lock(id)()
	o := b.batchOf(id)
	err = b.change(id, func(r *record) (err error) {
		cause, err = b.hold(o, r, network, s)
		return err
	})
	if errors.Is(err, session.ErrTryAgain) { // it goes on, and is taken up again when the store is back
		err, cause = nil, ""
	}
	if err != nil {
		b.log.Warn("voucher: a session ends, because it cannot be counted", "user", s.User, "session", s.ID, "err", err)
		return session.AdminReset
	}
	if !slices.Contains(b.sessions.Holders(s.ID), id) { // the record may have it from the store, or from before the store
		b.sessions.Open(s.ID, id)
	}
	return cause
}

// hold puts a session of a network into the record of its voucher, where it is not there, and returns why it must end;
// empty: it goes on.
func (b *Book) hold(o *batch, r *record, network string, s session.Session) (cause session.Cause, err error) {
	place := slices.IndexFunc(r.Uses, func(u allowance.Use) bool { return u.Session == s.ID })
	if place < 0 {
		if len(r.Uses) >= maxUses {
			return "", session.ErrSessions
		}
		place = len(r.Uses)
		r.Uses = append(r.Uses, allowance.Use{Session: s.ID, Network: network, Gateway: b.gateway(),
			MAC: net.HardwareAddr(s.MAC[:]).String(), Addr: s.Addr})
		if r.First == 0 {
			r.First = b.clock.line().Add(-time.Since(s.Began)).UnixNano()
		}
	}
	r.Uses[place].Network, r.Uses[place].Gateway = network, b.gateway()
	u := b.sessions.Usage(&r.Used)
	if !slices.ContainsFunc(u.Sessions, func(one session.Session) bool { return one.ID == s.ID }) {
		u.Online, u.Bytes = u.Online+time.Since(s.Began), u.Bytes+s.UpBytes+s.DownBytes
	}
	cause = b.causeOf(o, r, r.Online+int64(u.Online), r.Bytes+u.Bytes)
	if cause == "" && place >= o.Terms.Devices+len(r.Uses)-r.Places() {
		cause = session.AdminReset
	}
	return cause, nil
}

// away counts a voucher's sessions in networks that are not served now.
func (b *Book) away(id ID) (n int, err error) {
	r, _, err := b.read(id)
	if err != nil {
		return 0, err
	}
	for _, u := range r.Uses {
		if b.mine(u) && !b.serves(u.Network) {
			n++
		}
	}
	return n, nil
}

// empty reports whether there is no batch.
func (b *Book) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.batches) == 0
}

// Serve begins to look after the sessions of a network, all of which it takes up (see TakeUp). It first closes those
// that have ended while nobody looked: what they used is in the ends that are not accounted yet. Sessions of vouchers
// that admit nobody any more end.
func (b *Book) Serve(network string, t Table) error {
	recorded := map[string]bool{}
	var ids []ID
	for id := range b.openOf(0, ^ID(0)) {
		r, _, err := b.read(id)
		if err != nil {
			return err
		}
		for _, u := range r.Uses {
			if u.Network == network && b.mine(u) {
				recorded[u.Session] = true
				ids = append(ids, id)
			}
		}
	}
	if err := b.sessions.NoteLost(t, recorded); err != nil {
		return err
	}
	b.sessions.Serve(network, t)
	b.takeUpAll(network, t)
	var err error
	for _, id := range ids {
		if failed := b.balance(id); !errors.Is(failed, session.ErrTryAgain) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// takeUpAll takes up the sessions of a network's table, because places may have been taken since TakeUp was asked, and
// ends those that cannot go on.
func (b *Book) takeUpAll(network string, t Table) {
	var mine []session.Session
	t.Each(func(s session.Session) bool {
		if strings.HasPrefix(s.User, userPrefix) {
			mine = append(mine, s)
		}
		return true
	})
	for _, s := range mine {
		cause := b.TakeUp(network, s)
		if cause == "" {
			continue
		}
		if err := t.Kick(s.Addr, s.ID, cause); err != nil && !errors.Is(err, session.ErrLater) &&
			!errors.Is(err, session.ErrNoSession) {
			b.log.Warn("voucher: its session cannot be ended", "user", s.User, "session", s.ID, "err", err)
		}
	}
}

// Leave ends Serve: the network's sessions go on as they are.
func (b *Book) Leave(network string) {
	b.sessions.Leave(network)
}

// Retain closes the sessions of networks that are served no longer.
func (b *Book) Retain(served func(network string) bool) error {
	for id := range b.openOf(0, ^ID(0)) {
		r, _, err := b.read(id)
		if err != nil {
			return err
		}
		for _, u := range r.Uses {
			if b.mine(u) && !served(u.Network) {
				b.sessions.Note(allowance.End{Session: u.Session})
			}
		}
	}
	return b.settle()
}
