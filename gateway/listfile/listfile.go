// Package listfile reads files in which people write an entry a line, and reads them again when they have changed.
//
// Blank lines and lines that begin with # are ignored. A file that cannot be read, or has mistakes, changes nothing:
// what it said before stays, and the log names each mistake with its line. An entry may be there twice where both make
// one (Merger).
package listfile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/ticker"
	"github.com/gateweigh/gateweigh/textfile"
)

// Bounds of a file.
const (
	MaxFile     = 16 << 20 // bytes
	maxLine     = 4096     // bytes
	MaxProblems = 20       // most problems that an error lists
)

// Kind is a kind of file: what it says of itself in messages, and who may have access to it.
type Kind struct {
	Stays   string      // "local accounts stay as they were read before"
	Unread  string      // the same where none was read before: "there are no local accounts"
	Read    string      // "local accounts read"
	Unit    string      // of the number of entries in the log: "accounts"
	One     string      // an entry, before its key: "account"
	Matter  string      // what a stranger could change: "the accounts"
	Refused fs.FileMode // permissions that nobody may have
	Remedy  string      // what to do about them: "others may read it or the group may write it; chmod 640"
	Missing string      // what to do where there is no file: "write an account a line"; empty: only that
}

// Merger is an entry of which a file may have several with one key: Merge returns the one that they make.
type Merger[E any] interface{ Merge(E) E }

// File is a file whose lines make an index of entries by key. Its methods may be called from several goroutines.
type File[E any] struct {
	kind Kind
	path string
	log  *slog.Logger
	line func(string) (key string, entry E, err error)

	mu    sync.Mutex
	byKey map[string]E // guarded by mu; a map is never changed once it is stored here
	// stamp is the stamp of the file that was last read, and since when it was first seen. settled means that a later
	// change must have another stamp. Guarded by mu.
	stamp   stamp
	since   time.Time
	settled bool
	read    bool               // some version of the file could be read; guarded by mu
	problem error              // why the present file could not be read, so that byKey is older; guarded by mu
	changed func(map[string]E) // see OnChange; guarded by mu
}

