package session

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/due"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// capacities are the largest sizes of a table's parts. Tests use smaller ones.
type capacities struct {
	// clients is the largest number of clients. Invented addresses on the LAN can fill the table, but not the machine's
	// memory.
	clients int
	// updates is the number of unaccounted events above which interim updates are left out: the end of the session repeats
	// their content.
	updates int
	// events is the number of unaccounted events above which no client is admitted. Ends of sessions are always kept.
	events int
}

var usualClients = capacities{clients: 1 << 18, updates: 1 << 16, events: 1 << 20}

// Errors of the table's methods, wrapped with the client's key.
var (
	ErrUnknown   = errors.New("no client has this address")
	ErrNoSession = errors.New("the client is not logged in")
	ErrMoved     = errors.New("the address belongs to another client by now")
	ErrFull      = errors.New("the table is full: no more clients fit")
	ErrBehind    = errors.New("too many sessions are not accounted yet: is the accounting server reachable?")
	ErrSessions  = errors.New("the user has as many sessions as allowed")
	ErrTaken     = errors.New("another client has the address")
	ErrNoHost    = errors.New("no host has this address")
	ErrFirst     = errors.New("no client can be first known by this address")
	ErrAddresses = errors.New("the MAC address has as many addresses as it can have")
	ErrClosed    = errors.New("the session table is closed")
	// ErrLater: a session has ended, its client is blocked, and the disk refused that. It is written, and the end is
	// accounted, once the disk takes it. After a crash before that, the session may come back.
	ErrLater = errors.New("blocked; not on the disk yet")
)

// Table is the table of clients. It is stored in a file, and it controls the data path. Its methods may be called at
// any time from several goroutines; changes of one client happen one after the other.
//
// The data path is never more open than the file: a client is written to the file before the data path admits it, and
// the data path blocks it before that is written. A session ends also while the file cannot be written: that is written
// later (ErrLater). After a crash at any moment no client is admitted that is not in the file, and Open completes
// unfinished changes. When a method returns an error, the client is as it was or has less access, and the method may be
// called again.
type Table struct {
	dp        datapath.Datapath
	log       *slog.Logger
	owner     string // this gateway's name, in all sessions of this table
	journal   *journal
	timeline  *timeline.Line // line of the times in the file
	clock     clock
	bounds    capacities
	saveEvery tableTime

	// openLock keeps the table open: all methods that use the table hold it for reading, and Close for writing.
	openLock sync.RWMutex
	closed   bool

	mu            sync.Mutex
	clients       map[datapath.ID]*client
	order         order                  // of the clients' identities
	byFurtherAddr map[netip.Addr]*client // clients by every address other than an IPv4 address that is their identity
	delegated     delegations            // clients by networks
	states        map[State]int          // clients by state
	users         map[string]int         // sessions by user, those about to begin included
	loggingIn     map[*client]string     // the users whose sessions are about to begin
	macs          macs
	numbers       numbers                         // identities of clients without an IPv4 address
	dues          due.Queue[*client]              // clients by the next time a timer of theirs is due
	hungUp        func(Key, PPPoESession)         // see Follow
	revoked       func(Session)                   // see Revoked
	ended         func(Session, Cause)            // see OnEnd
	others        func(string, datapath.MAC) int  // see CountOthers
	cutter        Cutter                          // see Cut
	countedSince  func(f func(datapath.ID)) error // see CountedSince
	duesChanged   chan struct{}                   // signals that the first of dues has changed
	limits        map[Limits]*Limits              // limits that several sessions share, by value

	saving struct {
		sync.Mutex
		retry []datapath.ID // clients whose counts could not be saved the last time
	}

	complaints struct {
		sync.Mutex
		loggedAt tableTime
		unlogged int // errors not logged since
	}
}

