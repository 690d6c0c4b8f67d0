// The Store in a file of bbolt.

package voucher

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// The buckets of a file, and the key of the format version in the first.
var (
	aboutBucket    = []byte("gatewayd vouchers")
	batchesBucket  = []byte("batches")  // ID of the first voucher, 8 bytes big endian → batch
	vouchersBucket = []byte("vouchers") // ID → voucher
	codesBucket    = []byte("codes")    // code → ID
	formatKey      = []byte("format")
)

// formatVersion is the format that this version writes and reads.
const formatVersion = 1

// ErrNewerVersion means that a file is of a newer gatewayd.
var ErrNewerVersion = errors.New("written by a newer gatewayd: install that again, or move the file away")

// file is a Store in a file of bbolt. Changes that come while another is being written are written together.
type file struct {
	db *bbolt.DB

	mu      sync.Mutex // guards what follows
	waiting []*waiting
	writing bool
}

// waiting is a change that waits to be written.
type waiting struct {
	Change
	done chan error // has room for the one answer
}

var _ Store = (*file)(nil)

// OpenFile opens the file at path, and creates it when it is missing.
// It refuses a file that others than its owner, this process's user, may read or write: it has the codes.
func OpenFile(path string) (Store, error) {
	if err := checkSecret(path); err != nil {
		return nil, fmt.Errorf("open the vouchers: %w", err)
	}
	db, err := statefile.Open(path, checkFile)
	if err != nil {
		return nil, fmt.Errorf("open the vouchers: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(aboutBucket) != nil {
			return checkFormat(tx)
		}
		for _, name := range [][]byte{aboutBucket, batchesBucket, vouchersBucket, codesBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(aboutBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion))
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the vouchers' file %s: %w", path, err), db.Close())
	}
	return &file{db: db}, nil
}

// checkSecret refuses a file whose codes others may know or change.
func checkSecret(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := os.Geteuid()
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(s.Uid)
	}
	switch {
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s: others may read or write the codes (mode %04o): chmod 600 %[1]s", path, info.Mode().Perm())
	case owner != os.Geteuid() && os.Geteuid() == 0:
		return fmt.Errorf("%s: it belongs to user %d, who may read and write the codes: chown root %[1]s", path, owner)
	}
	return nil
}

// checkFormat reports why a file is not one of ours. A file without buckets is valid: gatewayd died before it created
// them.
func checkFormat(tx *bbolt.Tx) error {
	about := tx.Bucket(aboutBucket)
	if about == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: it is a bbolt file with a bucket %.40q", statefile.ErrDamaged, name)
		}
		return nil
	}
	format := about.Get(formatKey)
	if len(format) != 8 || tx.Bucket(batchesBucket) == nil || tx.Bucket(vouchersBucket) == nil ||
		tx.Bucket(codesBucket) == nil {
		return statefile.ErrDamaged
	}
	if v := binary.BigEndian.Uint64(format); v != formatVersion {
		return fmt.Errorf("format %d, known is %d: %w", v, formatVersion, ErrNewerVersion)
	}
	return nil
}

// checkFile reads all of a file, as statefile.Open asks for, and compares codes with vouchers.
func checkFile(tx *bbolt.Tx) error {
	if err := checkFormat(tx); err != nil || tx.Bucket(aboutBucket) == nil {
		return err
	}
	codes, found := tx.Bucket(codesBucket), 0
	err := tx.Bucket(vouchersBucket).ForEach(func(key, value []byte) error {
		v, err := decodeRecord(value)
		if err == nil && (len(key) != 8 || !bytes.Equal(codes.Get([]byte(v.Code)), key)) {
			err = errors.New("its code is not its own")
		}
		if err != nil {
			return fmt.Errorf("%w: voucher %x: %w", statefile.ErrDamaged, key, err)
		}
		found++
		return nil
	})
	if err == nil {
		err = codes.ForEach(func(_, _ []byte) error { found--; return nil })
	}
	if err == nil && found != 0 {
		err = fmt.Errorf("%w: codes without vouchers", statefile.ErrDamaged)
	}
	if err != nil {
		return err
	}
	return tx.Bucket(batchesBucket).ForEach(func(key, value []byte) error {
		if _, err := decodeBatch(value); err != nil || len(key) != 8 {
			return fmt.Errorf("%w: batch %x: %w", statefile.ErrDamaged, key, err)
		}
		return nil
	})
}

