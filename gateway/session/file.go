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

// headSize are the bytes of a file's two heads, without which bbolt has no word
// for what is wrong.
var headSize = int64(2 * os.Getpagesize())

// lockWait is how long a file may stay locked by a gatewayd that is just ending.
const lockWait = time.Second

// openFile opens the file at path, and creates it when there is none. A file
// that was cut short or overwritten is an error, not a crash: it is read from
// end to end before it is trusted.
func openFile(path string) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open the session store: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open the session store: %s is not a file: name another", path)
	case info.Size() > 0: // an empty one was being created when its gatewayd died
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

// openBolt turns the panics of a library that trusts its files into errors, and
// lets go of the lock the library then still has.
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
		// Closing alone would not do: the file is still mapped.
		err = errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
	}
	return db, err
}

// inspect reads all of a file. It opens it for reading only, for then bbolt
// looks at nothing but the head until it is known how long the file must be:
// what is mapped beyond a file's end kills who touches it.
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

// guard runs a function that reads a file which may be damaged. Panics become
// errors, also those of memory faults: the library trusts what it has mapped.
func guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return read()
}

// checkFormat reports why a file is none of ours. One without any bucket is:
// its gatewayd died before it had laid it out.
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

// layOut makes the buckets that are missing.
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

// advise says what an error of opening means, and what to do.
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

// addrOf is the address of a client's key; the zero one when it is none.
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