// client is a client of the table: its entry, timers and locks.
type client struct {
	// op is held while the client changes, until the change is on the disk. It is locked before Table.mu, which alone
	// guards reading the client.
	op       sync.Mutex
	identity datapath.ID // never changes

	// Fields that change with op and Table.mu held.
	entry
	due        tableTime
	due.Place               // its place in Table.dues
	talliedMAC datapath.MAC // MAC address under which macs lists the client; guarded by the table's mu
	nextOfMAC  *client      // in macs; guarded by the table's mu
	removed    bool         // removed from the table: a caller that waited for op must look the client up again

	// Guarded by op: the data path's state of the client, and its timers.
	inDatapath, open bool      // the data path has an entry; the entry admits the client
	interim          tableTime // next update
	tell, told       tableTime // next update because of changed addresses, and the last one
	check            tableTime // next check of the quota's rest
	checked          tableTime // last one
	quotaLeft        uint64    // bytes left at the last check
	highest          float64   // highest rate between two checks, bytes a second
	saved            uint64    // packets counted when last written to disk
}

// Open reads the table from the file at path, creating a missing file, and sets every client in the data path. Sessions
// whose counters are lost, because the machine was restarted, end with NASReboot at the time of their last known
// activity. Sessions of addresses outside the present LAN end the same way, and their clients are removed. The table
// never closes the data path. Ends of sessions, and errors that no caller receives, are logged to log.
//
// The data path must not contain clients that are missing in the file, for example after the file was deleted: empty it
// first, because the table cannot see them.
func Open(path string, dp datapath.Datapath, log *slog.Logger) (*Table, error) {
	return OpenWith(path, dp, log, Options{})
}

// Resume is Open for data paths whose counters end with the daemon: while the machine did not restart, sessions with
// lost counters continue with the bytes last written.
func Resume(path string, dp datapath.Datapath, log *slog.Logger) (*Table, error) {
	return OpenWith(path, dp, log, Options{Resume: true})
}

