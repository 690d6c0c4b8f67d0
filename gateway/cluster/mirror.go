package cluster

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

const (
	// changesMost bounds the changes that are kept in memory while the store is away. Beyond it all records are compared
	// when it is back.
	changesMost = 16384
	// sentAtOnce bounds the changes of one Swap, during which the server does nothing else.
	sentAtOnce = 256
	// comparedAtOnce bounds the changes that comparing keeps in memory.
	comparedAtOnce = 4096
	// triesMost is how often a change is tried of which the store says that the gateway's version is not the present one.
	triesMost = 3
)

// Source calls visit with all records of a kind, as they are in the gateway's file, until visit fails. Content is valid
// during the call.
type Source func(visit func(key string, content []byte) error) error

// Mirror keeps copies of a gateway's records of a kind in the store. The records in the gateway's file are the journal:
// what could not be written is found by comparing.
type Mirror struct {
	store *Store
	kind  string

	mu        sync.Mutex // guards what follows
	site      *Site      // whose set it is; nil: the gateway's own
	changed   map[string][]byte
	order     []waiting         // one for each of changed, the oldest first
	uncertain time.Time         // since when everything is to be compared; zero: it is not
	doubts    int               // how often that was said, also while it is being compared
	source    Source            // nil: it cannot be read
	foreign   map[string]string // records that another gateway has, with that one's name
	newer     int               // records that stay because only a newer version reads them
	yielded   map[string]uint64 // versions of those that this gateway may replace

	// Of Store.Run.
	versions map[string]uint64 // of the records in the store
}

// waiting is a changed record.
type waiting struct {
	key   string
	since time.Time
}

// Mirror returns the mirror of the records of a kind. Each kind has one at a time.
func (s *Store) Mirror(kind string) *Mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.mirrors, func(m *Mirror) bool { return m.kind == kind }); i >= 0 {
		return s.mirrors[i]
	}
	m := &Mirror{store: s, kind: kind, changed: map[string][]byte{}, foreign: map[string]string{},
		yielded: map[string]uint64{}, versions: map[string]uint64{}}
	s.mirrors = append(s.mirrors, m)
	return m
}

// Of has the mirror write the set of a site, while this gateway serves there: all records in it are replaced.
func (m *Mirror) Of(site *Site) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.site = site
}

// set returns whose set is written, and in which term of a site; fenced: another gateway serves.
func (m *Mirror) set() (name string, site *Site, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.site == nil {
		return m.store.Gateway, nil, 0
	}
	return m.site.name, m.site, m.site.Term()
}

// Read tells the mirror where records are read, and has it compare them; nil: they can no longer be read.
func (m *Mirror) Read(source Source) {
	m.mu.Lock()
	m.source = source
	m.mu.Unlock()
	if source != nil {
		m.Compare()
	}
}

// Changed tells the mirror that a record was written to the gateway's file; nil: it was deleted. It returns at once.
// The mirror keeps content, which nobody may change.
func (m *Mirror) Changed(key string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, waits := m.changed[key]
	if !waits && len(m.changed) >= changesMost {
		m.doubt(m.order[0].since)
		clear(m.changed)
		m.order = nil
	} else {
		if !waits {
			m.order = append(m.order, waiting{key, time.Now()})
		}
		m.changed[key] = content
	}
	m.store.signal()
}

// Yield tells the mirror that the gateway does without a record which another gateway took in a version. What is told
// of it by Changed from now on replaces that version; 0: it stays.
func (m *Mirror) Yield(key string, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == 0 {
		delete(m.yielded, key)
		return
	}
	m.yielded[key] = version
}

// Compare has all records compared.
func (m *Mirror) Compare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doubt(time.Now())
	m.store.signal()
}

// doubt notes that the store may differ from the file since a time. mu is held.
func (m *Mirror) doubt(since time.Time) {
	m.doubts++
	if m.uncertain.IsZero() {
		m.uncertain = since
	}
}

// kept returns how many of the gateway's records stay in the store as others wrote them.
func (m *Mirror) kept() (foreign, newer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.foreign), m.newer
}

