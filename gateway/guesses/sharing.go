package guesses

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

const (
	// mostTold bounds the records that a guard has in the store, and mostKnown those of other gateways that it knows.
	mostTold, mostKnown = 16_384, 65_536
	// mostMore bounds the failures that one record of another gateway adds.
	mostMore = 1000
	// clearsAlso is how much later than a login failures may seem that it clears: what gateways know of the store's time
	// is exact to a round trip.
	clearsAlso = time.Second
)

// sharing tells the guards of other gateways of a guard's failures, and the guard of theirs, which it counts as its
// own: nobody waits for the store. Keys begin with what they are of: d a device, n a name, l an access line, r a room,
// c all codes. Nil: the guard counts alone.
type sharing struct {
	guard  *Guard
	store  *cluster.Store
	mirror *cluster.Mirror

	mu    sync.Mutex // guards what follows; those of the guard's counters are locked within
	begun int64      // record.Began that was used last
	own   map[string]*record
	known map[place]record // of other gateways
	early []early          // records of other gateways that came before the store's time was known
	swept time.Time
}

// record is a gateway's own failures of a key. Times are of the store's clock, in microseconds since 1970.
type record struct {
	Began   int64 `json:"b"`           // tells these failures from those before a login, and before a restart
	Count   int   `json:"n"`           //
	At      int64 `json:"t"`           // of the last change; 0: not known yet
	Cleared int64 `json:"c,omitempty"` // when a login cleared the failures at all gateways
}

// place is where a record of another gateway is.
type place struct{ gateway, key string }

type early struct {
	place
	record
}

const codesKey = "c"

func deviceKey(client MAC) string { return "d" + hex.EncodeToString(client[:]) }

// shown returns what stands for a text in the store; nil: the text itself.
type shown func(text string) string

func (s shown) key(text string) string {
	if s == nil {
		return text
	}
	return s(text)
}

// shownAs returns keys of a kind: texts may be passwords that somebody typed as a name. Without the secret nobody can
// try which text a key is of.
func shownAs(kind string, secret []byte) shown {
	return func(text string) string {
		sum := hmac.New(sha256.New, secret)
		sum.Write([]byte("guesses " + kind + text))
		return kind + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
	}
}

// Share has the failures at all gateways of a store count, in records of a kind, while run runs and until leave is
// called. It comes before the guard is used.
func (g *Guard) Share(store *cluster.Store, kind string) (run func(context.Context) error, leave func()) {
	secret := store.Key
	if len(secret) == 0 {
		secret = []byte(store.Prefix)
	}
	g.names.shown, g.rooms.shown = shownAs("n", secret), shownAs("r", secret)
	g.accessLines.shown = shownAs("l", secret)
	s := &sharing{guard: g, store: store, mirror: store.Mirror(kind), own: map[string]*record{}, known: map[place]record{}}
	g.sharing = s
	s.mirror.Read(s.each)
	stop := store.Follow(kind, s)
	return s.run, func() { stop(); s.mirror.Read(nil) }
}

// now is the store's time; 0: it is not known.
func (s *sharing) now() int64 {
	now, at := s.store.Now()
	if at.IsZero() {
		return 0
	}
	return now.UnixMicro()
}

// count tells others of further failures of a key; "": of none. Below 0: some are forgiven.
func (s *sharing) count(key string, more int) {
	if s == nil || key == "" || more == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.own[key]
	if r == nil {
		if more < 0 {
			return
		}
		r = s.begin(key)
	}
	r.Count = max(r.Count+more, 0)
	s.tell(key, r, s.now())
}

// clear tells others that a login has cleared a key's failures; "": there were none.
func (s *sharing) clear(key string) {
	if s == nil || key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, key)
	if now := s.now(); now != 0 { // otherwise this gateway has told nothing, and knows of no other's
		r := s.begin(key)
		r.Cleared = now
		s.tell(key, r, now)
	}
}

// begin makes a record. A full table drops a random one: gateways that have counted its failures go on doing so. mu is
// held.
func (s *sharing) begin(key string) *record {
	for old := range s.own {
		if len(s.own) < mostTold {
			break
		}
		s.drop(old)
	}
	s.begun = max(s.begun+1, time.Now().UnixNano())
	r := &record{Began: s.begun}
	s.own[key] = r
	return r
}

// tell writes a record to the store. Where the time is not known, the store was not reached yet: all records are
// compared when it is. mu is held.
func (s *sharing) tell(key string, r *record, now int64) {
	if r.At = now; now != 0 {
		s.mirror.Changed(key, r.content())
	}
}

