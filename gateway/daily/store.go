package daily

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// Store keeps the records of holders, on a disk or elsewhere. Its methods may be called from several goroutines.
type Store interface {
	// Get returns the record of a holder; nil: there is none.
	Get(Holder) ([]byte, error)
	// Each calls visit with the records behind a holder, "" for all, in the order of the holders, until visit says no or
	// fails. They are valid during the call.
	Each(behind Holder, visit func(h Holder, record []byte) (more bool, err error)) error
	// Put replaces records, nil: deletes them, all or none, and returns when that will outlast a crash.
	Put(map[Holder][]byte) error
	Close() error
}

// bucket has all records by holder. Another format would be another bucket.
var bucket = []byte("gatewayd day 1")

// file is a Store in a file of bbolt.
type file struct{ db *bbolt.DB }

var _ Store = file{}

// openFile opens the file at path, and creates it when it is missing.
func openFile(path string) (Store, error) {
	db, err := statefile.Open(path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			if name, _ := tx.Cursor().First(); name != nil {
				return fmt.Errorf("%w: it is a bbolt file with a bucket %.40q", statefile.ErrDamaged, name)
			}
			return nil
		}
		return b.ForEach(func(key, data []byte) error {
			if _, err := decode(data); err != nil || len(key) == 0 {
				return fmt.Errorf("%w: %q: %w", statefile.ErrDamaged, key, err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("open what was used today: %w", err)
	}
	db.MaxBatchDelay = time.Millisecond // a person waits for the login
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay out what was used today, %s: %w", path, err), db.Close())
	}
	return file{db}, nil
}

// Get implements Store.
func (f file) Get(h Holder) (data []byte, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		if found := tx.Bucket(bucket).Get([]byte(h)); found != nil {
			data = append([]byte{}, found...)
		}
		return nil
	})
	return data, err
}

// Each implements Store.
func (f file) Each(behind Holder, visit func(h Holder, record []byte) (more bool, err error)) error {
	return f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for key, data := c.Seek([]byte(behind)); key != nil; key, data = c.Next() {
			if Holder(key) == behind {
				continue
			}
			if more, err := visit(Holder(key), data); err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// Put implements Store. Changes that come at the same time share one write to the disk.
func (f file) Put(all map[Holder][]byte) error {
	return f.db.Batch(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for h, data := range all {
			var err error
			if data == nil {
				err = b.Delete([]byte(h))
			} else {
				err = b.Put([]byte(h), data)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Close implements Store.
func (f file) Close() error { return f.db.Close() }
