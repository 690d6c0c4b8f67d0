package timeline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLine: a time in a file is the same moment again for the next process, in whatever year the line was begun, and as
// good as the clock allows after a reboot. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestLine(t *testing.T) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		t.Fatal(err)
	}
	this := strings.TrimSpace(string(boot))
	for name, tt := range map[string]struct {
		boot          string        // of the line's file; empty: there is none
		ahead         time.Duration // the wall clock, of the line, when it was kept
		begun         time.Time     // of the line, by itself
		ago           time.Duration // when it was kept, by the monotonic clock
		rebooted      bool
		clockIsBehind bool
	}{
		"new":           {},
		"kept":          {boot: this, begun: time.Now().Add(-time.Hour), ago: time.Hour},
		"begun in 1970": {boot: this, begun: time.Unix(60, 0), ago: time.Hour},
		"rebooted":      {boot: "another", begun: time.Now().Add(-time.Hour), rebooted: true},
		"rebooted, begun in 1970": {
			boot: "another", ahead: time.Since(time.Unix(60, 0)), begun: time.Unix(60, 0), rebooted: true},
		"rebooted, the clock is behind": {
			boot: "another", begun: time.Now().Add(56 * 365 * 24 * time.Hour), rebooted: true, clockIsBehind: true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if tt.boot != "" {
				mono := monotonic + time.Since(clockReading) - tt.ago
				text := fmt.Sprintf("1 %s %d %d %d %d\n", tt.boot, mono, tt.begun.UnixNano(), tt.ahead, tt.begun.UnixNano())
				if err := os.WriteFile(filepath.Join(folder, Name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l := open(t, folder)
			for _, d := range []time.Duration{0, time.Hour, -time.Hour} {
				then := time.Now().Add(d)
				instant := l.At(then)
				near(t, "read by the same process", l.Time(instant), then)
				near(t, "read by the next", open(t, folder).Time(instant.Round(0)), then)
			}
			before := tt.begun.Add(tt.ago) // of now, where the line goes on
			switch {
			case tt.boot == "":
				near(t, "begun", l.At(time.Now()), time.Now())
			case !tt.rebooted || tt.clockIsBehind:
				near(t, "gone on", l.At(time.Now()), before)
			default:
				near(t, "after the reboot", l.At(time.Now()), time.Now().Add(-tt.ahead))
			}
			if !l.At(time.Time{}).IsZero() || !l.Time(time.Time{}).IsZero() {
				t.Error("the zero time is some time")
			}
		})
	}
}

// TestDamagedLine: instead of a file that cannot be read the former one is, also once more after that, or, without one,
// a line begins.
func TestDamagedLine(t *testing.T) {
	for _, text := range []string{"", "1 boot", "2 boot 1 2 3 4\n", "\x00\x00\x00", "missing"} {
		folder := t.TempDir()
		path := filepath.Join(folder, Name)
		damage := func() {
			err := os.Remove(path)
			if text != "missing" {
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		damage()
		near(t, fmt.Sprintf("%q", text), open(t, folder).At(time.Now()), time.Now())

		of1970 := state{boot: "another", ahead: time.Since(time.Unix(60, 0)), lineTime: 60e9, latest: 60e9}
		for range 2 {
			if err := of1970.write(path); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			damage()
			near(t, fmt.Sprintf("%q, with a former file", text), open(t, folder).At(time.Now()), time.Unix(60, 0))
		}
	}
}

// TestSeveralLines: several lines of one folder, as the session table and DHCP have them, do not spoil each other's
// file.
func TestSeveralLines(t *testing.T) {
	folder := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		l := open(t, folder)
		all.Go(func() {
			for range 25 {
				l.inFile = state{} // so that it is written
				if err := l.Save(); err != nil {
					t.Error(err)
				}
				if s, err := read(filepath.Join(folder, FormerName)); err != nil || s.boot != l.boot {
					t.Errorf("the former file has %+v, %v", s, err)
				}
			}
		})
	}
	all.Wait()
	if s, err := read(filepath.Join(folder, Name)); err != nil || s.boot == "" {
		t.Errorf("the file has %+v, %v", s, err)
	}
}

// TestLineSaved: the line's file is written at most every ten minutes, with the time that the line has reached.
// reached.
func TestLineSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		l := open(t, folder)
		kept := func() time.Time {
			s, err := read(filepath.Join(folder, Name))
			if err != nil {
				t.Fatal(err)
			}
			return time.Unix(0, s.latest)
		}
		first := kept()
		for _, tt := range []struct{ after, want time.Duration }{
			{time.Minute, 0}, {10 * time.Minute, 11 * time.Minute}, {time.Minute, 11 * time.Minute}} {
			time.Sleep(tt.after)
			if err := l.Save(); err != nil {
				t.Fatal(err)
			}
			if got := kept().Sub(first); got != tt.want {
				t.Errorf("kept %s after the beginning, want %s", got, tt.want)
			}
		}
	})
}

func open(t *testing.T, folder string) *Line {
	t.Helper()
	l, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// near compares times that were taken one after the other.
func near(t *testing.T, label string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want).Abs(); d > time.Minute {
		t.Errorf("%s: %s, want %s", label, got, want)
	}
}

// TestWall: Wall of one time is the same whenever it is called, to the nanosecond.
func TestWall(t *testing.T) {
	before := time.Now()
	for range 1000 {
		if got := Wall(before); !got.Equal(before) {
			t.Fatalf("%s, want %s", got, before)
		}
	}
}
