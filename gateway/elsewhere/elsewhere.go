// Package elsewhere indexes the sessions that other gateways have: by MAC address, by ID and by user. Of each it keeps
// what finds it, about 0.4 KB; the rest is in the store.
package elsewhere

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// most bounds the sessions in an index: further ones are not found.
const most = 1 << 19

// endedFor is how long a session is known to have ended: its gateway's last changes may come later.
const endedFor = time.Minute

// Session is an authenticated session of another gateway.
type Session struct {
	session.Key
	Gateway string    // that has it
	Set     string    // whose set its record is in: that gateway's, or its site's
	Record  string    // key of its record there
	ID      string    // Acct-Session-Id
	User    string    //
	Began   time.Time // on the other gateway's time line
	Bytes   uint64    // of both directions, as its gateway wrote them last: every minute
}

// place is where a record is.
type place struct{ set, key string }

// entry is a session in the index, and in two linked lists: of its MAC address and of its user.
type entry struct {
	Session
	sameMAC, sameUser *entry
}

// Index is an index of the sessions of a network. It is a cluster.Follower. Its methods may be called at any time from
// several goroutines.
type Index struct {
	// Taken is called with the user, as session.FoldUser returns the name, of each session that was taken up; nil: nobody
	// is told. It must be set before the index follows a store.
	Taken func(user string)

	mu      sync.Mutex // guards what follows
	up      bool
	places  map[place]*entry
	macs    map[datapath.MAC]*entry
	users   map[string]*entry // by session.FoldUser
	ids     map[string]*entry
	ended   map[string]time.Time // IDs that are not taken up any more, with the time of their end
	cleared time.Time            // when old ones were taken out of ended
}

var _ cluster.Follower = &Index{}

// New returns an empty index.
func New() *Index {
	return &Index{places: map[place]*entry{}, macs: map[datapath.MAC]*entry{}, users: map[string]*entry{},
		ids: map[string]*entry{}, ended: map[string]time.Time{}}
}

// Put takes a record up, if it is an authenticated session. One on PPPoE is not found by its MAC address: it does not
// go from one gateway to another.
func (x *Index) Put(set, key string, r cluster.Record) {
	s, err := session.DecodeVersioned(r.Content)
	if x.put(set, key, r.Owner, s, err == nil) && x.Taken != nil {
		x.Taken(session.FoldUser(s.User))
	}
}

// put takes a session up, and reports whether it has not had it. fine: the record could be read.
func (x *Index) put(set, key, owner string, s session.Session, fine bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := place{set, key}
	old := x.places[at]
	if _, over := x.ended[s.ID]; !fine || s.State != session.Authenticated || over {
		x.drop(at, old)
		return false
	}
	if old != nil && old.ID == s.ID && old.MAC == s.MAC && old.User == s.User && old.Gateway == owner &&
		old.Began.Equal(s.Began) {
		old.Bytes = s.UpBytes + s.DownBytes
		return false
	}
	x.drop(at, old)
	if len(x.places) >= most {
		return false
	}
	e := &entry{Session: Session{Key: s.Key, Gateway: owner, Set: set, Record: key, ID: s.ID, User: s.User,
		Began: s.Began, Bytes: s.UpBytes + s.DownBytes}}
	folded := session.FoldUser(s.User)
	e.sameUser = x.users[folded]
	x.places[at], x.users[folded], x.ids[e.ID] = e, e, e
	if s.PPPoE.Session == 0 {
		e.sameMAC, x.macs[e.MAC] = x.macs[e.MAC], e
	}
	return true
}

// Gone takes a session out.
func (x *Index) Gone(set, key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := place{set, key}
	x.drop(at, x.places[at])
}

// Synced notes whether the index is up to date.
func (x *Index) Synced(up bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.up = up
}

// End takes a session out that has ended: its gateway's changes of before say nothing of it.
func (x *Index) End(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if now.Sub(x.cleared) > endedFor {
		x.cleared = now
		maps.DeleteFunc(x.ended, func(_ string, at time.Time) bool { return now.Sub(at) > endedFor })
	}
	x.ended[id] = now
	if e := x.ids[id]; e != nil {
		x.drop(place{e.Set, e.Record}, e)
	}
}

// drop takes an entry out; nil: there is none. mu is held.
func (x *Index) drop(at place, e *entry) {
	if e == nil {
		return
	}
	delete(x.places, at)
	if x.ids[e.ID] == e {
		delete(x.ids, e.ID)
	}
	unlink(x.macs, e.MAC, e, func(o *entry) **entry { return &o.sameMAC })
	unlink(x.users, session.FoldUser(e.User), e, func(o *entry) **entry { return &o.sameUser })
}

// unlink takes an entry out of a list.
func unlink[K comparable](lists map[K]*entry, key K, e *entry, next func(*entry) **entry) {
	if lists[key] == e {
		if lists[key] = *next(e); lists[key] == nil {
			delete(lists, key)
		}
		return
	}
	for o := lists[key]; o != nil; o = *next(o) {
		if *next(o) == e {
			*next(o) = *next(e)
			return
		}
	}
}

// OfMAC returns the sessions of a MAC address, and whether the index is up to date.
func (x *Index) OfMAC(mac datapath.MAC) (list []Session, up bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := x.macs[mac]; e != nil; e = e.sameMAC {
		list = append(list, e.Session)
	}
	return list, x.up
}

// OfUser returns the sessions of a user, and whether the index is up to date.
func (x *Index) OfUser(user string) (list []Session, up bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := x.users[session.FoldUser(user)]; e != nil; e = e.sameUser {
		list = append(list, e.Session)
	}
	return list, x.up
}

// Users returns the users that have sessions, as session.FoldUser returns their names.
func (x *Index) Users() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.users))
}

// ByID returns the session with an ID.
func (x *Index) ByID(id string) (s Session, found bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.ids[id]; e != nil {
		return e.Session, true
	}
	return s, false
}

// Len returns the number of sessions.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.places)
}

// Latest returns the session that began last of those at an address; invalid: at any.
func Latest(list []Session, addr netip.Addr) (s Session, found bool) {
	if addr.IsValid() {
		list = slices.DeleteFunc(list, func(s Session) bool { return s.Addr != addr })
	}
	if len(list) == 0 {
		return s, false
	}
	return slices.MaxFunc(list, func(a, b Session) int { return a.Began.Compare(b.Began) }), true
}
