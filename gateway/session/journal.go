// Writing to the Store: one goroutine writes the changes of many callers in one transaction.

package session

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

const (
	// commitMax bounds what one transaction writes: a transaction is held in memory, and later changes wait for it.
	commitMax = 4096
	// lazyFor is how long a change without a waiting caller may take to reach the disk.
	lazyFor = time.Second
	// deletedMax bounds the accounted events that are still to be deleted from the store.
	deletedMax = 512
)

// change is a change of one client. It is written to disk completely or not at all.
type change struct {
	id         datapath.ID // 0: no client
	record     []byte      // the client's new record; nil: the client is deleted
	former     datapath.ID // a client that is deleted with the change, because it is this one from now on; 0: none
	events     [][]byte    // in order
	mustHappen bool        // it has happened whatever the disk says: when refused, it is written later
	refused    bool        // it was refused
	done       chan error
}

// journal keeps the clients and the outbox of events in a Store. One goroutine writes everything that has accumulated
// since the last transaction in one transaction, so that a thousand waiting callers cost the disk as much as one.
type journal struct {
	store   Store
	log     *slog.Logger
	dir     string        // where the store is
	written func(Record)  // see Options; nil: nobody is told
	wake    chan struct{} // a caller waits, or lazyFor is over
	closed  chan struct{} // no more changes are accepted
	ended   chan struct{} // the writer has ended

	mu    sync.Mutex
	queue []change // oldest first; changes without done have no waiting caller
	// saves are newer records of clients without a waiting caller; a change of the client replaces its save. order are the
	// clients to be written next, sorted, because neighbours share pages.
	saves   map[datapath.ID][]byte
	order   []datapath.ID
	armed   bool // a signal of wake is scheduled
	fault   storeFault
	lastErr error // of the last transaction

	outbox    outbox
	deleted   map[uint64]struct{} // events to be deleted that are still in the store
	backlog   int                 // events in the store
	unwritten int                 // events not yet written
}

// openJournal calls load with each client of the store. On error the store is closed.
func openJournal(store Store, o Options, log *slog.Logger,
	load func(id datapath.ID, record []byte) error,
) (*journal, error) {
	j := &journal{
		store: store, dir: o.Dir, log: log, written: o.Written,
		wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
		saves: map[datapath.ID][]byte{}, deleted: map[uint64]struct{}{}, outbox: newOutbox(),
	}
	err := store.Events(0, func(uint64, []byte) (bool, error) { j.backlog++; return true, nil })
	if err == nil {
		err = store.Clients(load)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the session store: %w", err), store.Close())
	}
	go j.write()
	return j, nil
}

// commit returns when a change is on the disk, or has failed.
func (j *journal) commit(c change) error {
	c.done = make(chan error, 1)
	j.mu.Lock()
	j.add(c)
	j.mu.Unlock()
	j.signal()
	return <-c.done
}

// sync returns when everything before it is on the disk, or has failed.
func (j *journal) sync() error { return j.commit(change{}) }

// writeLater writes a change to disk within a second, after all changes before it.
func (j *journal) writeLater(c change) {
	j.mu.Lock()
	j.add(c)
	j.arm()
	j.mu.Unlock()
}

// add must be called with mu held.
func (j *journal) add(c change) {
	j.queue = append(j.queue, c)
	j.unwritten += len(c.events)
	delete(j.saves, c.id)
	delete(j.saves, c.former)
}

// save writes a client's record to disk soon. If that fails, it is tried again, unless a newer one follows.
func (j *journal) save(id datapath.ID, record []byte) {
	j.mu.Lock()
	j.saves[id] = record
	j.arm()
	j.mu.Unlock()
}

// arm must be called with mu held.
func (j *journal) arm() {
	if !j.armed {
		j.armed = true
		time.AfterFunc(lazyFor, j.signal)
	}
}

func (j *journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// backlogSize is the number of events that are not accounted, or not yet written, and not set aside.
func (j *journal) backlogSize() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.backlog - len(j.deleted) + j.unwritten - min(j.outbox.setAside, asideMost)
}

// close writes the changes that are left, and ends the writer. No change may be added afterwards.
func (j *journal) close() error {
	close(j.closed)
	j.signal()
	<-j.ended
	j.mu.Lock()
	last := j.lastErr
	j.mu.Unlock()
	err := j.store.Close()
	if last != nil {
		return errors.Join(fmt.Errorf("close the session store: the last changes could not be written: %w", last), err)
	}
	return err
}

func (j *journal) write() {
	defer close(j.ended)
	for {
		<-j.wake
		j.flushAll()
		select {
		case <-j.closed:
			j.flushAll() // changes since the last flush
			return
		default:
		}
	}
}

