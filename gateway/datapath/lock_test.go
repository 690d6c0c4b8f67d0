package datapath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLock: gateways of two LANs share a WAN if both claim it for sharing, and nobody shares a LAN. Each case is the
// claims of two gateways, and whether the second finds an interface busy while the first runs.
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
			t.Errorf("%s: CheckClaims: %v", c.name, err)
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

// TestLockWithoutProc: without /proc Lock fails and keeps no lock, and its error says what to do.
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

// TestHolderOfLock: the error for an interface or a folder that another gateway has names its process and its command.
func TestHolderOfLock(t *testing.T) {
	held, err := Lock(ExclusiveClaims("lan9")...)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	dir := t.TempDir()
	folder, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	_, byLock := Lock(Sharing("lan8", "lan9")...)
	_, byFolder := LockFolder(dir)
	want := fmt.Sprintf(" (process %d, %s", os.Getpid(), os.Args[0])
	for _, err := range []error{byLock, CheckClaims(ExclusiveClaims("lan9")...), byFolder} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
