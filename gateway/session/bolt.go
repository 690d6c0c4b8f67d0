// The Store in a file of bbolt.

package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// Errors of Open, wrapped with the file's name and what to do.
var (
	ErrDamaged      = statefile.ErrDamaged
	ErrNewerVersion = errors.New("written by a newer gatewayd")
	ErrInUse        = statefile.ErrInUse
)

// The buckets of a file, and the key of the format version in the first.
var (
	aboutBucket   = []byte("gatewayd sessions")
	clientsBucket = []byte("clients") // identity, 4 bytes big endian, 8 beyond them → client
	eventsBucket  = []byte("events")  // number, 8 bytes big endian → event
	formatKey     = []byte("format")
)

// file is a Store in a file of bbolt.
type file struct {
	db         *bbolt.DB
	unreleased int  // records written since the pages of the file were left to the kernel; the writer's
	extended   bool // its format says that it has records with extras; the writer's
}

var _ Store = (*file)(nil)

// openFile opens the file at path, and creates it when it is missing.
func openFile(path string) (*file, error) {
	db, err := statefile.Open(path, readThrough)
	if err != nil {
		return nil, fmt.Errorf("open the session store: %w", advise(err))
	}
	f := &file{db: db}
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		if err = layOut(tx); err == nil {
			f.extended, err = settleFormat(tx)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the session store %s: %w", path, err), db.Close())
	}
	return f, nil
}

// Clients implements Store.
func (f *file) Clients(visit func(id datapath.ID, record []byte) error) error {
	defer f.releasePages()
	return f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(clientsBucket).ForEach(func(key, value []byte) error { return visit(idOf(key), value) })
	})
}

// Events implements Store.
func (f *file) Events(from uint64, visit func(number uint64, record []byte) (more bool, err error)) error {
	return f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(eventsBucket).Cursor()
		for key, value := c.Seek(eventKey(from)); key != nil; key, value = c.Next() {
			if len(key) != 8 {
				return fmt.Errorf("event %x: %w", key, ErrDamaged)
			}
			if more, err := visit(binary.BigEndian.Uint64(key), value); err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// touchedMost is how many records may be written before releasePages is called.
const touchedMost = 8192

// releasePages unmaps the pages of the file that the process has read so far (MADV_DONTNEED), which otherwise count as
// its memory. The kernel keeps them in its page cache while it has room, and maps them again when they are read.
func (f *file) releasePages() {
	f.unreleased = 0
	_ = f.db.View(func(tx *bbolt.Tx) error { // meanwhile the file is not mapped elsewhere
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, f.db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		return nil
	})
}

// Write implements Store.
func (f *file) Write(b Batch) (removed int, err error) {
	extends := !f.extended && b.extended()
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		if extends {
			err = putFormat(tx, FormatVersion)
		}
		if err == nil {
			removed, err = write(tx, b)
		}
		return err
	})
	f.extended = f.extended || extends && err == nil
	if f.unreleased += len(b.Clients) + len(b.Events) + len(b.Done); f.unreleased >= touchedMost {
		f.releasePages()
	}
	return removed, err
}

func write(tx *bbolt.Tx, b Batch) (removed int, err error) {
	clients, events := tx.Bucket(clientsBucket), tx.Bucket(eventsBucket)
	// Events are only appended, and most addresses are given in their order. Records grow little.
	events.FillPercent, clients.FillPercent = 1, 0.9
	for _, c := range b.Clients {
		if c.Data == nil {
			err = clients.Delete(clientKey(c.ID))
		} else {
			err = clients.Put(clientKey(c.ID), c.Data)
		}
		if err != nil {
			return 0, err
		}
	}
	for _, e := range b.Events {
		number, err := events.NextSequence()
		if err != nil {
			return 0, err
		}
		if err := events.Put(eventKey(number), e); err != nil {
			return 0, err
		}
	}
	for _, number := range b.Done {
		key := eventKey(number)
		if events.Get(key) == nil {
			continue
		}
		if err := events.Delete(key); err != nil {
			return 0, err
		}
		removed++
	}
	return removed, nil
}

// Close implements Store.
func (f *file) Close() error { return f.db.Close() }

func eventKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// Stored calls visit for each client in the file at path, without a table. It fails with ErrInUse while a table has the
// file, and with fs.ErrNotExist where there is none.
func Stored(path string, visit func(Session)) error {
	err := statefile.Read(path, func(tx *bbolt.Tx) error {
		if err := checkFormat(tx); err != nil || tx.Bucket(aboutBucket) == nil {
			return err
		}
		return eachClient(tx, func(s Session, _ reading) error { visit(s); return nil })
	})
	if err != nil {
		return fmt.Errorf("read the session store: %w", advise(err))
	}
	return nil
}

func readThrough(tx *bbolt.Tx) error {
	if err := checkFormat(tx); err != nil || tx.Bucket(aboutBucket) == nil {
		return err
	}
	err := eachClient(tx, func(Session, reading) error { return nil })
	return errors.Join(err, eachEvent(tx, func(Event) error { return nil }))
}

// advise adds a remedy to an error of opening.
func advise(err error) error {
	switch {
	case errors.Is(err, ErrNewerVersion):
		return fmt.Errorf("%w: use that one, or move the file away, and every client must log in again", err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w: move it away, and every client must log in again", err)
	}
	return err
}

// eachClient reads all clients, in the order of their identities.
func eachClient(tx *bbolt.Tx, visit func(Session, reading) error) error {
	return tx.Bucket(clientsBucket).ForEach(func(key, value []byte) error {
		s, read, err := clientOf(idOf(key), value)
		if err != nil {
			return err
		}
		return visit(s, read)
	})
}

// clientOf decodes the record of a client.
func clientOf(id datapath.ID, record []byte) (s Session, read reading, err error) {
	s, read, err = decodeClient(record)
	if err == nil && !s.Key.fits(id) {
		err = ErrDamaged
	}
	if err != nil {
		err = fmt.Errorf("client %v: %w", id, err)
	}
	return s, read, err
}

// eachEvent reads all events, the oldest first.
func eachEvent(tx *bbolt.Tx, visit func(Event) error) error {
	return tx.Bucket(eventsBucket).ForEach(func(key, value []byte) error {
		if len(key) != 8 {
			return fmt.Errorf("event %x: %w", key, ErrDamaged)
		}
		e, err := eventOf(binary.BigEndian.Uint64(key), value)
		if err != nil {
			return err
		}
		return visit(e)
	})
}

func eventOf(number uint64, record []byte) (Event, error) {
	e, err := decodeEvent(record)
	if err != nil {
		return e, fmt.Errorf("event %d: %w", number, err)
	}
	e.number = number
	return e, nil
}

// clientKey returns a client's key in the bucket. An identity that fits into four bytes is an IPv4 address, as all
// identities were in former versions.
func clientKey(id datapath.ID) []byte {
	if id <= math.MaxUint32 {
		return binary.BigEndian.AppendUint32(nil, uint32(id))
	}
	return binary.BigEndian.AppendUint64(nil, uint64(id))
}

// idOf returns the identity of the client with a key; 0 where the key is not a client's.
func idOf(key []byte) datapath.ID {
	switch len(key) {
	case 4:
		return datapath.ID(binary.BigEndian.Uint32(key))
	case 8:
		return datapath.ID(binary.BigEndian.Uint64(key))
	}
	return 0
}