func (j *journal) flushAll() {
	for j.flush() {
	}
}

// portion is the changes that one transaction writes.
type portion struct {
	changes []change
	saves   []Record // newer than the changes
	done    []uint64
}

// batch is a portion as a Store takes it.
func (p portion) batch() Batch {
	b := Batch{Clients: make([]Record, 0, len(p.changes)+len(p.saves)), Done: p.done}
	for _, c := range p.changes {
		if c.id != 0 {
			b.Clients = append(b.Clients, Record{c.id, c.record})
		}
		if c.former != 0 {
			b.Clients = append(b.Clients, Record{c.former, nil})
		}
		b.Events = append(b.Events, c.events...)
	}
	b.Clients = append(b.Clients, p.saves...)
	return b
}

// flush writes one transaction; more reports whether another should follow at once.
func (j *journal) flush() (more bool) {
	b := j.nextPortion()
	if len(b.changes)+len(b.saves)+len(b.done) == 0 {
		return false
	}
	batch := b.batch()
	removed, err := j.store.Write(batch)
	if err == nil && j.written != nil {
		for _, r := range batch.Clients {
			j.written(r)
		}
	}
	ended := b.changes
	j.mu.Lock()
	before := j.fault.err
	if err == nil {
		j.removePortion(b, removed)
		more = len(j.queue)+len(j.saves) > 0
		j.fault.portionWritten(b, more)
	} else {
		err = fmt.Errorf("write the session store: %w", err)
		j.fault.add(b, err)
		ended = j.putBack(b)
	}
	after := j.fault.err
	j.lastErr = err
	j.mu.Unlock()
	for _, c := range ended {
		if c.done != nil {
			c.done <- err
		}
	}
	if before == nil && after != nil {
		j.log.Error("sessions are not kept: free space at state_dir, if that is why", "state_dir", j.dir, "error", err)
	} else if before != nil && after == nil {
		j.log.Info("sessions are kept again")
	}
	return more
}

// nextPortion selects what to write next: first the queue, in order, and, if all of the queue fits, the saves, which
// are never older than the queue's records.
func (j *journal) nextPortion() portion {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed = false
	n := min(len(j.queue), commitMax)
	b := portion{changes: slices.Clone(j.queue[:n])}
	j.queue = slices.Delete(j.queue, 0, n)
	if len(j.queue) > 0 {
		return b
	}
	for ; len(j.saves) > 0 && n < commitMax; n++ {
		if len(j.order) == 0 {
			j.order = slices.Sorted(maps.Keys(j.saves))
		}
		id := j.order[0]
		if record, still := j.saves[id]; still {
			b.saves = append(b.saves, Record{id, record})
			delete(j.saves, id)
		}
		j.order = j.order[1:]
	}
	b.done = slices.Sorted(maps.Keys(j.deleted))
	return b
}

// removePortion updates the journal after a portion is on the disk. mu is held.
func (j *journal) removePortion(b portion, removed int) {
	// Remove these only now that they are no longer in the store.
	for _, number := range b.done {
		delete(j.deleted, number)
	}
	added := 0
	for _, c := range b.changes {
		added += len(c.events)
	}
	j.backlog += added - removed
	j.unwritten -= added
	if added > 0 {
		j.outbox.notify()
	}
}

// putBack puts back into the queue what must still be written after a portion failed: changes without a waiting caller,
// and changes with mustHappen, which no caller could undo. It returns all changes that have a waiting caller, of the
// portion and of the queue, which would fail too: their callers are told. mu is held.
func (j *journal) putBack(b portion) (failed []change) {
	var kept []change
	for _, c := range append(b.changes, j.queue...) {
		if c.done != nil {
			failed = append(failed, c)
		}
		c.refused = true
		if c.mustHappen {
			c.done = nil
		}
		if c.done != nil {
			j.unwritten -= len(c.events)
		} else {
			kept = append(kept, c)
		}
	}
	j.queue = kept
	j.keepSaves(b.saves)
	if len(kept)+len(b.done)+len(j.saves) > 0 {
		j.arm()
	}
	return failed
}

// keepSaves queues saves again that the disk refused, except where a newer record of the same client waits to be
// written. mu is held.
func (j *journal) keepSaves(saves []Record) {
	newer := map[datapath.ID]bool{}
	for _, c := range j.queue {
		newer[c.id] = true
	}
	for _, r := range saves {
		if _, found := j.saves[r.ID]; !found && !newer[r.ID] {
			j.saves[r.ID] = r.Data
		}
	}
}
