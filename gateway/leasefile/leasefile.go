// Package leasefile opens the files in which the DHCP servers keep their leases: records by their keys, in a bucket of
// a bbolt file, with times of the state folder's line.
package leasefile

import (
	"errors"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// File is an open file.
type File struct {
	DB     *bolt.DB
	Line   *timeline.Line // of the records' times
	bucket []byte
}

// Open opens or creates a file with a bucket of records. Only one process can have it open. read decodes one record; it
// is called with all of them, because a file that is damaged may make it panic: then Open fails with
// statefile.ErrDamaged.
func Open(path, bucket string, read func(key, value []byte)) (*File, error) {
	f := &File{bucket: []byte(bucket)}
	db, err := statefile.Open(path, func(tx *bolt.Tx) error {
		if tx.Bucket(f.bucket) == nil {
			return nil
		}
		return f.each(tx, read)
	})
	if errors.Is(err, statefile.ErrDamaged) {
		return nil, fmt.Errorf("opening leases file %w: move it away to begin without leases", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening leases file %w", err)
	}
	f.DB = db
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(f.bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing leases file %s: %w", path, err), db.Close())
	}
	if f.Line, err = timeline.Open(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// Each calls read with each record. Keys and values are good until it returns.
func (f *File) Each(read func(key, value []byte)) error {
	return f.DB.View(func(tx *bolt.Tx) error { return f.each(tx, read) })
}

func (f *File) each(tx *bolt.Tx, read func(key, value []byte)) error {
	return tx.Bucket(f.bucket).ForEach(func(key, value []byte) error {
		read(key, value)
		return nil
	})
}

// Update changes records durably, with one fsync for all. An error of change undoes all.
func (f *File) Update(change func(*bolt.Bucket) error) error {
	return f.DB.Update(func(tx *bolt.Tx) error { return change(tx.Bucket(f.bucket)) })
}

// Close closes the file. Records stay in it.
func (f *File) Close() error { return f.DB.Close() }
