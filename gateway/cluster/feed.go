package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Follower is told of the records of a kind that other gateways have, from one goroutine, in the order of changes. All
// is told again after each new connection and where changes were missed: Put of what there is, Gone of what no longer
// is. It must not wait for anything.
type Follower interface {
	// Put tells of a record that is new, or another one than before. gateway is whose set it is in, r.Owner who has
	// written it.
	Put(gateway, key string, r Record)
	// Gone tells that a record of which Put told is deleted, or this gateway's own by now.
	Gone(gateway, key string)
	// Synced tells whether everything that there is has been told; false: the store is away, and what was told may be old.
	Synced(up bool)
}

const (
	// changesKept is how many changes the store keeps, about. Who misses more reads all records.
	changesKept = 50_000
	// readWait is how long a reader waits for the next change.
	readWait = time.Second
	// changesAtOnce is how many changes are read at once.
	changesAtOnce = 1000
)

// following is a follower, and what it was told.
type following struct {
	kind string

	mu     sync.Mutex // held while the follower is told, and guards what follows
	f      Follower   // nil: it is told nothing more
	synced bool
	round  uint64                     // of reading all
	told   map[string]map[string]told // by gateway and key
}

// told is a record of which a follower was told.
type told struct{ version, round uint64 }

// Follow has a follower told of all records of a kind, until stop is called, which the follower must not call itself.
// Records that this gateway owns are not told, in whichever set they are.
func (s *Store) Follow(kind string, f Follower) (stop func()) {
	w := &following{kind: kind, f: f, told: map[string]map[string]told{}}
	s.mu.Lock()
	s.followers = append(s.followers, w)
	s.mu.Unlock()
	select {
	case s.followed <- struct{}{}:
	default:
	}
	return func() {
		s.mu.Lock()
		s.followers = slices.DeleteFunc(s.followers, func(o *following) bool { return o == w })
		s.mu.Unlock()
		w.mu.Lock()
		w.f = nil
		w.mu.Unlock()
	}
}

// put tells of a record, unless a newer one was told.
func (w *following) put(own, gateway, key string, r Record, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f == nil || r.Version == 0 {
		return
	}
	before, known := w.told[gateway][key]
	switch {
	case !all && known && r.Version <= before.version:
	case r.Owner == own:
		w.gone(gateway, key)
	default:
		if w.told[gateway] == nil {
			w.told[gateway] = map[string]told{}
		}
		w.told[gateway][key] = told{r.Version, w.round}
		w.f.Put(gateway, key, r)
	}
}

// deleted tells that the record with a version is deleted.
func (w *following) deleted(gateway, key string, version uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f != nil && version >= w.told[gateway][key].version {
		w.gone(gateway, key)
	}
}

// gone tells that a record is no more, if it was told. mu is held.
func (w *following) gone(gateway, key string) {
	of := w.told[gateway]
	if _, known := of[key]; !known {
		return
	}
	if delete(of, key); len(of) == 0 {
		delete(w.told, gateway)
	}
	w.f.Gone(gateway, key)
}

// begin begins to tell all.
func (w *following) begin() { w.mu.Lock(); w.round++; w.mu.Unlock() }

// end tells that what was not told in this round is gone.
func (w *following) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f == nil {
		return
	}
	for gateway, of := range w.told {
		for key, t := range of {
			if t.round != w.round {
				w.gone(gateway, key)
			}
		}
	}
}

// sync tells whether all is told.
func (w *following) sync(up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f != nil && w.synced != up {
		w.synced = up
		w.f.Synced(up)
	}
}

// errGap means that changes were missed, so that all records have to be read, and errNewcomer that there is a new
// follower, which has to be told all.
var (
	errGap      = errors.New("changes were missed")
	errNewcomer = errors.New("somebody else follows now")
)

// feed reads the changes of all gateways and tells followers, over one connection.
type feed struct {
	*Store
	client *redis.Client
	all    []*following
	last   uint64 // number of the last change that was told
	target uint64 // number of the change at which all is told
	synced bool
	told   bool // a change since all was read
}

// follow tells followers until ctx ends. While the store is away it tries again.
func (s *Store) follow(ctx context.Context) {
	f := &feed{Store: s, client: s.feeding}
	defer context.AfterFunc(ctx, func() { f.client.Close() })()
	pause := soonest
	for ctx.Err() == nil {
		err := f.run(ctx)
		switch {
		case errors.Is(err, errNewcomer), errors.Is(err, errGap) && f.told:
			pause = soonest
			continue
		case ctx.Err() != nil:
			return
		case f.synced && !errors.Is(err, errGap): // somebody has deleted the number of the last change
			pause = soonest
		}
		f.sync(false)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, latest)
	}
}

