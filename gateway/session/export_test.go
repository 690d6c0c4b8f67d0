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

// CopyFile writes to path what a crash would leave on the disk now.
func (t *Table) CopyFile(path string) error {
	return fileOf(t).db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, os.FileMode(0o600)) })
}

// OnDisk returns the clients of the file, and the counter readings of their counts.
func (t *Table) OnDisk() (clients []Session, err error) {
	err = fileOf(t).db.View(func(tx *bbolt.Tx) error {
		return eachClient(tx, func(s Session, _ reading) error {
			clients = append(clients, s)
			return nil
		})
	})
	return clients, err
}

// StopWriting holds the file's only write transaction until it is resumed.
func (t *Table) StopWriting() (resume func() error, err error) {
	tx, err := fileOf(t).db.Begin(true)
	if err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

// Transactions is the number of the file's last transaction.
func (t *Table) Transactions() (id int, err error) {
	err = fileOf(t).db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	})
	return id, err
}

// Waiting returns the number of events not yet on the disk.
func (t *Table) Waiting() int {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return t.journal.unwritten
}

// Asked reports whether the writer has been asked to write and has not yet taken the changes.
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

// Bound lowers the table's bounds before it is used.
func (t *Table) Bound(clients, updates, events int) {
	t.bounds = capacities{clients: clients, updates: updates, events: events}
}

// SetFormat changes a file's format version.
func SetFormat(path string, format []byte) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(aboutBucket).Put(formatKey, format) })
}

// Format is the format of the file at path, which nobody has open.
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

// MakeForeign creates a file of another program.
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

// Known returns the number of clients, also of those whose first change is not on the disk yet.
func (t *Table) Known() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.clients)
}

// Saving reports whether saved counts wait for the writer.
func (t *Table) Saving() bool {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return len(t.journal.saves) > 0
}

// Next returns the oldest event that is not Done, and waits for one. It takes none: after it the same event is
// returned, until Done.
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

// fileOf is the file of a table that Open has opened.
func fileOf(t *Table) *file { return t.journal.store.(*file) }
