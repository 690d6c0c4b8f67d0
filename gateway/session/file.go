package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// FormatVersion is the format of the files this package writes.
const FormatVersion = 1

// Errors of Open, wrapped with the file's name and what to do.
var (
	ErrNotStore     = errors.New("not a session store")
	ErrNewerVersion = errors.New("written by a newer gatewayd")
	ErrInUse        = errors.New("in use by another process")
)

// The buckets of a file, and the key of the format version in the first.
var (
	aboutBucket   = []byte("gatewayd sessions")
	clientsBucket = []byte("clients") // address, 4 bytes → client
	eventsBucket  = []byte("events")  // number, 8 bytes big endian → event
	formatKey     = []byte("format")
)

// headSize is the size of a file's two bbolt meta pages; bbolt's errors for shorter
// files are not specific.
var headSize = int64(2 * os.Getpagesize())

// lockWait is how long to wait for a gatewayd that is ending to unlock the file.
const lockWait = time.Second

// openFile opens the file at path, and creates it when it is missing. The file is read
// completely before it is used, so that a truncated or overwritten file is an error
// and not a crash.
func openFile(path string) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open the session store: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open the session store: %s is not a file: name another", path)
	case info.Size() > 0: // an empty file is the trace of a crash while creating it
		if err := inspect(path, info.Size()); err != nil {
			return nil, fmt.Errorf("open the session store %s: %w", path, advise(err))
		}
	}
	db, err := openBolt(path, false)
	if err != nil {
		return nil, fmt.Errorf("open the session store %s: %w", path, advise(err))
	}
	if err := errors.Join(db.Update(layOut), syncDir(filepath.Dir(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the session store %s: %w", path, err), db.Close())
	}
	return db, nil
}

// openBolt turns bbolt's panics on damaged files into errors, and releases the lock
// that bbolt then still holds.
func openBolt(path string, readOnly bool) (db *bbolt.DB, err error) {
	var file *os.File
	options := &bbolt.Options{ReadOnly: readOnly, Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoStatistics: true}
	options.OpenFile = func(name string, flag int, mode os.FileMode) (opened *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	if errors.Is(err, errDamaged) {
		// Closing is not enough: the file is still mapped.
		err = errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
	}
	return db, err
}

// inspect reads the whole file. It opens the file read-only, because bbolt then reads
// only the head until the needed length is known: access to a mapping beyond the end
// of the file is a fatal signal.
func inspect(path string, size int64) error {
	if size < headSize {
		return fmt.Errorf("%w, or one that was cut short: it has %d bytes", ErrNotStore, size)
	}
	db, err := openBolt(path, true)
	if err != nil {
		return err
	}
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error { return readThrough(tx, path) })
	})
	return errors.Join(err, db.Close())
}

func readThrough(tx *bbolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if tx.Size() > info.Size() {
		return fmt.Errorf("%w: only %d bytes of %d are there", errDamaged, info.Size(), tx.Size())
	}
	if err := checkFormat(tx); err != nil || tx.Bucket(aboutBucket) == nil {
		return err
	}
	err = eachClient(tx, func(Session, datapath.Counters) error { return nil })
	return errors.Join(err, eachEvent(tx, func(Event) error { return nil }))
}

// guard runs a function that reads a possibly damaged file. It turns panics into
// errors, also those of memory faults, because bbolt does not check what it maps.
func guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return read()
}

// checkFormat reports why a file is not one of ours. A file without buckets is valid:
// gatewayd died before it created them.
func checkFormat(tx *bbolt.Tx) error {
	about := tx.Bucket(aboutBucket)
	if about == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: it is a bbolt file with a bucket %.40q", ErrNotStore, name)
		}
		return nil
	}
	format := about.Get(formatKey)
	if len(format) != 8 || tx.Bucket(clientsBucket) == nil || tx.Bucket(eventsBucket) == nil {
		return errDamaged
	}
	if v := binary.BigEndian.Uint64(format); v > FormatVersion {
		return fmt.Errorf("format %d, known up to %d: %w", v, FormatVersion, ErrNewerVersion)
	} else if v < FormatVersion {
		return fmt.Errorf("%w: format %d", errDamaged, v)
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
	return tx.Bucket(aboutBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, FormatVersion))
}

// advise adds to an error of opening what it means and what to do.
func advise(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: is another gatewayd running?", ErrInUse)
	case errors.Is(err, ErrNewerVersion):
		return fmt.Errorf("%w: use that one, or move the file away, and every client must log in again", err)
	case errors.Is(err, errDamaged):
		return fmt.Errorf("damaged (%w): move it away, and every client must log in again", err)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return fmt.Errorf("%w (%w), or one whose head is damaged: move it away", ErrNotStore, err)
	case errors.Is(err, ErrNotStore):
		return fmt.Errorf("%w: name another file, or move it away", err)
	}
	return err
}

// eachClient reads all clients, in the order of their addresses.
func eachClient(tx *bbolt.Tx, visit func(Session, datapath.Counters) error) error {
	return tx.Bucket(clientsBucket).ForEach(func(key, value []byte) error {
		s, read, err := decodeClient(value)
		if err == nil && s.Addr != addrOf(key) {
			err = errDamaged
		}
		if err != nil {
			return fmt.Errorf("client %x: %w", key, err)
		}
		return visit(s, read)
	})
}

// eachEvent reads all events, the oldest first.
func eachEvent(tx *bbolt.Tx, visit func(Event) error) error {
	return tx.Bucket(eventsBucket).ForEach(func(key, value []byte) error {
		e, err := eventOf(key, value)
		if err != nil {
			return err
		}
		return visit(e)
	})
}

func eventOf(key, value []byte) (Event, error) {
	e, err := decodeEvent(value)
	if err != nil || len(key) != 8 {
		return e, fmt.Errorf("event %x: %w", key, errDamaged)
	}
	e.number = binary.BigEndian.Uint64(key)
	return e, nil
}

// addrOf returns the address of a client's key, or the zero Addr if it is none.
func addrOf(key []byte) netip.Addr {
	addr, _ := netip.AddrFromSlice(key)
	return addr
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
