// The journal of a shared book: ends of sessions that are to be written to the store.

package voucher

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/allowance"
)

// keptEnd is the end of a session of a voucher.
type keptEnd struct {
	Session string        `json:"-"`
	Voucher ID            `json:"v"`
	Online  time.Duration `json:"t,omitempty"`
	Bytes   uint64        `json:"b,omitempty"`
	At      int64         `json:"a"`           // when it was kept: nanoseconds since 1970 of the wall clock
	Settled bool          `json:"s,omitempty"` // it is in the store
}

func (e keptEnd) end() allowance.End {
	return allowance.End{Session: e.Session, Online: e.Online, Bytes: e.Bytes}
}

// keptFor is how long an end is kept that is in the store: that may lose its last changes when another server takes
// over.
const keptFor = 10 * time.Minute

// writeShared writes what a shared book's file has besides, which others do not have.
func writeShared(tx *bbolt.Tx, c Change) error {
	ends, versions := tx.Bucket(endsBucket), tx.Bucket(versionsBucket)
	if ends == nil || versions == nil {
		return nil
	}
	for _, e := range c.kept {
		if err := ends.Put([]byte(e.Session), encode(e)); err != nil {
			return err
		}
	}
	for _, id := range c.settled {
		e, kept := endIn(ends, id)
		if !kept {
			continue
		}
		e.Settled = true
		if err := ends.Put([]byte(id), encode(e)); err != nil {
			return err
		}
	}
	put := func(key string, version uint64) error {
		if version == 0 {
			return nil
		}
		return versions.Put([]byte(key), binary.BigEndian.AppendUint64(nil, version))
	}
	for _, r := range c.Vouchers {
		if err := put(voucherKey(r.ID), r.version); err != nil {
			return err
		}
	}
	for _, r := range c.Batches {
		one, err := decodeBatch(r.Is)
		if err == nil {
			err = put(batchKey(one.Name), r.version)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undecided returns a change without those records of a store that the file has as they are there, or later.
func undecided(tx *bbolt.Tx, c Change) Change {
	c.Vouchers = slices.DeleteFunc(slices.Clone(c.Vouchers), func(r Record) bool {
		return r.version > 0 && versionIn(tx, voucherKey(r.ID)) >= r.version
	})
	c.Batches = slices.DeleteFunc(slices.Clone(c.Batches), func(r Record) bool {
		one, err := decodeBatch(r.Is)
		return err == nil && r.version > 0 && versionIn(tx, batchKey(one.Name)) >= r.version
	})
	return c
}

// endIn reads the end of a session.
func endIn(ends *bbolt.Bucket, session string) (e keptEnd, kept bool) {
	data := ends.Get([]byte(session))
	kept = data != nil && json.Unmarshal(data, &e) == nil
	e.Session = session
	return e, kept
}

// keep keeps an end until it is in the store, and returns when that will outlast a crash.
func (s *shared) keep(id ID, e allowance.End) error {
	return s.file.Write(Change{kept: []keptEnd{{Session: e.Session, Voucher: id, Online: e.Online, Bytes: e.Bytes,
		At: time.Now().UnixNano()}}})
}

// keptOf returns the end of a session, if it is kept.
func (s *shared) keptOf(session string) (e keptEnd, kept bool) {
	_ = s.db.View(func(tx *bbolt.Tx) error { e, kept = endIn(tx.Bucket(endsBucket), session); return nil })
	return e, kept
}

// unsettled returns the ends that are not in the store.
func (s *shared) unsettled() (all []keptEnd, err error) {
	return all, s.db.View(func(tx *bbolt.Tx) error {
		ends := tx.Bucket(endsBucket)
		return ends.ForEach(func(key, _ []byte) error {
			if e, kept := endIn(ends, string(key)); kept && !e.Settled {
				all = append(all, e)
			}
			return nil
		})
	})
}

// prune forgets ends that have been in the store for long.
func (s *shared) prune() error {
	before := time.Now().Add(-keptFor).UnixNano()
	return s.db.Update(func(tx *bbolt.Tx) error {
		ends := tx.Bucket(endsBucket)
		var over []string
		err := ends.ForEach(func(key, _ []byte) error {
			if e, kept := endIn(ends, string(key)); !kept || e.Settled && e.At < before {
				over = append(over, string(key))
			}
			return nil
		})
		for _, session := range over {
			if err == nil {
				err = ends.Delete([]byte(session))
			}
		}
		return err
	})
}