// run waits until somebody follows, reads all records, and then the changes until some are missed or the store is away.
func (f *feed) run(ctx context.Context) error {
	for {
		f.mu.Lock()
		f.all = slices.Clone(f.followers)
		f.mu.Unlock()
		if len(f.all) > 0 {
			break
		}
		select {
		case <-f.followed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	limited, cancel := context.WithTimeout(ctx, askFor)
	err := f.client.Ping(limited).Err() // connects
	cancel()
	if err != nil {
		return err
	}
	f.renewed.Store(false)
	f.told = false
	if err := f.readAll(ctx); err != nil {
		return err
	}
	for {
		if f.last >= f.target {
			f.sync(true)
		}
		select {
		case <-f.followed:
			return errNewcomer
		default:
		}
		if err := f.readChanges(ctx, readWait); err != nil {
			return err
		}
	}
}

// sync tells all followers.
func (f *feed) sync(up bool) {
	f.synced = up
	for _, w := range f.all {
		w.sync(up)
	}
}

// readAll tells of all records that there are.
func (f *feed) readAll(ctx context.Context) (err error) {
	if f.last, err = f.count(ctx); err != nil {
		return err
	}
	for _, w := range f.all {
		w.begin()
		limited, cancel := context.WithTimeout(ctx, patience)
		sets, err := f.client.SMembers(limited, f.key("sets")).Result()
		cancel()
		if err != nil {
			return err
		}
		for _, set := range sets {
			kind, gateway := ofSet(set)
			if kind != w.kind || !Name.MatchString(gateway) {
				continue
			}
			err := f.each(ctx, f.client, kind, gateway, func(key string, r Record) error {
				w.put(f.Gateway, gateway, key, r, true)
				return nil
			})
			if err != nil {
				return err
			}
		}
		w.end()
	}
	f.target, err = f.count(ctx)
	return err
}

// ofSet is the opposite of KIND:GATEWAY.
func ofSet(set string) (kind, gateway string) {
	i := strings.LastIndexByte(set, ':')
	return set[:max(i, 0)], set[i+1:]
}

// count returns the number of the last change; 0: there was none.
func (f *feed) count(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := f.client.Get(ctx, f.key("changes", "count")).Uint64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// readChanges tells of the next changes, for which it waits so long; below 0: not at all.
func (f *feed) readChanges(ctx context.Context, wait time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, max(wait, 0)+askFor)
	defer cancel()
	answer, err := f.client.XRead(limited, &redis.XReadArgs{Streams: []string{f.key("changes"), changeID(f.last)},
		Count: changesAtOnce, Block: wait}).Result()
	if f.renewed.Load() { // another server may have answered, which has lost changes
		return errGap
	}
	if errors.Is(err, redis.Nil) {
		return f.idle(ctx, wait)
	}
	if err != nil {
		return err
	}
	for _, stream := range answer {
		for _, m := range stream.Messages {
			if m.ID != changeID(f.last+1) {
				return errGap
			}
			f.last++
			f.told = true
			f.tell(m.Values)
		}
	}
	return nil
}

// changeID is a change in the stream.
func changeID(n uint64) string { return strconv.FormatUint(n, 10) + "-1" }

// idle notices that the store was emptied, or that changes could not be kept.
func (f *feed) idle(ctx context.Context, waited time.Duration) error {
	n, err := f.count(ctx)
	switch {
	case err != nil:
		return err
	case n == f.last:
		return nil
	case n < f.last, waited < 0:
		return errGap
	}
	return f.readChanges(ctx, -1)
}

// tell tells of a change.
func (f *feed) tell(change map[string]any) {
	text := func(name string) string { t, _ := change[name].(string); return t }
	kind, gateway := ofSet(text("set"))
	for _, w := range f.all {
		if w.kind != kind {
			continue
		}
		if record, key := text("is"), text("key"); record != "" {
			r := f.recordOf(kind, gateway, key, record)
			if r.Version == 0 && gateway == f.Gateway {
				f.forged.Do(f.compareAll) // somebody else changed the gateway's own record
			}
			w.put(f.Gateway, gateway, key, r, false)
		} else if was, err := strconv.ParseUint(text("was"), 10, 64); err == nil {
			w.deleted(gateway, key, was)
		}
	}
}
