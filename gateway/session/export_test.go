// Access for the tests, which are in package session_test, to unexported parts of this package.

package session

import (
	"context"
	"encoding/binary"
	"os"

	"go.etcd.io/bbolt"
)

// Reading is the counters in a record, for tests outside of the package.
type Reading = reading

// Internals for tests in session_test.
var (
	EncodeClient = encodeClient
	DecodeClient = decodeClient
	EncodeEvent  = encodeEvent
	DecodeEvent  = decodeEvent
	CauseNames   = func() []string { return causeNames }
)

// CopyFile copies the table's file as it is on the disk now, which is what a crash would leave.
func (t *Table) CopyFile(path string) error {
	return fileOf(t).db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, os.FileMode(0o600)) })
}

// OnDisk returns the clients that the file holds.
func (t *Table) OnDisk() (clients []Session, err error) {
	err = fileOf(t).db.View(func(tx *bbolt.Tx) error {
		return eachClient(tx, func(s Session, _ reading) error {
			clients = append(clients, s)
			return nil
		})
	})
	return clients, err
}

// StopWriting begins the file's only write transaction, so that the table cannot write until resume is called.
func (t *Table) StopWriting() (resume func() error, err error) {
	tx, err := fileOf(t).db.Begin(true)
	if err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

// Transactions returns how many transactions the file has had.
func (t *Table) Transactions() (id int, err error) {
	err = fileOf(t).db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	})
	return id, err
}

// Waiting returns the number of events that are not on the disk yet.
func (t *Table) Waiting() int {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return t.journal.unwritten
}

// Asked reports whether the writer has been woken and has not yet taken the changes.
func (t *Table) Asked() bool {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return t.journal.armed
}

// Closing reports whether the table accepts no more changes.
func (t *Table) Closing() bool {
	select {
	case <-t.journal.closed:
		return true
	default:
		return false
	}
}

// Bound lowers the table's capacities. It must be called before the table is used.
func (t *Table) Bound(clients, updates, events int) {
	t.bounds = capacities{clients: clients, updates: updates, events: events}
}

// SetFormat changes the format version in a file.
func SetFormat(path string, format []byte) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(aboutBucket).Put(formatKey, format) })
}

// Format returns the format version of a file that is not open.
func Format(path string) (version uint64, err error) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		version = binary.BigEndian.Uint64(tx.Bucket(aboutBucket).Get(formatKey))
		return nil
	})
	return version, err
}

// MakeForeign creates a bbolt file that is not a session table.
func MakeForeign(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("members"))
		return err
	})
}

// Known returns the number of clients in memory, including those that are not on the disk yet.
func (t *Table) Known() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.clients)
}

// Saving reports whether counts that Save read are not on the disk yet.
func (t *Table) Saving() bool {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return len(t.journal.saves) > 0
}

// Next returns the oldest event that is not Done, and waits until there is one. The event stays the oldest until Done.
func (t *Table) Next(ctx context.Context) (e Event, err error) {
	for {
		if err := t.holdOpen(); err != nil {
			return Event{}, err
		}
		e, changed, err := t.journal.oldest()
		t.openLock.RUnlock()
		if err != nil || e.number != 0 {
			return t.dated(e), err
		}
		select {
		case <-changed:
		case <-t.journal.closed:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

func (j *journal) oldest() (e Event, changed <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err = j.store.Events(0, func(number uint64, record []byte) (more bool, err error) {
		if _, deleted := j.deleted[number]; deleted {
			return true, nil
		}
		e, err = eventOf(number, record)
		return false, err
	})
	return e, j.outbox.changed, err
}

// fileOf returns the file of a table that Open has opened.
func fileOf(t *Table) *file { return t.journal.store.(*file) }