func keyOf(id ID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// Batches implements Store.
func (f *file) Batches(visit func(first ID, record []byte) error) error {
	return f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(batchesBucket).ForEach(func(key, value []byte) error {
			return visit(ID(binary.BigEndian.Uint64(key)), value)
		})
	})
}

// Vouchers implements Store.
func (f *file) Vouchers(from ID, visit func(id ID, record []byte) (more bool, err error)) error {
	return f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(vouchersBucket).Cursor()
		for key, value := c.Seek(keyOf(from)); key != nil; key, value = c.Next() {
			if more, err := visit(ID(binary.BigEndian.Uint64(key)), value); err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// Find implements Store.
func (f *file) Find(code Code) (id ID, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		if key := tx.Bucket(codesBucket).Get([]byte(code)); len(key) == 8 {
			id = ID(binary.BigEndian.Uint64(key))
		}
		return nil
	})
	return id, err
}

// Write implements Store. The first of the callers writes the changes of all that come meanwhile.
func (f *file) Write(c Change) error {
	mine := &waiting{c, make(chan error, 1)}
	f.mu.Lock()
	f.waiting = append(f.waiting, mine)
	if f.writing {
		f.mu.Unlock()
		return <-mine.done
	}
	f.writing = true
	f.mu.Unlock()
	for {
		f.mu.Lock()
		all := f.waiting
		f.waiting, f.writing = nil, len(all) > 0
		f.mu.Unlock()
		if len(all) == 0 {
			return <-mine.done
		}
		f.writeAll(all)
	}
}

// writeAll writes changes together, and those that do not fit the records not at all.
func (f *file) writeAll(all []*waiting) {
	refused := make([]error, len(all))
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for i, w := range all {
			c := undecided(tx, w.Change)
			if refused[i] = check(tx, c); refused[i] != nil {
				continue
			}
			if err := write(tx, c); err != nil {
				return err
			}
		}
		return nil
	})
	for i, w := range all {
		if err != nil {
			w.done <- fmt.Errorf("write the vouchers: %w", err)
		} else {
			w.done <- refused[i]
		}
	}
}

// check compares the records with what a change says that they were, but for those that are in a store.
func check(tx *bbolt.Tx, c Change) error {
	for _, r := range c.Batches {
		if r.version == 0 && tx.Bucket(batchesBucket).Get(keyOf(r.ID)) != nil {
			return ErrChanged
		}
	}
	vouchers, codes := tx.Bucket(vouchersBucket), tx.Bucket(codesBucket)
	for _, r := range c.Vouchers {
		if r.version > 0 {
			continue // the store has decided
		}
		if !bytes.Equal(vouchers.Get(keyOf(r.ID)), r.Was) || r.Code != "" && codes.Get([]byte(r.Code)) != nil {
			return ErrChanged
		}
	}
	return nil
}

func write(tx *bbolt.Tx, c Change) error {
	batches, vouchers, codes := tx.Bucket(batchesBucket), tx.Bucket(vouchersBucket), tx.Bucket(codesBucket)
	vouchers.FillPercent = 0.7 // they are appended, and grow by their sessions
	for _, r := range c.Batches {
		if err := batches.Put(keyOf(r.ID), r.Is); err != nil {
			return err
		}
	}
	for _, r := range c.Vouchers {
		if err := vouchers.Put(keyOf(r.ID), r.Is); err != nil {
			return err
		}
	}
	// In the order of codes: bbolt moves what is behind an insertion, until the end of the transaction.
	byCode := slices.DeleteFunc(slices.Clone(c.Vouchers), func(r Record) bool { return r.Code == "" })
	slices.SortFunc(byCode, func(a, b Record) int { return cmp.Compare(a.Code, b.Code) })
	for _, r := range byCode {
		if err := codes.Put([]byte(r.Code), keyOf(r.ID)); err != nil {
			return err
		}
	}
	return writeShared(tx, c)
}

// Close implements Store.
func (f *file) Close() error { return f.db.Close() }

// ErrDamaged means that a file is damaged.
var ErrDamaged = statefile.ErrDamaged
