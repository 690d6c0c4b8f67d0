package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// bounds are what the table may hold. Tests make them smaller.
type bounds struct {
	// clients there may be. Who invents addresses on the LAN fills the table, not
	// the machine's memory.
	clients int
	// updates is how many events accounting may be behind before interim updates
	// are left out: they only repeat what the end will say.
	updates int
	// events is how many it may be behind before nobody is admitted: what is not
	// accounted for has an end. Ends of sessions are always kept.
	events int
}

var usual = bounds{clients: 1 << 18, updates: 1 << 16, events: 1 << 20}

// Errors of the table's methods, wrapped with the client they are about.
var (
	ErrUnknown   = errors.New("no client has this address")
	ErrNoSession = errors.New("the client is not logged in")
	ErrMoved     = errors.New("the address belongs to another client by now")
	ErrFull      = errors.New("the table is full: no more clients fit")
	ErrBehind    = errors.New("too many sessions are not accounted yet: is the accounting server reachable?")
	ErrClosed    = errors.New("the session table is closed")
)

// Table is the gateway's clients. It is kept in a file, and the data path does
// what it says. Its methods may be called at any time from several goroutines;
// what happens to one client happens one after the other.
//
// The data path is never more open than the file: whoever is let in is written
// down first, and whoever is shut out is shut out first. So a crash at any
// moment leaves nobody inside who is not in the file, and Open finishes what was
// half done. When a method returns an error the client is as it was, or less is
// open to it, and the method may be called again.
type Table struct {
	dp     datapath.Datapath
	store  *store
	clock  clock
	bounds bounds

	// life is held for reading by all who work with the table, for writing by
	// Close.
	life   sync.RWMutex
	closed bool

	mu      sync.Mutex
	clients map[netip.Addr]*client
	dues    dues          // clients by the next moment something can happen to them
	sooner  chan struct{} // the first of dues has changed

	complaints struct {
		sync.Mutex
		last moment
		more int // errors since that were not logged
	}
}

// client is an entry of the table.
type client struct {
	// op is held while something happens to the client, until it is on the disk.
	// It comes before Table.mu, which alone guards looking at the client.
	op sync.Mutex

	// What changes with op and Table.mu held.
	entry
	due   moment // in dues
	place int    // in dues; -1: nowhere
	gone  bool   // from the table: whoever waited for op must look again

	// Guarded by op: what the data path knows, and when to do what.
	told, open bool    // it has the key; it lets the client through
	interim    moment  // next update
	save       moment  // next time counts are put on the disk
	check      moment  // next look at what is left of the quota
	checked    moment  // last one
	left       uint64  // bytes, at that look
	highest    float64 // bytes a second between two looks
	saved      uint64  // packets counted, as last put on the disk
}

// entry is what a client is; it is empty until the client is on the disk.
type entry struct {
	key                Key
	state              State
	hostname           string
	leasedAt, leaseEnd moment

	// The rest is zero unless Authenticated.
	user        string
	class       [][]byte
	limits      Limits
	id          string
	began, seen moment
	counts      Counts
	read        datapath.Counters // at which counts are true
}

// Open reads the table from the file at path, which is created when there is
// none, and tells the data path of every client. Sessions whose counters are
// lost, because the machine was restarted, end with NASReboot at the moment they
// were last known to be active; so do those of addresses that no client of the LAN
// can have any more, whose clients are forgotten. The table never closes the data path.
//
// A data path that has clients the file does not know of, as when the file was
// deleted, must be emptied before: the table cannot see them.
func Open(path string, dp datapath.Datapath) (*Table, error) { return open(path, dp, false) }

// Resume opens the table as Open does, but sessions whose counters are lost go on,
// with the bytes last written: it is for data paths whose counters end with the
// daemon, while the machine did not restart.
func Resume(path string, dp datapath.Datapath) (*Table, error) { return open(path, dp, true) }

