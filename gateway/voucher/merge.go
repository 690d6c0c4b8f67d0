// A book that gateways have together: which sessions are this gateway's, and what others have changed.

package voucher

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// OpenShared opens the book that all gateways of a store have together, with its copy in a state folder. elsewhere
// returns a session of another gateway, as far as it is known here; nil: none is known. It fails with ErrAlien where
// the folder has batches that cannot come into the store.
func OpenShared(folder string, store *cluster.Store, elsewhere func(allowance.Use) (session.Session, bool),
	log *slog.Logger,
) (*Book, error) {
	line, err := timeline.Open(folder)
	if err != nil {
		return nil, err
	}
	s, err := openShared(filepath.Join(folder, FileName), store, log)
	if err != nil {
		return nil, err
	}
	b, err := OpenStore(s, log, sharedClock(line, store, s))
	if err == nil {
		b.sessions.Elsewhere = elsewhere
		err = b.takeKept()
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	s.adopted = b.adopted
	if err := s.share(store); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return b, nil
}

// aheadKey is the key of how far the store's clock is ahead of the folder's time line.
var aheadKey = []byte("ahead")

// sharedClock is the clock of a shared book: its line is the store's clock, which all gateways have. While the store
// was not reached yet it is as far ahead of the folder's line as it was last.
func sharedClock(line *timeline.Line, store *cluster.Store, s *shared) clock {
	var ahead, kept atomic.Int64
	_ = s.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(aboutBucket).Get(aheadKey); len(v) == 8 {
			kept.Store(int64(binary.BigEndian.Uint64(v)))
		}
		return nil
	})
	ahead.Store(kept.Load())
	now := func() time.Time {
		own := line.At(time.Now())
		if theirs, asked := store.Now(); !asked.IsZero() {
			ahead.Store(int64(theirs.Sub(own)))
		}
		return own.Add(time.Duration(ahead.Load()))
	}
	save := func() error {
		err := errors.Join(line.Save(), s.prune())
		if a := ahead.Load(); err == nil && time.Duration(a-kept.Load()).Abs() >= time.Second {
			err = s.db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket(aboutBucket).Put(aheadKey, binary.BigEndian.AppendUint64(nil, uint64(a)))
			})
			kept.Store(a)
		}
		return err
	}
	return clock{time.Now, now, save}
}

// gateway is this gateway's name in records; "": it is the only one.
func (b *Book) gateway() string {
	if b.common == nil {
		return ""
	}
	return b.common.gateway
}

// mine reports whether a session is this gateway's. One that has left the store has all.
func (b *Book) mine(u allowance.Use) bool { return b.common == nil || u.Gateway == b.common.gateway }

// noteSpread notes whether a voucher has open sessions here and at other gateways, whose use is looked at all the time.
func (b *Book) noteSpread(id ID, r *record) {
	here, there := 0, 0
	for _, u := range r.Uses {
		if b.mine(u) {
			here++
		} else {
			there++
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if here > 0 && there > 0 {
		b.spread[id] = true
	} else {
		delete(b.spread, id)
	}
}

func (b *Book) isSpread(id ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spread[id]
}

// takeKept takes up the ends that are not in the store.
func (b *Book) takeKept() error {
	all, err := b.common.unsettled()
	for _, e := range all {
		if !slices.Contains(b.sessions.Holders(e.Session), e.Voucher) {
			b.sessions.Open(e.Session, e.Voucher)
		}
		b.sessions.Note(e.end())
	}
	return err
}

// giveUp gives the place of a session back that did not begin. why is the error with which its place was taken or given
// back: after session.ErrTryAgain, or one of the file, the store may have it, or get it late.
func (b *Book) giveUp(id ID, sessionID string, why error) {
	refused := why == nil || errors.Is(why, session.ErrRejected) || errors.Is(why, session.ErrSessions) ||
		errors.Is(why, ErrChanged)
	if b.common == nil || refused {
		b.sessions.Close(sessionID, id)
		return
	}
	never := allowance.End{Session: sessionID}
	b.sessions.Note(never)
	if err := b.common.keep(id, never); err != nil {
		b.log.Error("a voucher's place may stay taken by a login that failed", "session", sessionID, "err", err)
	}
}

// adopted takes note of what other gateways have changed.
func (b *Book) adopted(news adopted) {
	for _, one := range news.batches {
		b.addBatch(one)
	}
	open := b.sessions.OfEach()
	b.mu.Lock()
	for _, id := range news.vouchers {
		if news.mine[id] || open[id] > 0 {
			b.again[id] = true
		}
	}
	n := len(b.again)
	b.mu.Unlock()
	if n > 0 {
		signal(b.changed)
	}
}

// merge looks at the vouchers that other gateways have changed.
func (b *Book) merge() {
	b.mu.Lock()
	all := b.again
	b.again = map[ID]bool{}
	b.mu.Unlock()
	for id := range all {
		err := b.mergeOne(id)
		if err == nil {
			err = b.balance(id)
		}
		if err != nil && !errors.Is(err, session.ErrTryAgain) {
			b.log.Warn("voucher: its sessions may go on for too long", "voucher", id, "err", err)
		}
	}
}

// mergeOne closes sessions of this gateway that a voucher has, and that never began or have ended, and takes those up
// that it lacks. Both happen where the store has lost its last changes. Those that go on may be new to this book, whose
// file was lost.
func (b *Book) mergeOne(id ID) error {
	unlock := b.lock(id)
	r, _, err := b.read(id)
	if err != nil {
		unlock()
		return err
	}
	has := map[string]bool{}
	for _, u := range r.Uses {
		has[u.Session] = true
		if b.mine(u) && !slices.Contains(b.sessions.Holders(u.Session), id) {
			b.sessions.Open(u.Session, id)
			e, ended := b.common.keptOf(u.Session)
			if one, _ := b.sessions.Find(u); ended || one.ID == "" && b.serves(u.Network) { // or it never began
				b.sessions.Note(e.end())
			}
		}
	}
	for _, e := range b.sessions.Pending(id) {
		has[e.Session] = true
	}
	lacks := slices.DeleteFunc(b.sessions.Of(id), func(s string) bool { return has[s] })
	unlock()
	if len(lacks) > 0 {
		b.sessions.EachTable(func(network string, t Table) { b.takeUpAll(network, t) })
	}
	return nil
}

// returned takes all sessions up again, and writes what waits, when the store is back.
func (b *Book) returned() {
	b.sessions.EachTable(func(network string, t Table) { b.takeUpAll(network, t) })
	if err := b.settle(); err != nil {
		b.log.Warn(notSettled, "err", err)
	}
}
