package datapath

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLock: gateways of two LANs share a WAN if both do, and nobody shares a LAN.
func TestLock(t *testing.T) {
	alone, shared := ExclusiveClaims("lan0", "wan0"), Sharing("lan0", "wan0")
	for _, c := range []struct {
		name          string
		first, second []Claim
		busy          bool
	}{
		{"the same gateway again", alone, alone, true},
		{"the same, sharing", shared, shared, true},
		{"both alone at the WAN", alone, ExclusiveClaims("lan1", "wan0"), true},
		{"the second alone", shared, ExclusiveClaims("lan1", "wan0"), true},
		{"the first alone", alone, Sharing("lan1", "wan0"), true},
		{"both share", shared, Sharing("lan1", "wan0"), false},
		{"one's LAN is the other's WAN", shared, Sharing("wan0", "wan1"), true},
		{"a WAN whose name begins the same", shared, ExclusiveClaims("lan1", "wan01"), false},
	} {
		held, err := Lock(c.first...)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckClaims(c.second...); errors.Is(err, ErrBusy) != c.busy {
			t.Errorf("%s: looked for: %v", c.name, err)
		}
		next, err := Lock(c.second...)
		if errors.Is(err, ErrBusy) != c.busy {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := errors.Join(held.Close(), next.Close()); err != nil {
			t.Fatal(err)
		}
		if err := CheckClaims(c.second...); err != nil {
			t.Errorf("%s: %v after all are closed", c.name, err)
		}
	}
}

// TestLockWithoutProc: where /proc is not there, nothing is locked, and the error says what to do.
func TestLockWithoutProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("hiding /proc takes root")
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread, which sees no /proc, ends with the goroutine
		err := errors.Join(
			unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", "/proc", "tmpfs", 0, ""))
		if err != nil {
			t.Error(err)
		}
		held, err := Lock(Sharing("lan7", "wan7")...)
		ended <- errors.Join(err, held.Close())
	}()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "mount -t proc proc /proc") {
		t.Errorf("without /proc: %v", err)
	}
	held, err := Lock(Sharing("lan7", "wan7")...)
	if err = errors.Join(err, held.Close()); err != nil {
		t.Errorf("something is locked still: %v", err)
	}
}
