// The Store in a file of bbolt.

package device

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// ErrDamaged is returned by OpenStore for a file that gatewayd did not write.
var ErrDamaged = statefile.ErrDamaged

// bucket has all records by MAC address. Another format would be another bucket.
var bucket = []byte("gatewayd remembered devices 1")

// file is a Store in a file of bbolt.
type file struct{ db *bbolt.DB }

var _ Store = file{}

// OpenStore opens the file at path, and creates it when it is missing.
func OpenStore(path string) (Store, error) {
	db, err := statefile.Open(path, func(tx *bbolt.Tx) error {
		return eachRecord(tx, func(mac datapath.MAC, record []byte) error {
			_, err := decodeKnown(mac, record)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("open the remembered devices: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the remembered devices %s: %w", path, err), db.Close())
	}
	return file{db}, nil
}

func eachRecord(tx *bbolt.Tx, visit func(mac datapath.MAC, record []byte) error) error {
	b := tx.Bucket(bucket)
	if b == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: it is a bbolt file with a bucket %.40q", ErrDamaged, name)
		}
		return nil
	}
	return b.ForEach(func(key, record []byte) error {
		if len(key) != len(datapath.MAC{}) {
			return fmt.Errorf("%w: a MAC address of %d bytes", ErrDamaged, len(key))
		}
		return visit(datapath.MAC(key), record)
	})
}

// Devices implements Store.
func (f file) Devices(visit func(mac datapath.MAC, record []byte) error) error {
	return f.db.View(func(tx *bbolt.Tx) error { return eachRecord(tx, visit) })
}

// Write implements Store. Writes that come at the same time share one to the disk.
func (f file) Write(mac datapath.MAC, record []byte) error {
	return f.db.Batch(func(tx *bbolt.Tx) error {
		if record == nil {
			return tx.Bucket(bucket).Delete(mac[:])
		}
		return tx.Bucket(bucket).Put(mac[:], record)
	})
}

// Close implements Store.
func (f file) Close() error { return f.db.Close() }
