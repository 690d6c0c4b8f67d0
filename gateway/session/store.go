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
	// commitMax bounds what one transaction writes: it is held in memory, and
	// those who wait for the next one wait for it.
	commitMax = 4096
	// lazyFor is how long what nobody waits for may take to be on the disk.
	lazyFor = time.Second
	// doneMax are the accounted events that may wait to be taken out of the file.
	doneMax = 512
)

// change is what happened to one client: all of it is on the disk, or nothing.
type change struct {
	addr   netip.Addr // the zero one: it is about nobody
	record []byte     // of the client from now on; nil: it is gone
	events [][]byte   // in their order
	done   chan error
}

// store keeps the clients and the outbox of events in a file. One goroutine
// writes, everything that has come up since the last time in one transaction:
// what a thousand callers wait for costs the disk as much as one.
type store struct {
	db     *bbolt.DB
	wake   chan struct{} // somebody waits, or lazyFor is over
	closed chan struct{} // nothing more is accepted
	ended  chan struct{} // the writer has

	mu    sync.Mutex
	queue []change // oldest first; nobody waits for those without done
	// saves are newer records of clients, for which nobody waits; a change of the
	// client makes its save void. order are the addresses that are to be written
	// next, sorted, since neighbours share pages.
	saves   map[netip.Addr][]byte
	order   []netip.Addr
	armed   bool // wake will be signalled
	failing bool // the last transaction did

	// The outbox. Events below first are done, and those in done are, though still
	// in the file.
	first     uint64
	done      map[uint64]struct{}
	backlog   int           // events in the file
	unwritten int           // events on their way there
	arrived   chan struct{} // closed when there are new ones
}

// openStore opens the file at path and hands out what is in it.
func openStore(path string, load func(tx *bbolt.Tx) error) (*store, error) {
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := &store{
		db: db, wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
		saves: map[netip.Addr][]byte{}, done: map[uint64]struct{}{}, arrived: make(chan struct{}),
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

// commit returns when a change is on the disk, or will not be.
func (s *store) commit(c change) error {
	c.done = make(chan error, 1)
	s.mu.Lock()
	s.add(c)
	s.mu.Unlock()
	s.signal()
	return <-c.done
}

// sync returns when everything before it is on the disk, or will not be.
func (s *store) sync() error { return s.commit(change{}) }

// later has a change on the disk a second from now, after all those before it.
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

// save has a client's record on the disk soon. When that fails it is forgotten:
// there will be a newer one.
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

// behind is the number of events nobody has accounted, or written, yet.
func (s *store) behind() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog - len(s.done) + s.unwritten
}

// close writes what is left, and ends the writer. Nothing may be added any more.
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
			s.flushAll() // what has come up since the last look
			return
		default:
		}
	}
}

func (s *store) flushAll() {
	for s.flush() {
	}
}

// batch is what goes into one transaction.
type batch struct {
	changes []change
	saves   map[netip.Addr][]byte
	done    []uint64
	added   int // events
	removed int
}

// flush writes one transaction; more says whether another is wanted at once.
func (s *store) flush() (more bool) {
	b := s.take()
	if len(b.changes)+len(b.saves)+len(b.done) == 0 {
		return false
	}
	err := s.db.Update(b.apply)
	told := b.changes
	s.mu.Lock()
	if err == nil {
		s.taken(b)
		more = len(s.queue)+len(s.saves) > 0
	} else {
		err = fmt.Errorf("write the session store: %w", err)
		told = s.putBack(b)
	}
	changed := s.failing != (err != nil)
	s.failing = err != nil
	s.mu.Unlock()
	for _, c := range told {
		if c.done != nil {
			c.done <- err
		}
	}
	if changed && err != nil {
		slog.Error("sessions are not kept", "error", err)
	} else if changed {
		slog.Info("sessions are kept again")
	}
	return more
}

// take picks what to write next: first the queue, in its order, and when all of
// it fits the saves, which are never older than the queue's records.
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
	b.done = slices.Sorted(maps.Keys(s.done))
	return b
}

// taken notes a batch that is on the disk. mu is held.
func (s *store) taken(b batch) {
	// Only now, when they are no longer in the file, may these be forgotten.
	for _, number := range b.done {
		delete(s.done, number)
	}
	s.backlog += b.added - b.removed
	s.unwritten -= b.added
	if b.added > 0 {
		close(s.arrived)
		s.arrived = make(chan struct{})
	}
}

// putBack keeps the changes of a failed batch for which nobody waits: they have
// happened, and there is nobody to tell that they are lost. The others come back
// to be told, also those still in the queue, which would fare no better. mu is
// held.
func (s *store) putBack(b batch) (told []change) {
	var kept []change
	for _, c := range append(b.changes, s.queue...) {
		if c.done != nil {
			told = append(told, c)
			s.unwritten -= len(c.events)
		} else {
			kept = append(kept, c)
		}
	}
	s.queue = kept
	if len(kept)+len(b.done) > 0 {
		s.arm()
	}
	return told
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