func (r *record) content() []byte {
	content, _ := json.Marshal(r) // numbers
	return content
}

// drop takes a record out of the store; mu is held.
func (s *sharing) drop(key string) {
	delete(s.own, key)
	s.mirror.Changed(key, nil)
}

// each is a cluster.Source.
func (s *sharing) each(visit func(key string, content []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.own {
		if r.At == 0 {
			r.At = s.now()
		}
		if err := visit(key, r.content()); err != nil {
			return err
		}
	}
	return nil
}

// run forgets what no longer counts, until ctx ends.
func (s *sharing) run(ctx context.Context) error {
	tick := ticker.Every(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		s.countEarly()
		if now := s.now(); now != 0 && time.Since(s.swept) > time.Minute {
			s.swept = time.Now()
			s.sweep(now)
		}
		s.mu.Unlock()
	}
}

// sweep forgets records that no longer count; mu is held.
func (s *sharing) sweep(now int64) {
	over := func(r record) bool { return age(now, r.At) >= forgetAfter }
	for key, r := range s.own {
		if r.At != 0 && over(*r) {
			s.drop(key)
		}
	}
	maps.DeleteFunc(s.known, func(_ place, r record) bool { return over(r) })
}

// age is how long ago a time was, at most forgetAfter.
func age(now, at int64) time.Duration {
	return time.Duration(min(max(now-at, 0), forgetAfter.Microseconds())) * time.Microsecond
}

var _ cluster.Follower = (*sharing)(nil)

// Put implements cluster.Follower.
func (s *sharing) Put(gateway, key string, r cluster.Record) {
	e := early{place: place{gateway, key}}
	if json.Unmarshal(r.Content, &e.record) != nil || key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.early) < mostKnown {
		s.early = append(s.early, e)
	}
	s.countEarly()
}

// Gone implements cluster.Follower. Failures count until they are too old, or cleared.
func (s *sharing) Gone(string, string) {}

// Synced implements cluster.Follower.
func (s *sharing) Synced(bool) {}

// countEarly counts what other gateways have told, once the store's time is known; mu is held.
func (s *sharing) countEarly() {
	now := s.now()
	if now == 0 {
		return
	}
	for _, e := range s.early {
		was := s.known[e.place]
		for old := range s.known {
			if len(s.known) < mostKnown {
				break
			}
			delete(s.known, old)
		}
		s.known[e.place] = e.record
		s.take(e.key, was, e.record, now)
	}
	s.early = nil
}

// take counts what a record of another gateway says more than before; mu is held.
func (s *sharing) take(key string, was, is record, now int64) {
	if is.Cleared != 0 && is.Cleared != was.Cleared {
		s.guard.cleared(key, time.Now().Add(clearsAlso-age(now, is.Cleared)))
		if own := s.own[key]; own != nil && own.At <= is.Cleared+clearsAlso.Microseconds() {
			s.drop(key)
		}
	}
	more := is.Count
	if is.Began == was.Began {
		more -= was.Count
	}
	if old := age(now, is.At); more != 0 && old < forgetAfter {
		s.guard.told(key, max(min(more, mostMore), -mostMore), time.Now().Add(-old))
	}
}

// told counts failures of a key at another gateway; below 0: some are forgiven.
func (g *Guard) told(key string, more int, at time.Time) {
	switch client, ofDevice := deviceOf(key); {
	case ofDevice:
		g.clients.told(client, more, at)
	case more < 0:
	case key[0] == 'n':
		g.names.told(key, more, at)
	case key[0] == 'r':
		g.rooms.told(key, more, at)
	case key[0] == 'l':
		g.accessLines.told(key, more, at)
	case key == codesKey:
		g.allCodes().told(more, at)
	}
}

// cleared clears failures of a key that a login at another gateway cleared, unless there were some after a time.
func (g *Guard) cleared(key string, until time.Time) {
	switch client, ofDevice := deviceOf(key); {
	case ofDevice:
		g.clients.cleared(client, until)
	case key[0] == 'n':
		g.names.cleared(key, until)
	case key[0] == 'r':
		g.rooms.cleared(key, until)
	case key[0] == 'l':
		g.accessLines.cleared(key, until)
	}
}

// deviceOf is the opposite of deviceKey.
func deviceOf(key string) (client MAC, is bool) {
	if key[0] != 'd' || len(key) != 1+2*len(client) {
		return client, false
	}
	_, err := hex.Decode(client[:], []byte(key[1:]))
	return client, err == nil
}