// waiting returns how many changes are not in the store, at least, and since when. What cannot be read is not waited
// for.
func (m *Mirror) waiting() (n int, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.source != nil {
		since = m.uncertain
	}
	if len(m.order) > 0 && (since.IsZero() || m.order[0].since.Before(since)) {
		since = m.order[0].since
	}
	return len(m.changed), since
}

// send writes all that waits to the store. What is of a site waits while another gateway serves there.
func (m *Mirror) send(ctx context.Context) error {
	err := m.sendAll(ctx)
	if errors.Is(err, errFenced) { // Keep says so, too
		return nil
	}
	return err
}

func (m *Mirror) sendAll(ctx context.Context) error {
	_, site, term := m.set()
	if site != nil && term == 0 {
		return nil
	}
	m.mu.Lock()
	source, uncertain, doubts := m.source, !m.uncertain.IsZero(), m.doubts
	m.mu.Unlock()
	if source != nil && uncertain {
		if err := m.compareWith(ctx, source); err != nil {
			return err
		}
		if err := site.complete(ctx, term, m.kind); err != nil {
			return err
		}
		m.mu.Lock()
		if m.doubts == doubts {
			m.uncertain = time.Time{}
		} else {
			m.store.signal() // something else happened meanwhile: compare again
		}
		m.mu.Unlock()
	}
	for {
		batch := m.next()
		if len(batch) == 0 {
			return nil
		}
		if err := m.write(ctx, batch); err != nil {
			return err
		}
		m.written(batch)
	}
}

// next returns the changes to be written next. Deletions come first: a store that is full takes them.
func (m *Mirror) next() (batch []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.order[:min(len(m.order), sentAtOnce)] {
		batch = append(batch, Change{Key: w.key, Content: m.changed[w.key]})
	}
	deletionsFirst(batch)
	return batch
}

func deletionsFirst(batch []Change) {
	slices.SortStableFunc(batch, func(a, b Change) int {
		switch {
		case a.Content == nil && b.Content != nil:
			return -1
		case a.Content != nil && b.Content == nil:
			return 1
		}
		return 0
	})
}

// written takes changes out of those that wait, unless newer ones of their records wait.
func (m *Mirror) written(batch []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range batch {
		if now, waits := m.changed[c.Key]; waits && (now == nil) == (c.Content == nil) && bytes.Equal(now, c.Content) {
			delete(m.changed, c.Key)
		}
	}
	m.order = slices.DeleteFunc(m.order, func(w waiting) bool { _, waits := m.changed[w.key]; return !waits })
}

// write writes changes. A record that is the gateway's own is replaced whatever its version is: the gateway's file is
// right, and the store may have lost its last changes when another server took over. One of another gateway stays.
func (m *Mirror) write(ctx context.Context, batch []Change) error {
	for range triesMost {
		if len(batch) == 0 {
			return nil
		}
		if err := m.store.beatIfDue(ctx); err != nil { // a slow store takes its time
			return err
		}
		m.mu.Lock()
		for i, c := range batch {
			yielded := m.yielded[c.Key]
			delete(m.yielded, c.Key)
			batch[i].Version = max(m.versions[c.Key], yielded)
		}
		m.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, patience)
		set, site, term := m.set()
		outcomes, err := m.store.swap(limited, m.store.client, m.kind, set, 0, fence{site, term}, batch)
		cancel()
		if err != nil {
			return err
		}
		var again []Change
		for i, o := range outcomes {
			key, foreign := batch[i].Key, site == nil && !o.Done && o.Owner != "" && o.Owner != m.store.Gateway
			foreign = foreign && m.genuine(ctx, key)
			if m.versions[key] = o.Version; o.Version == 0 || foreign {
				delete(m.versions, key)
			}
			m.setForeign(key, o.Owner, foreign)
			if !o.Done && !foreign {
				again = append(again, batch[i])
			}
		}
		batch = again
	}
	if len(batch) == 0 {
		return nil
	}
	return errors.New("records change in the store all the time: has another gateway the same name?")
}

