// Package daily counts what devices and rooms use on a day, over all of their sessions, and ends these when it is more
// than so much a day.
//
// A day begins at an hour of the machine's zone. A session that goes on then has the new day's time and bytes. What is
// counted is kept over restarts (package allowance).
//
// # Clock
//
// When a day begins is a matter of the wall clock; how long sessions last is not. A clock that is set back gives nobody
// a second allowance: the day that has begun goes on until the clock shows a later one, or 24 hours have passed by the
// state folder's time line, which setting the clock does not change. A clock that is set forth to another day begins
// that day.
package daily

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/ticker"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// FileName is the file in a state folder in which a book is kept.
const FileName = "day.db"

// Holder is who has an allowance: DeviceOf or RoomOf.
type Holder string

// DeviceOf is the holder of the sessions of a MAC address, and RoomOf that of a room's sessions.
func DeviceOf(mac [6]byte) Holder { return Holder("device " + net.HardwareAddr(mac[:]).String()) }

// RoomOf is the holder of the sessions of a room, by its number as package rooms folds it.
func RoomOf(room string) Holder { return Holder("room " + room) }

// isRoom reports whether a holder is a room.
func (h Holder) isRoom() bool { return len(h) > 5 && h[:5] == "room " }

// Amount is so much a day; 0: unlimited.
type Amount struct {
	Time  time.Duration // of all sessions together: two that last for an hour use two hours
	Bytes uint64        // of both directions
}

// Terms are what the holders have each day.
type Terms struct {
	Clock
	Device, Room Amount
}

// of returns the amount of a holder.
func (t Terms) of(h Holder) Amount {
	if h.isRoom() {
		return t.Room
	}
	return t.Device
}

// Left is what is left of a day.
type Left struct {
	Timed, Counted bool // whether the day limits the time, and the bytes
	Time           time.Duration
	Bytes          uint64
	Used           bool      // something of it is used
	Again          time.Time // when the next day begins
}

// Over reports whether nothing is left.
func (l Left) Over() bool { return l.Timed && l.Time <= 0 || l.Counted && l.Bytes == 0 }

// ErrUsedUp means that a holder has used all of the day's time or bytes.
var ErrUsedUp = &session.Rejection{Reason: session.UsedToday}

// usedUp is an ErrUsedUp that knows when the next day begins.
type usedUp struct{ again time.Time }

func (u usedUp) Error() string { return ErrUsedUp.Error() }
func (u usedUp) Unwrap() error { return ErrUsedUp }

// Again implements device.Later.
func (u usedUp) Again() time.Time { return u.again }

// clocks are the wall clock and the time line of the state folder; save keeps how both relate.
type clocks struct {
	wall, line func() time.Time
	save       func() error
}

// Book has what holders used on the day. Its methods may be called from several goroutines.
type Book struct {
	store    Store
	terms    Terms
	log      *slog.Logger
	clocks   clocks
	network  string
	sessions *allowance.Sessions[Holder]
	shared   *sharing // with the gateways of a store; nil: this one is alone
	seed     maphash.Seed
	one      [256]sync.Mutex // held while a holder changes: that of its hash
}

// Open opens the book in a state folder, and begins one where there is none.
func Open(folder, network string, terms Terms, log *slog.Logger) (*Book, error) {
	line, err := timeline.Open(folder)
	if err != nil {
		return nil, err
	}
	store, err := openFile(filepath.Join(folder, FileName))
	if err != nil {
		return nil, err
	}
	b, err := open(store, network, terms, log,
		clocks{time.Now, func() time.Time { return line.At(time.Now()) }, line.Save})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return b, nil
}

func open(store Store, network string, terms Terms, log *slog.Logger, c clocks) (*Book, error) {
	b := &Book{store: store, terms: terms, log: log, clocks: c, network: network, sessions: allowance.New[Holder](log),
		seed: maphash.MakeSeed()}
	return b, store.Each("", func(h Holder, data []byte) (bool, error) {
		r, err := decode(data)
		if err != nil {
			return false, fmt.Errorf("what %s used today: %w", h, err)
		}
		for _, u := range r.Uses {
			b.sessions.Open(u.Session, h)
		}
		return true, nil
	})
}

// Close closes the store, after writing what sessions used that have ended.
func (b *Book) Close() error { return errors.Join(b.settle(), b.store.Close()) }

// holders are those of the two that the terms limit, in the order in which they are locked.
func (b *Book) holders(device, room Holder) (all []Holder) {
	for _, h := range []Holder{device, room} {
		if h != "" && b.terms.of(h) != (Amount{}) {
			all = append(all, h)
		}
	}
	return all
}

// lock holds holders for a change.
func (b *Book) lock(all ...Holder) (unlock func()) {
	var turns []int
	for _, h := range all {
		turns = append(turns, int(maphash.String(b.seed, string(h))%uint64(len(b.one))))
	}
	slices.Sort(turns)
	turns = slices.Compact(turns)
	for _, i := range turns {
		b.one[i].Lock()
	}
	return func() {
		for _, i := range turns {
			b.one[i].Unlock()
		}
	}
}

// read returns the record of a holder for the present day, with sessions that have ended. They belong to the record's
// day, even if another has begun since.
func (b *Book) read(h Holder, ended ...allowance.End) (*record, error) {
	data, err := b.store.Get(h)
	if err != nil {
		return nil, fmt.Errorf("what %s used today: %w", h, err)
	}
	r := &record{}
	if data != nil {
		if r, err = decode(data); err != nil {
			return nil, fmt.Errorf("what %s used today: %w", h, err)
		}
	}
	for _, e := range ended {
		r.Close(e)
	}
	b.begin(r)
	return r, nil
}

