package voucher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// FileName is the file in a state folder in which a book is kept.
const FileName = "vouchers.db"

// Book is a daemon's vouchers, of all of its networks. Its methods may be called from several goroutines.
type Book struct {
	store  Store
	log    *slog.Logger
	clock  clock
	common *shared // the store, where gateways have it together; nil: it is this one's alone

	creating sync.Mutex      // held while a batch is added
	one      [256]sync.Mutex // held while a voucher changes: that of the ID's last byte

	sessions *allowance.Sessions[ID]

	mu      sync.Mutex  // guards what follows
	batches []*batch    // in the order of first
	again   map[ID]bool // vouchers that other gateways have changed, to be looked at
	spread  map[ID]bool // vouchers with open sessions here and at other gateways

	changed chan struct{} // has an element when again has
}

// clock is what time it is: by the wall clock, and on the state folder's time line (see timeline.Line).
type clock struct {
	wall, line func() time.Time
	save       func() error // keeps how both relate
}

// Open opens the book in a state folder, and begins one where there is none.
func Open(folder string, log *slog.Logger) (*Book, error) {
	line, err := timeline.Open(folder)
	if err != nil {
		return nil, err
	}
	store, err := OpenFile(filepath.Join(folder, FileName))
	if err != nil {
		return nil, err
	}
	b, err := OpenStore(store, log, clock{time.Now, func() time.Time { return line.At(time.Now()) }, line.Save})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return b, nil
}