// Open reads a file. line reads a line that is neither empty nor a comment, without space around it; its errors must
// not quote secrets. Errors of Open name the file and the line.
func Open[E any](path string, kind Kind, log *slog.Logger, line func(string) (string, E, error)) (*File[E], error) {
	f := &File[E]{kind: kind, path: path, log: log, line: line, since: time.Now(), read: true}
	var err error
	f.byKey, f.stamp, err = f.load()
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Begin is Open for a file without which a daemon goes on: one that cannot be read, or has mistakes, has no entries
// until it is mended. The log and Problem say so.
func Begin[E any](path string, kind Kind, log *slog.Logger, line func(string) (string, E, error)) *File[E] {
	f := &File[E]{kind: kind, path: path, log: log, line: line, since: time.Now()}
	var err error
	if f.byKey, f.stamp, err = f.load(); err != nil {
		f.problem = err
		log.Error(kind.Unread, "error", err)
	}
	f.read = err == nil
	return f
}

// OnChange has f called with the entries of each later version of the file, while the file is locked. It must be called
// before Follow.
func (f *File[E]) OnChange(changed func(map[string]E)) { f.changed = changed }

// Problem is why the present file could not be read, so that the entries are older; nil: it was read.
func (f *File[E]) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// Read reports whether some version of the file could be read, the present one included. Without one there are no
// entries.
func (f *File[E]) Read() bool {
	f.Entries()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

// followEvery is the interval at which Follow checks the file.
const followEvery = time.Second

// Follow reads the file whenever it has changed, until ctx ends. So the log names a mistake in the file at once.
func (f *File[E]) Follow(ctx context.Context) error {
	again := ticker.Every(followEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			f.Entries()
		}
	}
}

// Entries returns the entries of the present file, or if that cannot be read, those of the last readable one. The
// caller must not change them.
func (f *File[E]) Entries() map[string]E {
	f.mu.Lock()
	defer f.mu.Unlock()
	if info, err := os.Stat(f.path); err == nil && stampOf(info) == f.stamp && f.settled {
		return f.byKey
	}
	byKey, seen, err := f.load()
	if seen != f.stamp {
		f.since = time.Now()
	}
	// A change within the same tick of the file system's clock has the same stamp, so a file that changed less than a
	// second ago is read again. One of which the change is in the future, because the clock was set back, was seen first
	// more than a second ago.
	f.settled = time.Since(seen.changed()) > time.Second || time.Since(f.since) > time.Second
	f.problem = err
	switch {
	case err != nil:
		if seen != f.stamp { // logged once for each state of the file
			f.log.Error(f.consequence(), "error", err)
		}
	default:
		if seen != f.stamp {
			f.log.Info(f.kind.Read, "file", f.path, f.kind.Unit, len(byKey))
		}
		f.byKey, f.read = byKey, true
		if f.changed != nil && seen != f.stamp {
			f.changed(byKey)
		}
	}
	f.stamp = seen
	return f.byKey
}

// consequence is what follows from a file that cannot be read. f.mu is held.
func (f *File[E]) consequence() string {
	if f.read {
		return f.kind.Stays
	}
	return f.kind.Unread
}

// stamp identifies a version of the file: its device, inode, size and times. The zero value stands for no file.
type stamp struct {
	dev, inode     uint64
	size           int64
	modified, meta syscall.Timespec
}

func stampOf(info fs.FileInfo) stamp {
	st := info.Sys().(*syscall.Stat_t) // always, on Linux
	return stamp{dev: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim, meta: st.Ctim}
}

// changed returns the time of the last change of the file or its permissions. Programs cannot set it, unlike the
// modification time.
func (s stamp) changed() time.Time { return time.Unix(s.meta.Unix()) }

// load reads the file. The stamp is that of the file that it read, also with an error; without a file it is zero.
func (f *File[E]) load() (map[string]E, stamp, error) {
	path := f.path
	// O_NONBLOCK: opening a pipe would block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) && f.kind.Missing != "" {
		return nil, stamp{}, fmt.Errorf("%w: %s", err, f.kind.Missing)
	}
	if err != nil {
		return nil, stamp{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	seen := stampOf(info)
	owner, strange := textfile.Stranger(info)
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, seen, fmt.Errorf("%s: is no regular file", path)
	case mode.Perm()&f.kind.Refused != 0:
		return nil, seen, fmt.Errorf("%s: has mode %#o: %s %s", path, mode.Perm(), f.kind.Remedy, path)
	case strange:
		return nil, seen,
			fmt.Errorf("%s: belongs to user %d, who could change %s: chown root %s", path, owner, f.kind.Matter, path)
	case info.Size() > MaxFile:
		return nil, seen, fmt.Errorf("%s: has %d bytes: %d at most", path, info.Size(), MaxFile)
	}
	byKey, err := Parse(path, f.kind, io.LimitReader(file, MaxFile), f.line)
	return byKey, seen, err
}

// Parse reads entries; name is the file's, for errors. It reports all problems, up to MaxProblems.
func Parse[E any](name string, kind Kind, r io.Reader, line func(string) (string, E, error)) (map[string]E, error) {
	byKey := map[string]E{}
	var problems []error
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	n := 0
	for lines.Scan() && len(problems) < MaxProblems {
		n++
		text := strings.TrimSpace(textfile.Trim(lines.Text()))
		if text == "" || text[0] == '#' {
			continue
		}
		key, entry, err := line(text)
		if !utf8.ValidString(text) {
			err = errors.New("is not UTF-8: save the file as UTF-8")
		}
		if before, twice := byKey[key]; err == nil && twice {
			if m, may := any(before).(Merger[E]); may {
				entry = m.Merge(entry)
			} else {
				err = fmt.Errorf("%s %q is there twice", kind.One, key)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", name, n, err))
			continue
		}
		byKey[key] = entry
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		problems = append(problems, fmt.Errorf("%s:%d: is longer than %d bytes", name, n+1, maxLine))
	} else if err != nil {
		problems = append(problems, fmt.Errorf("reading %s: %w", name, err))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return byKey, nil
}
