package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// commitMax bounds what one transaction writes: a transaction is held in memory, and
	// later changes wait for it.
	commitMax = 4096
	// lazyFor is how long a change without a waiting caller may take to reach the disk.
	lazyFor = time.Second
	// deletedMax bounds the accounted events that are still to be deleted from the file.
	deletedMax = 512
)

// change is a change of one client. It is written to disk completely or not at all.
type change struct {
	addr   netip.Addr // the zero Addr: no client
	record []byte     // the client's new record; nil: the client is deleted
	events [][]byte   // in order
	done   chan error
}

// store keeps the clients and the outbox of events in a file. One goroutine writes
// everything that has accumulated since the last transaction in one transaction, so that
// a thousand waiting callers cost the disk as much as one.
type store struct {
	db     *bbolt.DB
	log    *slog.Logger
	wake   chan struct{} // a caller waits, or lazyFor is over
	closed chan struct{} // no more changes are accepted
	ended  chan struct{} // the writer has ended

	mu    sync.Mutex
	queue []change // oldest first; changes without done have no waiting caller
	// saves are newer records of clients without a waiting caller; a change of the client
	// replaces its save. order are the addresses to be written next, sorted, because
	// neighbours share pages.
	saves   map[netip.Addr][]byte
	order   []netip.Addr
	armed   bool // a signal of wake is scheduled
	failing bool // the last transaction failed

	outbox    outbox
	deleted   map[uint64]struct{} // events to be deleted that are still in the file
	backlog   int                 // events in the file
	unwritten int                 // events not yet written
}

// openStore opens the file at path and calls load with its content.
func openStore(path string, log *slog.Logger, load func(tx *bbolt.Tx) error) (*store, error) {
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := &store{
		db: db, log: log, wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
		saves: map[netip.Addr][]byte{}, deleted: map[uint64]struct{}{}, outbox: newOutbox(),
	}
	err = db.View(func(tx *bbolt.Tx) error {
		s.backlog = tx.Bucket(eventsBucket).Stats().KeyN
		return load(tx)
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("read the session store %s: %w", path, err)
	}
	go s.write()
	return s, nil
}

// commit returns when a change is on the disk, or has failed.
func (s *store) commit(c change) error {
	c.done = make(chan error, 1)
	s.mu.Lock()
	s.add(c)
	s.mu.Unlock()
	s.signal()
	return <-c.done
}

// sync returns when everything before it is on the disk, or has failed.
func (s *store) sync() error { return s.commit(change{}) }

// later writes a change to disk within a second, after all changes before it.
func (s *store) later(c change) {
	s.mu.Lock()
	s.add(c)
	s.arm()
	s.mu.Unlock()
}

// add must be called with mu held.
func (s *store) add(c change) {
	s.queue = append(s.queue, c)
	s.unwritten += len(c.events)
	delete(s.saves, c.addr)
}

// save writes a client's record to disk soon. If that fails, the record is dropped,
// because a newer one follows.
func (s *store) save(addr netip.Addr, record []byte) {
	s.mu.Lock()
	s.saves[addr] = record
	s.arm()
	s.mu.Unlock()
}

// arm must be called with mu held.
func (s *store) arm() {
	if !s.armed {
		s.armed = true
		time.AfterFunc(lazyFor, s.signal)
	}
}

func (s *store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// behind is the number of events that are not accounted, or not yet written, and not set aside.
func (s *store) behind() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog - len(s.deleted) + s.unwritten - min(s.outbox.aside, asideMost)
}

// close writes what is left and ends the writer. No change may be added afterwards.
func (s *store) close() error {
	close(s.closed)
	s.signal()
	<-s.ended
	s.mu.Lock()
	failing := s.failing
	s.mu.Unlock()
	err := s.db.Close()
	if failing {
		return errors.Join(errors.New("close the session store: the last changes could not be written: is the disk full?"), err)
	}
	return err
}

func (s *store) write() {
	defer close(s.ended)
	for {
		<-s.wake
		s.flushAll()
		select {
		case <-s.closed:
			s.flushAll() // what was added since the last flush
			return
		default:
		}
	}
}

func (s *store) flushAll() {
	for s.flush() {
	}
}

// batch is the content of one transaction.
type batch struct {
	changes []change
	saves   map[netip.Addr][]byte
	done    []uint64
	added   int // events
	removed int
}

// flush writes one transaction; more reports whether another should follow at once.
func (s *store) flush() (more bool) {
	b := s.take()
	if len(b.changes)+len(b.saves)+len(b.done) == 0 {
		return false
	}
	err := s.db.Update(b.apply)
	ended := b.changes
	s.mu.Lock()
	if err == nil {
		s.taken(b)
		more = len(s.queue)+len(s.saves) > 0
	} else {
		err = fmt.Errorf("write the session store: %w", err)
		ended = s.putBack(b)
	}
	// After a failure sessions are kept again when nothing is left to write: a small
	// transaction may succeed on a disk that has no space for the others.
	failing := err != nil || s.failing && more
	changed := s.failing != failing
	s.failing = failing
	s.mu.Unlock()
	for _, c := range ended {
		if c.done != nil {
			c.done <- err
		}
	}
	if changed && failing {
		s.log.Error("sessions are not kept", "error", err)
	} else if changed {
		s.log.Info("sessions are kept again")
	}
	return more
}

// take selects what to write next: first the queue, in order, and, if all of the queue
// fits, the saves, which are never older than the queue's records.
func (s *store) take() batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	n := min(len(s.queue), commitMax)
	b := batch{changes: slices.Clone(s.queue[:n]), saves: map[netip.Addr][]byte{}}
	s.queue = slices.Delete(s.queue, 0, n)
	if len(s.queue) > 0 {
		return b
	}
	for ; len(s.saves) > 0 && n < commitMax; n++ {
		if len(s.order) == 0 {
			s.order = slices.SortedFunc(maps.Keys(s.saves), netip.Addr.Compare)
		}
		addr := s.order[0]
		if record, still := s.saves[addr]; still {
			b.saves[addr] = record
			delete(s.saves, addr)
		}
		s.order = s.order[1:]
	}
	b.done = slices.Sorted(maps.Keys(s.deleted))
	return b
}

