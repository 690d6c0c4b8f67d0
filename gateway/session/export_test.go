package session

import (
	"os"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// What tests in session_test look into.
var (
	EncodeClient = encodeClient
	DecodeClient = decodeClient
	EncodeEvent  = encodeEvent
	DecodeEvent  = decodeEvent
)

// CopyFile leaves at path what a crash now would leave on the disk.
func (t *Table) CopyFile(path string) error {
	return t.store.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, os.FileMode(0o600)) })
}

// OnDisk are the clients of the file now, and the counters their counts go to.
func (t *Table) OnDisk() (clients []Session, err error) {
	err = t.store.db.View(func(tx *bbolt.Tx) error {
		return eachClient(tx, func(s Session, _ datapath.Counters) error {
			clients = append(clients, s)
			return nil
		})
	})
	return clients, err
}

// StopWriting holds the file's only write transaction until it is resumed.
func (t *Table) StopWriting() (resume func() error, err error) {
	tx, err := t.store.db.Begin(true)
	if err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

// Transactions is the number of the file's last transaction.
func (t *Table) Transactions() (id int, err error) {
	err = t.store.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	})
	return id, err
}

// Waiting are the events that are on their way to the disk.
func (t *Table) Waiting() int {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.store.unwritten
}

// Asked says whether the writer has been asked to write, and has not yet looked
// what there is.
func (t *Table) Asked() bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.store.armed
}

// Closing says whether the table accepts nothing more.
func (t *Table) Closing() bool {
	select {
	case <-t.store.closed:
		return true
	default:
		return false
	}
}

// Bound makes the table's bounds what a test can reach, before it is used.
func (t *Table) Bound(clients, updates, events int) {
	t.bounds = bounds{clients: clients, updates: updates, events: events}
}

// SetFormat makes a file one of another format.
func SetFormat(path string, format []byte) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(aboutBucket).Put(formatKey, format) })
}

// MakeForeign creates a file of somebody else's.
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