func open(path string, dp datapath.Datapath, resume bool) (*Table, error) {
	t := &Table{
		dp: dp, clock: clock{time.Now()}, bounds: usual, clients: map[netip.Addr]*client{}, sooner: make(chan struct{}, 1),
	}
	t.complaints.last = -never
	var lost []change
	var err error
	t.store, err = openStore(path, func(tx *bbolt.Tx) error {
		return eachClient(tx, func(s Session, read datapath.Counters) error {
			if _, err := t.dp.Counters(s.Addr); errors.Is(err, datapath.ErrForeign) {
				lost = append(lost, dismiss(s)) // of a LAN that was another
				return nil
			}
			ended, err := t.restore(&s, read, resume)
			if ended != nil {
				lost = append(lost, change{addr: s.Addr, record: t.record(&t.clients[s.Addr].entry), events: [][]byte{encodeEvent(ended)}})
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for _, c := range lost {
		t.store.later(c)
	}
	if err := t.store.sync(); err != nil {
		return nil, errors.Join(err, t.store.close())
	}
	return t, nil
}

// dismiss takes a client out of the file that the data path cannot have.
func dismiss(s Session) change {
	out := change{addr: s.Addr}
	if s.State == Authenticated {
		ended := &Event{Kind: Ended, Session: s, Cause: NASReboot, At: s.Seen}
		out.events = [][]byte{encodeEvent(ended)}
	}
	return out
}

// restore puts a client of the file into the table and the data path. When its
// session cannot go on, it is ended, and the event still to be told returned.
func (t *Table) restore(s *Session, read datapath.Counters, resume bool) (ended *Event, err error) {
	c := &client{place: -1, entry: entry{
		key: s.Key, state: s.State, hostname: s.Hostname,
		leasedAt: t.clock.moment(s.LeasedAt), leaseEnd: t.clock.moment(s.LeaseEnd),
	}}
	if s.State == Authenticated {
		c.user, c.class, c.limits, c.id = s.User, s.Class, s.Limits, s.ID
		c.began, c.seen = t.clock.moment(s.Began), t.clock.moment(s.Seen)
		c.counts, c.read = s.Counts, read
		now, err := t.dp.Counters(s.Addr)
		if err != nil {
			return nil, fmt.Errorf("read the counters of %s: %w", s.Key, err)
		}
		if now.Epoch == read.Epoch || resume {
			t.count(&c.entry, now)
		} else {
			was := t.snapshot(&c.entry)
			ended = &Event{Kind: Ended, Session: was, Cause: NASReboot, At: was.Seen}
			c.entry = c.lapsed()
		}
	}
	t.clients[s.Addr] = c
	t.arm(c, &c.entry, t.clock.now())
	t.publish(c, c.entry)
	return ended, t.tell(c, &c.entry)
}

// Close puts the counts on the disk and lets go of the file. No session ends:
// the data path goes on, and so does Open. Methods called afterwards return
// ErrClosed. Closing twice is no error.
func (t *Table) Close() error {
	t.life.Lock()
	defer t.life.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	for _, c := range t.clients {
		if e := c.entry; e.state == Authenticated {
			if now, err := t.dp.Counters(e.key.Addr); err == nil {
				t.count(&e, now)
			}
			t.store.save(e.key.Addr, t.record(&e))
		}
	}
	return t.store.close()
}

// enter keeps the table open until life is unlocked for reading.
func (t *Table) enter() error {
	t.life.RLock()
	if t.closed {
		t.life.RUnlock()
		return ErrClosed
	}
	return nil
}

// Get returns the client that has an address, its counts as they are now.
func (t *Table) Get(addr netip.Addr) (Session, bool) {
	if t.enter() != nil {
		return Session{}, false
	}
	defer t.life.RUnlock()
	t.mu.Lock()
	c := t.clients[addr.Unmap()]
	if c == nil || c.state == "" {
		t.mu.Unlock()
		return Session{}, false
	}
	e := c.entry
	t.mu.Unlock()
	if e.state == Authenticated {
		// Without counters the last known counts are better than no answer.
		if now, err := t.dp.Counters(e.key.Addr); err == nil {
			t.count(&e, now)
		}
	}
	return t.snapshot(&e), true
}

// Each yields all clients, ordered by their addresses. Clients that come and go
// meanwhile may be among them or not; no lock is held while yield runs.
func (t *Table) Each(yield func(Session) bool) {
	t.mu.Lock()
	addrs := make([]netip.Addr, 0, len(t.clients))
	for addr := range t.clients {
		addrs = append(addrs, addr)
	}
	t.mu.Unlock()
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, addr := range addrs {
		if s, there := t.Get(addr); there && !yield(s) {
			return
		}
	}
}

// lapsed is a client without its session, if it had one.
func (e entry) lapsed() entry {
	return entry{key: e.key, state: PreAuth, hostname: e.hostname, leasedAt: e.leasedAt, leaseEnd: e.leaseEnd}
}

// snapshot copies an entry for somebody else.
func (t *Table) snapshot(e *entry) Session {
	s := t.view(e)
	s.Class = cloneClass(s.Class)
	return s
}

// view shows an entry, and must not be given away.
func (t *Table) view(e *entry) Session {
	s := Session{
		Key: e.key, State: e.state, Hostname: e.hostname,
		LeasedAt: t.clock.time(e.leasedAt), LeaseEnd: t.clock.time(e.leaseEnd),
	}
	if e.state == Authenticated {
		s.Login = Login{User: e.user, Class: e.class, Limits: e.limits}
		s.ID, s.Counts = e.id, e.counts
		s.Began, s.Seen = t.clock.time(e.began), t.clock.time(e.seen)
	}
	return s
}

// record is an entry as the file has it.
func (t *Table) record(e *entry) []byte {
	s := t.view(e)
	return encodeClient(&s, e.read)
}

func cloneClass(class [][]byte) [][]byte {
	cloned := slices.Clone(class)
	for i := range cloned {
		cloned[i] = slices.Clone(cloned[i])
	}
	return cloned
}

// complain logs what nobody can be told, at most once in ten seconds.
func (t *Table) complain(key Key, err error) {
	now := t.clock.now()
	t.complaints.Lock()
	defer t.complaints.Unlock()
	if now < t.complaints.last.after(10*time.Second) {
		t.complaints.more++
		return
	}
	slog.Warn("session: trying again", "client", key.String(), "error", err, "more", t.complaints.more)
	t.complaints.last, t.complaints.more = now, 0
}