// taken updates the store after a batch is on the disk. mu is held.
func (s *store) taken(b batch) {
	// Remove these only now that they are no longer in the file.
	for _, number := range b.done {
		delete(s.deleted, number)
	}
	s.backlog += b.added - b.removed
	s.unwritten -= b.added
	if b.added > 0 {
		s.outbox.tell()
	}
}

// putBack keeps the changes of a failed batch that have no waiting caller: they have
// happened, and no caller could be notified of their loss. It returns the others, and
// those still in the queue, which would fail too, so that their callers are notified.
// mu is held.
func (s *store) putBack(b batch) (failed []change) {
	var kept []change
	for _, c := range append(b.changes, s.queue...) {
		if c.done != nil {
			failed = append(failed, c)
			s.unwritten -= len(c.events)
		} else {
			kept = append(kept, c)
		}
	}
	s.queue = kept
	if len(kept)+len(b.done) > 0 {
		s.arm()
	}
	return failed
}

func (b *batch) apply(tx *bbolt.Tx) error {
	clients, events := tx.Bucket(clientsBucket), tx.Bucket(eventsBucket)
	events.FillPercent = 1 // they are only appended
	b.added, b.removed = 0, 0
	for _, c := range b.changes {
		if err := putClient(clients, c.addr, c.record); err != nil {
			return err
		}
		for _, e := range c.events {
			number, err := events.NextSequence()
			if err != nil {
				return err
			}
			if err := events.Put(eventKey(number), e); err != nil {
				return err
			}
			b.added++
		}
	}
	for addr, record := range b.saves {
		if err := putClient(clients, addr, record); err != nil {
			return err
		}
	}
	for _, number := range b.done {
		if key := eventKey(number); events.Get(key) != nil {
			if err := events.Delete(key); err != nil {
				return err
			}
			b.removed++
		}
	}
	return nil
}

func putClient(clients *bbolt.Bucket, addr netip.Addr, record []byte) error {
	switch {
	case !addr.IsValid():
		return nil
	case record == nil:
		return clients.Delete(addr.AsSlice())
	}
	return clients.Put(addr.AsSlice(), record)
}

func eventKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
