package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// everybody is in the place of a gateway's name in sets that all gateways have together.
const everybody = "all"

// ErrStore means that the store could not be asked. What was to be written may be written nevertheless, even later.
var ErrStore = errors.New("the store that the gateways share is away")

// Shared is a set of records that all gateways have together, and of which each has a copy in its own files. Any
// gateway may change any record. Records are not deleted: a kind that needs it has a content for it.
type Shared struct {
	store *Store
	kind  string
	copy  Copy

	mu       sync.Mutex // guards what follows
	highest  uint64     // version that was seen
	doubts   int        // how often it was said that the copy and the store may differ
	compared int        // doubts when they were compared last
	synced   bool
}

// Copy is a gateway's copy of the records of a Shared. Its methods must not wait for the store.
type Copy interface {
	// Records calls visit with all records that the store should have, until visit fails. Content is valid during the
	// call.
	Records(visit func(key string, content []byte) error) error
	// Told tells that the store has a record. It returns what the store should have in its place, as where the store has
	// lost its last changes; nil: it may stay. A record may be told several times, and before a newer one came late.
	Told(key string, r Record) (instead []byte)
	// Synced tells whether the copy and the store have been compared since the store was away last.
	Synced(bool)
}

// Share keeps a copy and the records of a kind in the store equal, until leave is called. Copies of the same kind have
// different records.
func (s *Store) Share(kind string, c Copy) (h *Shared, leave func()) {
	h = &Shared{store: s, kind: kind, copy: c, doubts: 1}
	s.mu.Lock()
	s.shared = append(s.shared, h)
	s.mu.Unlock()
	stop := s.Follow(kind, fedShared{h})
	s.signal()
	return h, func() {
		s.mu.Lock()
		s.shared = slices.DeleteFunc(s.shared, func(o *Shared) bool { return o == h })
		s.mu.Unlock()
		stop()
	}
}

// Write carries out changes, each by itself, within askFor. After an error, an ErrStore, they may be carried out at any
// time, unless somebody else changes their records before.
func (h *Shared) Write(ctx context.Context, changes ...Change) (all []Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	for part := range slices.Chunk(changes, sentAtOnce) {
		out, err := h.write(ctx, h.store.asking, part)
		if err != nil {
			h.Doubt()
			return nil, fmt.Errorf("%w: %s", ErrStore, plain(err))
		}
		all = append(all, out...)
	}
	return all, nil
}

func (h *Shared) write(ctx context.Context, c *redis.Client, changes []Change) ([]Outcome, error) {
	h.mu.Lock()
	floor := h.highest
	h.mu.Unlock()
	out, err := h.store.swap(ctx, c, h.kind, everybody, floor, fence{}, changes)
	for _, o := range out {
		h.saw(o.Version)
	}
	return out, err
}

// Get returns a record of the store, within askFor. The zero Record: there is none. The error is an ErrStore.
func (h *Shared) Get(ctx context.Context, key string) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	text, err := h.store.asking.HGet(ctx, h.store.key(h.kind, everybody), key).Result()
	if errors.Is(err, redis.Nil) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %s", ErrStore, plain(err))
	}
	r := h.store.recordOf(h.kind, everybody, key, text)
	h.saw(r.Version)
	return r, nil
}

// saw notes a version, so that later ones are higher, also where the store has been emptied.
func (h *Shared) saw(version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.highest = max(h.highest, version)
}

// Doubt has the copy compared with the store.
func (h *Shared) Doubt() {
	h.mu.Lock()
	h.doubts++
	h.mu.Unlock()
	h.store.signal()
}

// setSynced tells the copy whether it is compared, where that has changed.
func (h *Shared) setSynced(to bool) {
	h.mu.Lock()
	changed := h.synced != to
	h.synced = to
	h.mu.Unlock()
	if changed {
		h.copy.Synced(to)
	}
}

// send compares the copy with the store, if that is due.
func (h *Shared) send(ctx context.Context) error {
	h.mu.Lock()
	doubts, due := h.doubts, h.doubts != h.compared
	h.mu.Unlock()
	if due {
		if err := h.compare(ctx); err != nil {
			return err
		}
		h.mu.Lock()
		h.compared = doubts
		h.mu.Unlock()
	}
	h.setSynced(true)
	return nil
}

// compare tells the copy what the store has, and writes there what it lacks.
func (h *Shared) compare(ctx context.Context) error {
	there, missing := map[string]bool{}, []Change(nil)
	err := h.store.each(ctx, h.store.client, h.kind, everybody, func(key string, r Record) error {
		if err := h.store.beatIfDue(ctx); err != nil { // a copy may take long for a record
			return err
		}
		there[key] = true
		h.saw(r.Version)
		if r.Version == 0 {
			return nil
		}
		if content := h.copy.Told(key, r); content != nil {
			missing = append(missing, Change{Key: key, Content: content, Version: r.Version})
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = h.copy.Records(func(key string, content []byte) error {
		if !there[key] {
			missing = append(missing, Change{Key: key, Content: bytes.Clone(content)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(missing, sentAtOnce) {
		if err := h.restore(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// restore writes records that the store lacks. Of one that somebody else has written meanwhile the feed tells.
func (h *Shared) restore(ctx context.Context, changes []Change) error {
	if err := h.store.beatIfDue(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := h.write(ctx, h.store.client, changes)
	if err != nil {
		return err
	}
	for i, o := range out {
		if o.Done {
			h.copy.Told(changes[i].Key, Record{Version: o.Version, Owner: o.Owner, Content: changes[i].Content})
		}
	}
	return nil
}

// fedShared tells a copy what other gateways change.
type fedShared struct{ *Shared }

var _ Follower = fedShared{}

func (f fedShared) Put(_, key string, r Record) {
	f.saw(r.Version)
	f.copy.Told(key, r)
}
func (f fedShared) Gone(string, string) {}
func (f fedShared) Synced(bool)         {}

// Now returns the store's present time; at is when it was asked for it, zero: never.
func (s *Store) Now() (now, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.now(), s.clock.at
}