// longestDay is after how long by the time line a day is over whatever the wall clock shows.
const longestDay = 24 * time.Hour

// begin begins the present day in a record, if that is not its day. What open sessions used so far is of the day
// before.
func (b *Book) begin(r *record) {
	wall, line := b.clocks.wall(), b.clocks.line()
	day, _ := b.terms.Day(wall)
	since := line.Sub(time.Unix(0, r.Since))
	if r.Day == day.Unix() || r.Day > day.Unix() && since < longestDay && since >= 0 {
		return
	}
	r.Day, r.Since, r.Online, r.Bytes = day.Unix(), line.UnixNano(), 0, 0
	for i, u := range r.Uses {
		if s, _ := b.sessions.Find(u); s.ID != "" {
			r.Uses[i].OnlineBefore, r.Uses[i].BytesBefore = int64(max(time.Since(s.Began), 0)), s.UpBytes+s.DownBytes
		}
	}
}

// change changes records: first by the sessions that have ended, then by edit, whose error it returns. The holders'
// locks must be held.
func (b *Book) change(all []Holder, edit func(map[Holder]*record) error) error {
	done, n := map[Holder][]allowance.End{}, 0
	for _, h := range all {
		done[h] = b.sessions.TakeEnded(h)
		n += len(done[h])
	}
	records, refused, err := b.edited(all, done, edit)
	if err == nil && refused != nil && n > 0 { // what has ended is written nevertheless
		records, _, err = b.edited(all, done, nothing)
	}
	if err == nil && (refused == nil || n > 0) {
		fresh := map[Holder][]byte{}
		for h, r := range records {
			fresh[h] = r.encode()
		}
		if err = b.store.Put(fresh); err != nil {
			err = fmt.Errorf("writing what was used today: %w", err)
		}
	}
	for h, ends := range done {
		if err != nil {
			b.sessions.PutBack(h, ends)
			continue
		}
		for _, e := range ends {
			b.sessions.Close(e.Session, h)
		}
		if len(ends) > 0 {
			b.tell(h, records[h])
		}
	}
	return cmp.Or(err, refused)
}

// edited returns the records of holders with sessions that have ended, edited, and the edit's error.
func (b *Book) edited(all []Holder, done map[Holder][]allowance.End, edit func(map[Holder]*record) error) (
	records map[Holder]*record, refused, err error) {
	records = map[Holder]*record{}
	for _, h := range all {
		if records[h], err = b.read(h, done[h]...); err != nil {
			return nil, nil, err
		}
	}
	return records, edit(records), nil
}

// nothing is an edit that changes nothing.
func nothing(map[Holder]*record) error { return nil }

// used is what a holder has used today, here and at other gateways.
func (b *Book) used(h Holder, r *record) (online time.Duration, data uint64) {
	u := b.sessions.Usage(&r.Used)
	online, data = b.usedElsewhere(h, r.Day)
	return online + time.Duration(r.Online) + u.Online, data + r.Bytes + u.Bytes
}

// left is what is left of a holder's day.
func (b *Book) left(h Holder, r *record) Left {
	a := b.terms.of(h)
	online, data := b.used(h, r)
	_, again := b.terms.Day(time.Unix(max(r.Day, b.clocks.wall().Unix()), 0))
	return Left{Timed: a.Time > 0, Counted: a.Bytes > 0, Time: max(a.Time-online, 0), Bytes: a.Bytes - min(data, a.Bytes),
		Used: online > 0 || data > 0, Again: again}
}

// least is the less of what is left of two holders' days.
func least(a, b Left) Left {
	if b.Timed && (!a.Timed || b.Time < a.Time) {
		a.Timed, a.Time = true, b.Time
	}
	if b.Counted && (!a.Counted || b.Bytes < a.Bytes) {
		a.Counted, a.Bytes = true, b.Bytes
	}
	a.Used = a.Used || b.Used
	if b.Again.After(a.Again) {
		a.Again = b.Again
	}
	return a
}

// Left returns what is left of the day of a device and a room; "" is none.
func (b *Book) Left(device, room Holder) (all Left, err error) {
	for _, h := range b.holders(device, room) {
		r, err := b.read(h)
		if err != nil {
			return all, err
		}
		all = least(all, b.left(h, r))
	}
	return all, nil
}

// Run writes what sessions used that have ended, begins the days, and ends sessions of holders that have used up their
// bytes by several devices, until ctx ends. Without Run the data path still enforces what each session was told.
func (b *Book) Run(ctx context.Context) error {
	look, tidied, told := ticker.Every(time.Second), time.Time{}, time.Now()
	defer look.Stop()
	day := int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.sessions.Changed():
			if err := b.settle(); err != nil {
				b.log.Warn("what sessions used today is not on the disk yet", "err", err)
			}
			continue
		case <-look.C:
		}
		now, _ := b.terms.Day(b.clocks.wall())
		moved := now.Unix() != day
		day = now.Unix()
		b.look(moved)
		if time.Since(told) >= tellEvery {
			told = time.Now()
			if err := b.tellAll(); err != nil {
				b.log.Warn("other gateways are not told what is used today", "err", err)
			}
		}
		if moved || time.Since(tidied) >= time.Hour {
			tidied = time.Now()
			if err := errors.Join(b.tidy(), b.clocks.save()); err != nil {
				b.log.Warn("what was used on former days stays on the disk", "err", err)
			}
		}
	}
}
