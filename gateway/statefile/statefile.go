// Package statefile opens the bbolt files in which the gateway keeps its state, and replaces its other files. A bbolt
// file is read completely before it is used, so that a truncated or overwritten one is an error and not a crash: bbolt
// maps files and does not check what it reads.
package statefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Errors of Open, wrapped with the file's name.
var (
	ErrDamaged = errors.New("not what gatewayd writes")
	ErrInUse   = errors.New("in use by another process: is a gateway running already?")
)

// headSize is the size of a file's two bbolt meta pages; bbolt's errors for shorter files are not specific.
var headSize = int64(2 * os.Getpagesize())

// lockWait is how long to wait for a gatewayd that is ending to unlock the file.
const lockWait = time.Second

// Open opens the file at path, and creates it when it is missing. check reads the whole content and reports what is
// wrong with it; it is called where there is any, in a read-only transaction in which it may panic.
func Open(path string, check func(*bbolt.Tx) error) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file: name another", path)
	case info.Size() > 0: // an empty file is the trace of a crash while creating it
		if err := inspect(path, info.Size(), check); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	db, err := open(path, false)
	if err == nil {
		if err = syncDir(filepath.Dir(path)); err != nil {
			db.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return db, nil
}

// open turns bbolt's panics on damaged files into errors, and releases the lock that bbolt then still holds.
func open(path string, readOnly bool) (db *bbolt.DB, err error) {
	var file *os.File
	options := &bbolt.Options{
		ReadOnly: readOnly, Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoStatistics: true}
	options.OpenFile = func(name string, flag int, mode os.FileMode) (opened *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	switch {
	case errors.Is(err, ErrDamaged):
		// Closing is not enough: the file is still mapped.
		return nil, errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, ErrInUse
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum):
		return nil, fmt.Errorf("%w: its head: %w", ErrDamaged, err)
	}
	return db, err
}

// Read reads the file at path in a transaction in which read may panic. An empty file is not read. It fails with
// ErrInUse while another process has the file open for writing.
func Read(path string, read func(*bbolt.Tx) error) error {
	info, err := os.Stat(path)
	if err == nil && info.Size() > 0 {
		err = inspect(path, info.Size(), read)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// inspect opens the file read-only, because bbolt then reads only the head until the needed length is known: access to
// a mapping beyond the end of the file is a fatal signal.
func inspect(path string, size int64, check func(*bbolt.Tx) error) error {
	if size < headSize {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, size)
	}
	db, err := open(path, true)
	if err != nil {
		return err
	}
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if tx.Size() > info.Size() {
				return fmt.Errorf("%w: only %d bytes of %d are there", ErrDamaged, info.Size(), tx.Size())
			}
			return check(tx)
		})
	})
	return errors.Join(err, db.Close())
}

// guard runs a function that reads a possibly damaged file. It turns panics into errors, also those of memory faults.
func guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return read()
}

// SetAside renames a file, so that it can be looked at and a new one can take its place, and returns its new name.
func SetAside(path string) (string, error) {
	for n := 1; ; n++ {
		movedTo := fmt.Sprintf("%s.damaged-%d", path, n)
		if _, err := os.Lstat(movedTo); errors.Is(err, fs.ErrNotExist) {
			return movedTo, errors.Join(os.Rename(path, movedTo), syncDir(filepath.Dir(path)))
		} else if err != nil {
			return "", err
		}
	}
}

// Replace writes a file at path with the content that fill writes. It is on the disk when Replace returns: after a
// power cut the file has the former content or the new one. Calls for one path must not overlap.
func Replace(path string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<18)
	err = fill(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
