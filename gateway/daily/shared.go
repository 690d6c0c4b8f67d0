// What holders use on the day at the other gateways of a store.

package daily

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
)

// part is what a holder has used on a day at one gateway, in the store: JSON.
type part struct {
	Day    int64  `json:"d"`           // as of record
	Online int64  `json:"t,omitempty"` // nanoseconds, of open sessions and of those that have ended
	Bytes  uint64 `json:"b,omitempty"` // as well
}

// mostOfPart bounds the nanoseconds and bytes of a part: sums of parts do not overflow.
const mostOfPart = 1 << 55

func decodePart(content []byte) (p part, err error) {
	if err = json.Unmarshal(content, &p); err == nil && (p.Online < 0 || p.Online > mostOfPart || p.Bytes > mostOfPart) {
		err = errors.New("a number of it is none that gatewayd writes")
	}
	return p, err
}

// sharing tells the store what holders use here, and knows what they use at other gateways. It is a cluster.Follower.
type sharing struct {
	mirror *cluster.Mirror
	log    *slog.Logger

	mu      sync.Mutex // guards what follows
	others  map[Holder]map[string]part
	changed map[Holder]bool // of others, to be looked at
}

var _ cluster.Follower = (*sharing)(nil)

// Share has what holders use count at all gateways of a store that share a kind, until leave is called. It is called
// before Serve. A use counts elsewhere within tellEvery.
func (b *Book) Share(store *cluster.Store, kind string) (leave func()) {
	s := &sharing{mirror: store.Mirror(kind), log: b.log, others: map[Holder]map[string]part{},
		changed: map[Holder]bool{}}
	b.shared = s
	return store.Follow(kind, s)
}

// Put implements cluster.Follower.
func (s *sharing) Put(gateway, key string, r cluster.Record) {
	p, err := decodePart(r.Content)
	if err != nil {
		s.log.Error("what was used today in the store is nothing that gatewayd writes", "of", key, "gateway", gateway, "err",
			err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Holder(key)
	if s.others[h] == nil {
		s.others[h] = map[string]part{}
	}
	s.others[h][gateway], s.changed[h] = p, true
}

// Gone implements cluster.Follower.
func (s *sharing) Gone(gateway, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Holder(key)
	if delete(s.others[h], gateway); len(s.others[h]) == 0 {
		delete(s.others, h)
	}
	s.changed[h] = true
}

// Synced implements cluster.Follower. While the store is away, what was told before counts.
func (s *sharing) Synced(bool) {}

// usedElsewhere is what a holder has used at other gateways on a day, as far as they have told it.
func (b *Book) usedElsewhere(h Holder, day int64) (online time.Duration, bytes uint64) {
	if b.shared == nil {
		return 0, 0
	}
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	for _, p := range b.shared.others[h] {
		if p.Day == day {
			online, bytes = online+time.Duration(p.Online), bytes+p.Bytes
		}
	}
	return online, bytes
}

// takeChanged returns the holders of whom other gateways have told something since the last call.
func (b *Book) takeChanged() map[Holder]bool {
	if b.shared == nil {
		return nil
	}
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	all := b.shared.changed
	b.shared.changed = map[Holder]bool{}
	return all
}

// tellEvery is how often other gateways are told what open sessions have used.
const tellEvery = time.Minute

// tell tells other gateways what a holder has used here; a nil record: nothing on this day. The holder's lock is held.
// While the network's sessions are not looked after, what they use is not known: the store keeps what it was told.
func (b *Book) tell(h Holder, r *record) {
	switch {
	case b.shared == nil || b.sessions.Table(b.network) == nil:
	case r == nil:
		b.shared.mirror.Changed(string(h), nil)
	default:
		b.shared.mirror.Changed(string(h), b.partOf(r))
	}
}

// partOf is what a record has for other gateways; nil: nothing is used.
func (b *Book) partOf(r *record) []byte {
	u := b.sessions.Usage(&r.Used)
	p := part{Day: r.Day, Online: min(r.Online+int64(u.Online), mostOfPart), Bytes: min(r.Bytes+u.Bytes, mostOfPart)}
	if p.Online == 0 && p.Bytes == 0 {
		return nil
	}
	content, err := json.Marshal(p)
	if err != nil {
		panic(err) // no field's type can fail
	}
	return content
}

// tellAll tells other gateways what holders of open sessions have used.
func (b *Book) tellAll() error {
	if b.shared == nil {
		return nil
	}
	for h := range b.sessions.OfEach() {
		unlock := b.lock(h)
		r, err := b.read(h)
		if err == nil {
			b.tell(h, r)
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// source is a cluster.Source of what holders have used here.
func (b *Book) source(visit func(key string, content []byte) error) error {
	return b.each(func(h Holder, r *record) error {
		b.begin(r)
		if content := b.partOf(r); content != nil {
			return visit(string(h), content)
		}
		return nil
	})
}