// OpenWith is Open with options. The clock's folder is the file's.
func OpenWith(path string, dp datapath.Datapath, log *slog.Logger, o Options) (*Table, error) {
	store, err := openFile(path)
	if err != nil {
		return nil, err
	}
	o.Dir = filepath.Dir(path)
	t, err := OpenStore(store, dp, log, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Options are how a table of any store is opened.
type Options struct {
	Dir    string // where the machine's clock is kept
	Owner  string // this gateway, as records name it; "": there is no other that has the store
	Resume bool   // as Resume
	// SaveEvery is the largest age of counts on the disk when the machine dies; 0: a minute.
	SaveEvery time.Duration
	// Written is called with each client's record that was written to the store, in that order, and must return at once;
	// nil: nobody is told. Nobody may change the record.
	Written func(Record)
	// Ends is asked about each session of the store before the data path admits its client, and returns why the session
	// ends now; empty: it goes on. nil: all go on. It must not call the table.
	Ends func(Session) Cause
}

// OpenStore is Open for any store, which the table closes, also on error.
func OpenStore(store Store, dp datapath.Datapath, log *slog.Logger, o Options) (*Table, error) {
	line, err := timeline.Open(o.Dir)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	t := newTable(dp, log, line, o.Owner)
	t.saveEvery = cmp.Or(tableTime(o.SaveEvery), saveEvery)
	var lost []change
	var ends []*Event
	t.journal, err = openJournal(store, o, log, func(id datapath.ID, record []byte) error {
		out, ended, err := t.load(id, record, o)
		if out.id != 0 {
			lost = append(lost, out)
		}
		if ended != nil {
			ends = append(ends, ended)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range lost {
		t.journal.writeLater(c)
	}
	if err := t.journal.sync(); err != nil {
		return nil, errors.Join(err, t.journal.close())
	}
	for _, e := range ends {
		t.report(&e.Session, e.Cause, nil)
	}
	return t, nil
}

// newTable returns an empty table without a store.
func newTable(dp datapath.Datapath, log *slog.Logger, line *timeline.Line, owner string) *Table {
	t := &Table{
		dp: dp, log: log, owner: owner, cutter: noCutter{}, timeline: line, clock: newClock(line), bounds: usualClients,
		clients: map[datapath.ID]*client{}, byFurtherAddr: map[netip.Addr]*client{}, states: map[State]int{},
		users: map[string]int{}, loggingIn: map[*client]string{}, macs: macs{},
		duesChanged: make(chan struct{}, 1), limits: map[Limits]*Limits{},
	}
	t.complaints.loggedAt = -zeroTime
	return t
}

// load adds a client of the store, and returns what is to be changed there and the end of its session, if that cannot
// continue. A client that the data path cannot have is removed: it has an address of a former LAN.
func (t *Table) load(id datapath.ID, record []byte, o Options) (lost change, ended *Event, err error) {
	s, read, err := clientOf(id, record)
	if err != nil {
		return change{}, nil, err
	}
	if _, err := t.dp.Counters(id); errors.Is(err, datapath.ErrForeign) {
		lost.id = id
		if s.State == Authenticated {
			ended = &Event{Kind: Ended, Session: s, Cause: NASReboot, At: s.Seen}
			lost.events = [][]byte{encodeEvent(ended)}
		}
		return lost, ended, nil
	}
	ended, err = t.restore(id, &s, read, o)
	c := t.clients[id]
	if ended != nil {
		lost = change{id: id, events: [][]byte{encodeEvent(ended)}}
	} else if c != nil && (!slices.Equal(c.extraOrZero().furtherAddrs, s.FurtherAddrs) ||
		!slices.Equal(c.extraOrZero().delegated, s.Delegated)) {
		lost.id = id
	}
	if lost.id != 0 && c != nil {
		lost.record = t.record(&c.entry)
	}
	return lost, ended, err
}

// restore adds a client of the file to the table and the data path. If its session cannot continue, restore ends the
// session and returns the event to report.
func (t *Table) restore(id datapath.ID, s *Session, read reading, o Options) (ended *Event, err error) {
	c := &client{identity: id}
	e := t.entryOf(s)
	if s.State == Authenticated {
		if ended, err = t.resumed(id, &e, read, o); err != nil {
			return nil, err
		}
	}
	if ended != nil {
		if e.goesWith(ended.Cause) {
			return ended, t.dp.Remove(id)
		}
		e = e.withoutSession()
		if ended.Cause != NASReboot {
			e = *e.withLastEnding(s.Key, ended.endingOf(ended.Cause))
		}
	}
	t.clients[id] = c
	t.order.add(id)
	if n, numbered := id.Number(); numbered {
		t.numbers.taken(n)
	}
	t.arm(c, &e, t.clock.now())
	t.publish(c, e)
	err = t.setDatapath(c, &e)
	if extra := e.extraOrZero(); len(extra.furtherAddrs)+len(extra.delegated) > 0 &&
		(errors.Is(err, datapath.ErrForeign) || errors.Is(err, datapath.ErrNotSupported)) {
		next := e
		// These addresses belong to a former network, or to a data path of another kind.
		next.change(func(r *extraFields) { r.furtherAddrs, r.delegated = nil, nil })
		t.publish(c, next)
		err = t.setDatapath(c, &c.entry)
	}
	return ended, err
}

// resumed takes up the session of an entry of the file. It returns the end of a session that cannot continue.
func (t *Table) resumed(id datapath.ID, e *entry, read reading, o Options) (ended *Event, err error) {
	e.read = read
	now, err := t.dp.Counters(id)
	if err != nil {
		return nil, fmt.Errorf("read the counters of %s: %w", e.key, err)
	}
	lost := now.Epoch != read.Epoch && !o.Resume
	if !lost {
		t.count(e, now)
	}
	var cause Cause
	if o.Ends != nil {
		cause = o.Ends(t.snapshot(e))
	}
	at := t.clock.inFile(t.clock.now())
	if lost {
		cause, at = NASReboot, t.clock.inFile(e.seen)
	}
	if cause == "" {
		return nil, nil
	}
	return &Event{Kind: Ended, Session: t.view(e, t.clock.inFile), Cause: cause, At: at}, nil
}

// Close writes the counts to disk and closes the file. No session ends: the data path continues, and Open takes the
// sessions up again. Methods called afterwards return ErrClosed. Closing twice is no error.
func (t *Table) Close() error {
	t.openLock.Lock()
	defer t.openLock.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	for n, id := range slices.Sorted(maps.Keys(t.clients)) {
		if n%savedAtOnce == savedAtOnce-1 {
			_ = t.journal.sync() // what fails is said by close
		}
		c := t.clients[id]
		if e := c.entry; e.state == Authenticated {
			if now, err := t.dp.Counters(c.identity); err == nil {
				t.count(&e, now)
			}
			t.journal.save(c.identity, t.record(&e))
		}
	}
	return errors.Join(t.journal.close(), t.timeline.Save())
}

// Records calls visit with each client's record as it is in the store, in the order of identities, until visit fails.
// Records are valid during the call. It fails with ErrClosed.
func (t *Table) Records(visit func(Record) error) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	return t.journal.store.Clients(func(id datapath.ID, record []byte) error { return visit(Record{id, record}) })
}

// OnLine converts a time of the wall clock to the line of the times in records.
func (t *Table) OnLine(wall time.Time) time.Time { return t.clock.inFile(t.clock.tableTime(wall)) }

// Wall is the opposite of OnLine.
func (t *Table) Wall(onLine time.Time) time.Time { return t.clock.time(t.clock.ofFile(onLine)) }

// holdOpen keeps the table open until openLock is unlocked for reading.
func (t *Table) holdOpen() error {
	t.openLock.RLock()
	if t.closed {
		t.openLock.RUnlock()
		return ErrClosed
	}
	return nil
}

// Get returns the client that has an address, with its present counts.
func (t *Table) Get(addr netip.Addr) (Session, bool) {
	return t.get(func() *client { return t.clientAt(addr.Unmap()) })
}

// Taken reports whether a client has an address. It costs much less than Get, which reads counters.
func (t *Table) Taken(addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clientAt(addr.Unmap())
	return c != nil && c.state != ""
}

// Has reports whether there is a client with an identity.
func (t *Table) Has(id datapath.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[id]
	return c != nil && c.state != ""
}

// get is Get for the client that find returns, with mu held.
func (t *Table) get(find func() *client) (Session, bool) {
	if t.holdOpen() != nil {
		return Session{}, false
	}
	defer t.openLock.RUnlock()
	t.mu.Lock()
	c := find()
	if c == nil || c.state == "" {
		t.mu.Unlock()
		return Session{}, false
	}
	e := c.entry
	t.mu.Unlock()
	if e.state == Authenticated {
		// If the counters cannot be read, the last known counts are returned.
		if now, err := t.dp.Counters(c.identity); err == nil {
			t.count(&e, now)
		}
	}
	return t.snapshot(&e), true
}

// Each yields all clients, ordered by identity, which is by their first address. Clients that are added or removed
// meanwhile may be included or not; no lock is held while yield runs.
func (t *Table) Each(yield func(Session) bool) {
	for from := Position(0); ; {
		p := t.PageOf(from, visitedAtOnce, visitedAtOnce, nil)
		for _, s := range p.Sessions {
			if !yield(s) {
				return
			}
		}
		if from = p.Next; from == 0 {
			return
		}
	}
}

// logError logs errors that no caller receives, at most once in ten seconds.
func (t *Table) logError(key Key, err error) {
	now := t.clock.now()
	t.complaints.Lock()
	defer t.complaints.Unlock()
	if now < t.complaints.loggedAt.after(10*time.Second) {
		t.complaints.unlogged++
		return
	}
	t.log.Warn("session: trying again", "client", key.String(), "error", err, "more", t.complaints.unlogged)
	t.complaints.loggedAt, t.complaints.unlogged = now, 0
}