// OpenStore reads the book in a store, which it closes with Close.
func OpenStore(store Store, log *slog.Logger, c clock) (*Book, error) {
	b := &Book{store: store, log: log, clock: c, sessions: allowance.New[ID](log), again: map[ID]bool{},
		spread:  map[ID]bool{},
		changed: make(chan struct{}, 1)}
	b.common, _ = store.(*shared)
	err := store.Batches(func(first ID, data []byte) error {
		one, err := decodeBatch(data)
		if err != nil {
			return fmt.Errorf("batch of voucher %d: %w", first, err)
		}
		one.first = first
		b.batches = append(b.batches, one)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, store.Vouchers(0, func(id ID, data []byte) (bool, error) {
		r, err := decodeRecord(data)
		if err != nil {
			return false, fmt.Errorf("voucher %d: %w", id, err)
		}
		for _, u := range r.Uses {
			if b.mine(u) {
				b.sessions.Open(u.Session, id)
			}
		}
		return true, nil
	})
}

// Close closes the store, after writing what sessions used that have ended.
func (b *Book) Close() error { return errors.Join(b.settle(), b.store.Close()) }

// Create adds a batch of vouchers and returns them. An empty name becomes the first number that is free.
func (b *Book) Create(name string, count int, terms Terms) ([]Voucher, error) {
	if err := Check(name, count, terms); err != nil {
		return nil, err
	}
	b.creating.Lock()
	defer b.creating.Unlock()
	var err error
	for range createTries {
		var one *batch
		if one, err = b.next(name); err != nil {
			return nil, err
		}
		one.Count, one.Terms, one.Created = count, terms, b.clock.wall().UTC().Truncate(time.Second)
		var all []Voucher
		c := Change{Batches: []Record{{ID: one.first, Is: encode(one)}}, Vouchers: make([]Record, 0, count)}
		codes := newCodes(count)
		for i, code := range codes {
			r := &record{Code: code}
			id := one.first + ID(i)
			c.Vouchers = append(c.Vouchers, Record{ID: id, Is: r.encode(), Code: code})
			all = append(all, b.show(one, id, r))
		}
		if err = b.store.Write(c); err == nil {
			b.addBatch(one)
			b.log.Info("vouchers made", "batch", one.Name, "vouchers", count)
			return all, nil
		}
		if !errors.Is(err, ErrChanged) && !(name == "" && errors.Is(err, ErrTaken)) {
			return nil, err
		}
	}
	return nil, err
}

// createTries bounds how often a batch is tried again: codes are taken once in a thousand years, but another gateway
// may make a batch at the same time.
const createTries = 5

// addBatch adds a batch, if it is not known.
func (b *Book) addBatch(one *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, known := slices.BinarySearchFunc(b.batches, one.first, byFirst)
	if !known {
		b.batches = slices.Insert(b.batches, i, one)
	}
}

// byFirst compares a batch with the ID of a voucher.
func byFirst(o *batch, id ID) int { return cmp.Compare(o.first, id) }

// next returns a batch of a name with the next IDs.
func (b *Book) next(name string) (*batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &batch{Name: name, first: 1}
	taken, all := map[string]bool{}, 0
	for _, o := range b.batches {
		one.first = o.first + ID(o.Count)
		taken[o.Name] = true
		all += o.Count
	}
	if all >= maxVouchers {
		return nil, ErrFull
	}
	if b.common != nil {
		one.first = sharedID(b.clock.wall())
	}
	if taken[name] {
		return nil, ErrTaken
	}
	for n := 1; one.Name == ""; n++ {
		if !taken[strconv.Itoa(n)] {
			one.Name = strconv.Itoa(n)
		}
	}
	return one, nil
}

// batchOf returns the batch of a voucher; nil: there is none.
func (b *Book) batchOf(id ID) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, found := slices.BinarySearchFunc(b.batches, id, byFirst)
	if !found {
		i--
	}
	if i < 0 || id >= b.batches[i].first+ID(b.batches[i].Count) {
		return nil
	}
	return b.batches[i]
}

// find returns the vouchers that a name means, "lobby" or "lobby-17": those from first to before end.
func (b *Book) find(name string) (first, end ID, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	batchName, number := SplitName(name)
	for _, o := range b.batches {
		switch {
		case o.Name == name:
			return o.first, o.first + ID(o.Count), nil
		case o.Name == batchName && 0 < number && number <= o.Count:
			return o.first + ID(number) - 1, o.first + ID(number), nil
		}
	}
	return 0, 0, fmt.Errorf("%q: %w", name, ErrUnknown)
}

// name is "lobby-17".
func (o *batch) name(id ID) string {
	return o.Name + "-" + strconv.FormatUint(uint64(id-o.first)+1, 10)
}

// show returns a voucher with what its ended sessions used.
func (b *Book) show(o *batch, id ID, r *record) Voucher {
	v := Voucher{Name: o.name(id), Batch: o.Name, Code: r.Code, Created: o.Created, Terms: o.Terms,
		UsedSeconds: int64(time.Duration(r.Online).Seconds()), UsedBytes: r.Bytes, Sessions: len(r.Uses),
		State: b.state(o, r, r.Online, r.Bytes), End: o.Terms.Until}
	if r.First == 0 {
		return v
	}
	since := b.clock.line().Sub(time.Unix(0, r.First))
	v.FirstUse = b.clock.wall().Add(-since).Truncate(time.Second)
	if s := o.Terms.ForSeconds; s > 0 {
		if end := v.FirstUse.Add(time.Duration(s) * time.Second); v.End.IsZero() || end.Before(v.End) {
			v.End = end
		}
	}
	return v
}

// state is the state of a voucher whose sessions have used so much.
func (b *Book) state(o *batch, r *record, online int64, bytes uint64) State {
	valid, limited := b.validFor(o, r)
	switch t := o.Terms; {
	case r.Revoked:
		return Revoked
	case limited && valid <= 0:
		return Expired
	case t.OnlineSeconds > 0 && online >= t.OnlineSeconds*int64(time.Second), t.Bytes > 0 && bytes >= t.Bytes:
		return UsedUp
	case r.First == 0:
		return New
	}
	return InUse
}

// validFor is how long a voucher is valid from now on, and whether that is limited at all. One that was never used is
// valid for all of its time.
func (b *Book) validFor(o *batch, r *record) (left time.Duration, limited bool) {
	if s := time.Duration(o.Terms.ForSeconds) * time.Second; s > 0 {
		left, limited = s, true
		if r.First != 0 {
			left -= b.clock.line().Sub(time.Unix(0, r.First))
		}
	}
	if u := o.Terms.Until; !u.IsZero() {
		if by := u.Sub(b.clock.wall()); !limited || by < left {
			left, limited = by, true
		}
	}
	return left, limited
}

// Page returns up to most vouchers that a name means, as Each has them, after the one with the name after; "": from the
// first on. next is the name to go on after; "": there are no more.
func (b *Book) Page(name, after string, most int) (page []Voucher, next string, err error) {
	first := ID(0)
	if after != "" {
		if first, _, err = b.find(after); err != nil {
			return nil, "", err
		}
	}
	err = b.eachFrom(name, first+1, func(v Voucher) bool {
		if len(page) == most {
			next = page[most-1].Name
			return false
		}
		page = append(page, v)
		return true
	})
	return page, next, err
}

// readAtOnce is how many vouchers Each reads at a time, so that a slow caller keeps no reading of the store open.
const readAtOnce = 1000

// Each yields the vouchers that a name means, "lobby" or "lobby-17", and with "" all, in the order in which they were
// created, with what their open sessions have used so far.
func (b *Book) Each(name string, yield func(Voucher) bool) error { return b.eachFrom(name, 1, yield) }

// eachFrom is Each for the vouchers whose IDs are from or more.
func (b *Book) eachFrom(name string, from ID, yield func(Voucher) bool) error {
	if err := b.settle(); err != nil { // on a full disk the list is wanted all the same
		b.log.Warn(notSettled, "err", err)
	}
	next, end := ID(1), ID(math.MaxUint64)
	if name != "" {
		var err error
		if next, end, err = b.find(name); err != nil {
			return err
		}
	}
	next = max(next, from)
	for next < end {
		var some []Voucher
		err := b.store.Vouchers(next, func(id ID, data []byte) (bool, error) {
			if id >= end || len(some) == readAtOnce {
				return false, nil
			}
			r, err := decodeRecord(data)
			o := b.batchOf(id)
			if err == nil && o == nil && b.common == nil {
				err = fmt.Errorf("voucher %d is of no batch", id)
			}
			if err != nil {
				return false, err
			}
			if next = id + 1; o == nil { // of a batch that was never completed
				return true, nil
			}
			some = append(some, b.upToNow(o, id, r))
			return true, nil
		})
		if err != nil {
			return err
		}
		if len(some) == 0 {
			return nil
		}
		for _, v := range some {
			if !yield(v) {
				return nil
			}
		}
	}
	return nil
}

// Login returns the login of a voucher by its code as typed. Of the errors, a session.Rejection with a Reason says that
// the code is right; one without that it is wrong.
func (b *Book) Login(typed string) (session.Login, error) {
	code, err := ParseCode(typed)
	if err != nil {
		return session.Login{}, fmt.Errorf("vouchers: %w: %w", session.Reject(""), err)
	}
	id, err := b.store.Find(code)
	if err == nil && id == 0 && b.common != nil && !b.common.ready() {
		err = session.ErrTryAgain // it may be one that another gateway made
	}
	if err == nil && id == 0 {
		err = fmt.Errorf("%w: there is no such code", session.Reject(""))
	}
	if err != nil {
		return session.Login{}, fmt.Errorf("vouchers: %w", err)
	}
	r, _, err := b.read(id)
	if err != nil {
		return session.Login{}, fmt.Errorf("vouchers: %w", err)
	}
	o := b.batchOf(id)
	if o == nil {
		return session.Login{}, fmt.Errorf("vouchers: voucher %d is of no batch", id)
	}
	v := b.upToNow(o, id, r)
	login := session.Login{User: UserOf(v.Name), Voucher: v.Name, Sessions: o.Terms.Devices}
	login.Limits.UpBps, login.Limits.DownBps = o.Terms.UpBps, o.Terms.DownBps
	login.Limits.Connections = o.Terms.Connections
	return login, v.State.rejection()
}

// UserOf returns the user of the sessions of the voucher with a code as typed; empty: there is none.
func (b *Book) UserOf(typed string) string {
	code, err := ParseCode(typed)
	if err != nil {
		return ""
	}
	id, err := b.store.Find(code)
	if o := b.batchOf(id); err == nil && id != 0 && o != nil {
		return UserOf(o.name(id))
	}
	return ""
}

// Revoke revokes the vouchers that a name means, "lobby" or "lobby-17", and ends their sessions.
func (b *Book) Revoke(ctx context.Context, name string) (done Revocation, err error) {
	first, end, err := b.find(name)
	if err != nil {
		return done, err
	}
	for id := first; id < end && err == nil; id += revokedAtOnce {
		var n int
		n, err = b.revokeSome(id, min(id+revokedAtOnce, end))
		done.Vouchers += n
		if err == nil {
			err = ctx.Err()
		}
	}
	for id, n := range b.openOf(first, end) {
		later, failed := b.away(id)
		done.Sessions, done.Later = done.Sessions+max(n-later, 0), done.Later+later
		err = errors.Join(err, failed, b.balance(id))
	}
	if done.Vouchers > 0 {
		b.log.Info("vouchers revoked", "name", name, "vouchers", done.Vouchers, "sessions", done.Sessions, "later",
			done.Later)
	}
	return done, err
}
