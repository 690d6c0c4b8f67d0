package session

import (
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// FormatVersion is the newest format of the files this package writes. A file has it while a record in it has an extra
// (hasExtra), which former versions would take for damage: they then say that a newer version wrote the file. Otherwise
// it has plainFormat, which they read.
const (
	FormatVersion = 2
	plainFormat   = 1
)

// FormatOf returns the oldest format that has a client's record (Record).
func FormatOf(record []byte) byte {
	if clientHasExtra(record) {
		return FormatVersion
	}
	return plainFormat
}

// KnowsFormat reports whether this version reads records of a format.
func KnowsFormat(format byte) bool { return format >= plainFormat && format <= FormatVersion }

// checkFormat reports why a file is not one of ours. A file without buckets is valid: gatewayd died before it created
// them.
func checkFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket(aboutBucket)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: it is a bbolt file with a bucket %.40q", ErrDamaged, name)
		}
		return nil
	}
	format := meta.Get(formatKey)
	if len(format) != 8 || tx.Bucket(clientsBucket) == nil || tx.Bucket(eventsBucket) == nil {
		return ErrDamaged
	}
	if v := binary.BigEndian.Uint64(format); v > FormatVersion {
		return fmt.Errorf("format %d, known up to %d: %w", v, FormatVersion, ErrNewerVersion)
	} else if v < plainFormat {
		return fmt.Errorf("%w: format %d", ErrDamaged, v)
	}
	return nil
}

// layOut creates missing buckets.
func layOut(tx *bbolt.Tx) error {
	if tx.Bucket(aboutBucket) != nil {
		return checkFormat(tx)
	}
	for _, name := range [][]byte{aboutBucket, clientsBucket, eventsBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return putFormat(tx, plainFormat)
}

func putFormat(tx *bbolt.Tx, version uint64) error {
	return tx.Bucket(aboutBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, version))
}

// settleFormat gives a file the oldest format that its records have, and reports whether some have an extra.
func settleFormat(tx *bbolt.Tx) (extended bool, err error) {
	look := func(of func([]byte) bool) func(_, record []byte) error {
		return func(_, record []byte) error { extended = extended || of(record); return nil }
	}
	if err := tx.Bucket(clientsBucket).ForEach(look(clientHasExtra)); err != nil {
		return false, err
	}
	if err := tx.Bucket(eventsBucket).ForEach(look(eventHasExtra)); err != nil {
		return false, err
	}
	version := uint64(plainFormat)
	if extended {
		version = FormatVersion
	}
	if binary.BigEndian.Uint64(tx.Bucket(aboutBucket).Get(formatKey)) == version {
		return extended, nil
	}
	return extended, putFormat(tx, version)
}

// extended reports whether a record of the batch has an extra.
func (b *Batch) extended() bool {
	return slices.ContainsFunc(b.Clients, func(r Record) bool { return clientHasExtra(r.Data) }) ||
		slices.ContainsFunc(b.Events, eventHasExtra)
}

func clientHasExtra(record []byte) bool { return sessionHasExtra(&decoder{rest: record}) }

func eventHasExtra(record []byte) bool {
	d := &decoder{rest: record}
	d.bytes(2) // kind and cause
	d.time()
	return sessionHasExtra(d)
}

// sessionHasExtra reports whether the session that follows has an extra.
func sessionHasExtra(d *decoder) bool {
	d.bytes(6)
	d.text()
	_, extra := d.state()
	return extra
}