// genuine reports whether a gateway has signed the gateway's record as it is in the store, or could not.
func (m *Mirror) genuine(ctx context.Context, key string) bool {
	if len(m.store.Key) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := m.store.client.HGet(ctx, m.store.key(m.kind, m.store.Gateway), key).Result()
	return err != nil || m.store.recordOf(m.kind, m.store.Gateway, key, text).Owner != ""
}

// setForeign notes and logs whether another gateway has a record.
func (m *Mirror) setForeign(key, owner string, foreign bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !foreign {
		delete(m.foreign, key)
		return
	}
	if m.foreign[key] != owner {
		m.foreign[key] = owner
		m.store.Log.Warn("another gateway has a record of this one in the store: it stays as it is there", "kind", m.kind,
			"record", key, "gateway", owner)
	}
}

// found is a record of the store, without its content.
type found struct {
	sum   uint64 // of its content
	owner string
	own   bool // the gateway's file has it
	newer bool // only a newer version reads it

	foreign bool // another gateway has taken it
}

var errEnough = errors.New("enough for now")

// compareWith writes the records of a source that the store does not have as they are, and deletes there what the
// source does not have.
func (m *Mirror) compareWith(ctx context.Context, source Source) error {
	seed := maphash.MakeSeed()
	there, err := m.readAll(ctx, seed)
	if err != nil {
		return err
	}
	for more := true; more; {
		var batch []Change
		err := source(func(key string, content []byte) error {
			f := there[key]
			if f == nil {
				f = &found{}
				there[key] = f
			}
			f.own = true
			sum := maphash.Bytes(seed, content)
			if !m.stays(key, f) && (f.owner != m.store.Gateway || f.sum != sum) {
				f.owner, f.sum = m.store.Gateway, sum // it will be
				batch = append(batch, Change{Key: key, Content: bytes.Clone(content)})
			}
			if len(batch) >= comparedAtOnce {
				return errEnough
			}
			return nil
		})
		if more = errors.Is(err, errEnough); err != nil && !more {
			return err
		}
		if err := m.writeAll(ctx, batch); err != nil {
			return err
		}
	}
	return m.deleteOthers(ctx, there)
}

// readAll returns the gateway's records in the store, and remembers the versions of those that it may replace.
func (m *Mirror) readAll(ctx context.Context, seed maphash.Seed) (map[string]*found, error) {
	there := map[string]*found{}
	set, site, _ := m.set()
	err := m.store.each(ctx, m.store.client, m.kind, set, func(key string, r Record) error {
		if len(there)%readMost == 0 {
			if err := m.store.beatIfDue(ctx); err != nil {
				return err
			}
		}
		foreign := site == nil && r.Owner != "" && r.Owner != m.store.Gateway
		if m.setForeign(key, r.Owner, foreign); !foreign {
			m.versions[key] = r.Version
		}
		there[key] = &found{sum: maphash.Bytes(seed, r.Content), owner: r.Owner, foreign: foreign,
			newer: r.Version > 0 && m.store.Newer != nil && m.store.Newer(m.kind, r.Content)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for key := range m.versions {
		if there[key] == nil || there[key].foreign {
			delete(m.versions, key)
		}
	}
	return there, nil
}

// stays reports whether a record that another gateway has taken is not to be replaced.
func (m *Mirror) stays(key string, f *found) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f.foreign && m.yielded[key] == 0
}

// deleteOthers deletes the gateway's records in the store that its file does not have. Those that only a newer version
// reads stay: it may have been replaced by this one, and may come back.
func (m *Mirror) deleteOthers(ctx context.Context, there map[string]*found) error {
	var batch []Change
	newer := 0
	_, site, _ := m.set()
	for key, f := range there {
		switch {
		case f.own:
		case f.newer:
			newer++
		case site != nil, f.owner == m.store.Gateway, f.owner == "", !m.stays(key, f):
			batch = append(batch, Change{Key: key})
		}
	}
	m.mu.Lock()
	m.newer = newer
	m.mu.Unlock()
	return m.writeAll(ctx, batch)
}

// writeAll is write for any number of changes.
func (m *Mirror) writeAll(ctx context.Context, all []Change) error {
	for batch := range slices.Chunk(all, sentAtOnce) {
		if err := m.write(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
