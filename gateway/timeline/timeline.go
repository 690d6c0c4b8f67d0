// Package timeline gives the times in gatewayd's files, so that setting the wall clock changes no session and no lease.
// A machine without a battery starts in 1970 and learns the time later. A session that began before that must not
// become 56 years long, and a lease must not end.
//
// Each state folder has a time line (Line). It advances with the monotonic clock while the machine runs, whatever the
// wall clock is set to. Files hold times of this line; where the clock was never set they equal the wall clock's.
//
//	                      boot          the clock is set            kill -9, start      reboot
//	wall clock    1970 ────────▶ 1970     ───▶ 2026 ────────────────▶ 2026 ─────────────▶ 2026
//	line          1970 ────────▶ 1970 ───────────────────────────────▶ 1970 ────────────▶ 1970, and the
//	                                                                                     difference is known
package timeline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// Name is the file in which a folder's line is kept. FormerName is the file's former version, which is read if the file
// is damaged.
const (
	Name       = "clock"
	FormerName = "clock.old"
)

// writing is held while a line's file is written: a process may have several lines of one folder. Other processes do
// not write it.
var writing sync.Mutex

// bootID identifies the present boot of the machine.
const bootID = "/proc/sys/kernel/random/boot_id"

// Line is the time line of a folder. Its methods may be called from several goroutines.
type Line struct {
	path   string
	boot   string
	opened time.Time // with its monotonic reading
	start  time.Time // the line's time at opened

	mu     sync.Mutex
	inFile state // guarded by mu: in the file
}

// state is the contents of a line's file: one reading of the line beside the machine's clocks.
type state struct {
	boot      string        // the boot of the machine, as bootID has it
	monotonic time.Duration // the kernel's monotonic clock
	lineTime  int64         // the line's time then, nanoseconds since 1970
	ahead     time.Duration // how far the wall clock was ahead of the line
	latest    int64         // no later line begins before this time, nanoseconds since 1970
}

// clockReading and monotonic are the same instant: as Go reads the monotonic clock, and in the kernel's numbers. They
// convert one into the other, because Go's readings do not tell their origin.
var (
	clockReading = time.Now()
	monotonic    = kernelMonotonic()
)

func kernelMonotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return time.Duration(now.Nano())
}

// Open takes up the line of a folder, or begins one with the wall clock's time.
func Open(folder string) (*Line, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("reading which boot of the machine this is: %w", err)
	}
	l := &Line{path: filepath.Join(folder, Name), boot: strings.TrimSpace(string(boot)), opened: time.Now()}
	before, err := read(l.path)
	if err == nil && before.boot == "" {
		before, err = read(filepath.Join(folder, FormerName))
	}
	if err != nil {
		return nil, err
	}
	since := monotonic + l.opened.Sub(clockReading)
	switch {
	case before.boot == "":
		l.start = l.opened.Round(0)
	case before.boot == l.boot:
		l.start = time.Unix(0, before.lineTime).Add(since - before.monotonic)
	default: // the clock may be back in 1970, but time does not go back
		l.start = l.opened.Round(0).Add(-before.ahead)
		if last := time.Unix(0, before.latest); l.start.Before(last) {
			l.start = last
		}
	}
	return l, l.Save()
}

// read reads a line's file. A missing or damaged file gives no line. Without a line, times in the folder are those of
// the wall clock.
func read(path string) (s state, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("reading how times in files relate to the clock: %w", err)
	}
	var version int
	if n, _ := fmt.Sscanf(string(text), "%d %s %d %d %d %d\n", &version, &s.boot, &s.monotonic, &s.lineTime, &s.ahead,
		&s.latest); n != 6 || version != 1 {
		return state{}, nil
	}
	return s, nil
}

// Save writes the line's relation to the clocks to the file, if that has changed or was written long ago. Without it, a
// new setting of the wall clock would be lost at the machine's next start.
func (l *Line) Save() error {
	const often = 10 * time.Minute
	now := time.Now()
	instant := l.At(now)
	s := state{boot: l.boot, monotonic: monotonic + now.Sub(clockReading), lineTime: instant.UnixNano(),
		ahead:  now.Round(0).Sub(instant),
		latest: instant.UnixNano()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFile.boot != "" && (s.ahead-l.inFile.ahead).Abs() < time.Second &&
		time.Duration(s.latest-l.inFile.latest) < often {
		return nil
	}
	if err := s.write(l.path); err != nil {
		return fmt.Errorf("keeping how times in files relate to the clock: %w", err)
	}
	l.inFile = s
	return nil
}

// write replaces a line's file, and keeps the former one beside it if that can be read. One of both is on the disk at
// any time.
func (s state) write(path string) error {
	writing.Lock()
	defer writing.Unlock()
	before, err := read(path)
	if err == nil && before.boot != "" {
		err = os.Rename(path, filepath.Join(filepath.Dir(path), FormerName))
	}
	if err != nil {
		return err
	}
	return statefile.Replace(path, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "1 %s %d %d %d %d\n", s.boot, s.monotonic, s.lineTime, s.ahead, s.latest)
		return err
	})
}

// At converts a time of the wall clock to the line's. The zero time stays zero.
func (l *Line) At(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	now := time.Now()
	return l.start.Add(now.Sub(l.opened)).Add(t.Sub(now))
}

// Time converts a time of the line to the present wall clock's, with a monotonic reading. The zero time stays zero.
func (l *Line) Time(instant time.Time) time.Time {
	if instant.IsZero() {
		return instant
	}
	now := time.Now()
	return now.Add(instant.Sub(l.start.Add(now.Sub(l.opened))))
}

// Wall converts t, which has a monotonic reading, to the wall clock as it is set now. Differences below a second are
// ignored: a clock that only runs faster or slower changes nothing.
func Wall(t time.Time) time.Time {
	before := t.Round(0)
	if now := time.Now().Add(-time.Since(t)).Round(0); now.Sub(before).Abs() >= time.Second {
		return now
	}
	return before
}
