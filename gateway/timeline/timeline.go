// Package timeline gives files times that a wrong clock does not spoil. A machine without a battery starts in
// 1970 and learns the time later: a file that has a time of before must not make a session of 56 years of it, or
// end a lease.
//
// Times in files are on a line of their own, which goes on with the monotonic clock while the machine runs,
// whatever the wall clock is set to. Where the clock was never set they are the wall clock's.
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

// Name is the file in which a folder's line is kept, and Former has what it was before, for when it is damaged.
const (
	Name   = "clock"
	Former = "clock.old"
)

// writing has lines of one folder, of which a process may have several, write the file one after the other. Other
// processes do not write it.
var writing sync.Mutex

// bootID identifies the present boot of the machine.
const bootID = "/proc/sys/kernel/random/boot_id"

// Line is the line of a folder. Its methods may be called from several goroutines.
type Line struct {
	path   string
	boot   string
	opened time.Time // with its monotonic reading
	start  time.Time // the line's time then

	mu   sync.Mutex
	kept state // guarded by mu: in the file
}

// state is what the file has: on which boot, at which monotonic time, the line was where, how far the wall
// clock was ahead of it, and how far the line has come.
type state struct {
	boot      string
	monotonic time.Duration
	at        int64 // nanoseconds since 1970, as last
	ahead     time.Duration
	last      int64
}

// began is a reading of the monotonic clock, and what the kernel called it: Go's readings have no origin.
var (
	began     = time.Now()
	monotonic = kernelMonotonic()
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
		before, err = read(filepath.Join(folder, Former))
	}
	if err != nil {
		return nil, err
	}
	since := monotonic + l.opened.Sub(began)
	switch {
	case before.boot == "":
		l.start = l.opened.Round(0)
	case before.boot == l.boot:
		l.start = time.Unix(0, before.at).Add(since - before.monotonic)
	default: // the clock may be back in 1970, but time does not go back
		l.start = l.opened.Round(0).Add(-before.ahead)
		if last := time.Unix(0, before.last); l.start.Before(last) {
			l.start = last
		}
	}
	return l, l.Keep()
}

// read reads a line's file. One that is missing or damaged has no line: without any, times in the folder are the wall
// clock's.
func read(path string) (s state, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("reading how times in files relate to the clock: %w", err)
	}
	var version int
	if n, _ := fmt.Sscanf(string(text), "%d %s %d %d %d %d\n", &version, &s.boot, &s.monotonic, &s.at, &s.ahead,
		&s.last); n != 6 || version != 1 {
		return state{}, nil
	}
	return s, nil
}

// Keep writes down how the line relates to the clocks, if that has changed or was long ago. Without it, what
// a clock that was set says is lost at the machine's next start.
func (l *Line) Keep() error {
	const often = 10 * time.Minute
	now := time.Now()
	instant := l.At(now)
	s := state{boot: l.boot, monotonic: monotonic + now.Sub(began), at: instant.UnixNano(),
		ahead: now.Round(0).Sub(instant),
		last:  instant.UnixNano()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept.boot != "" && (s.ahead-l.kept.ahead).Abs() < time.Second && time.Duration(s.last-l.kept.last) < often {
		return nil
	}
	if err := s.write(l.path); err != nil {
		return fmt.Errorf("keeping how times in files relate to the clock: %w", err)
	}
	l.kept = s
	return nil
}

// write replaces a line's file, and keeps the former one beside it if that can be read. One of both is on the disk at
// any time.
func (s state) write(path string) error {
	writing.Lock()
	defer writing.Unlock()
	before, err := read(path)
	if err == nil && before.boot != "" {
		err = os.Rename(path, filepath.Join(filepath.Dir(path), Former))
	}
	if err != nil {
		return err
	}
	return statefile.Replace(path, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "1 %s %d %d %d %d\n", s.boot, s.monotonic, s.at, s.ahead, s.last)
		return err
	})
}

// At is what the line calls a time. The zero time is zero.
func (l *Line) At(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	now := time.Now()
	return l.start.Add(now.Sub(l.opened)).Add(t.Sub(now))
}

// Time is the time that the line calls at, by the wall clock of now and with a monotonic reading. The zero time
// is zero.
func (l *Line) Time(instant time.Time) time.Time {
	if instant.IsZero() {
		return instant
	}
	now := time.Now()
	return now.Add(instant.Sub(l.start.Add(now.Sub(l.opened))))
}

// Wall is when t was, by the wall clock of now. t has a monotonic reading. A clock that was not set, only made to go
// faster or slower, changes nothing: less than a second is not told.
func Wall(t time.Time) time.Time {
	before := t.Round(0)
	if now := time.Now().Add(-time.Since(t)).Round(0); now.Sub(before).Abs() >= time.Second {
		return now
	}
	return before
}
