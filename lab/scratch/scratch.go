// Package scratch makes folders for what a process has on the disk only while it lives. Each is locked by its process,
// so that the folders of processes that were killed are found and removed.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Kind is what a folder is for; it is part of the folder's name.
type Kind string

// All kinds of folders.
const (
	Doctor   Kind = "doctor"
	Shell    Kind = "shell"
	SelfTest Kind = "self-test" // of an agent
	Bundle   Kind = "bundle"    // unpacked to be read
	SSH      Kind = "ssh"       // sockets of connections
	Console  Kind = "console"   // what a guest without a run's folder said: kept to be read, until it is swept
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{Doctor, Shell, SelfTest, Bundle, SSH, Console} }

func (k Kind) prefix() string { return "gateweigh-" + string(k) + "-" }

// unlocked begins the name that a folder has until it is locked.
const unlocked = ".gateweigh-new-"

// New makes an empty folder, in $TMPDIR or /tmp, that is this process's until done is called or the process ends. done
// removes it, and may be called again. Who wants to keep the folder does not call it.
func New(kind Kind) (dir string, done func() error, err error) {
	made, err := os.MkdirTemp("", unlocked)
	if err != nil {
		return "", nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	lock, err := os.Open(made)
	if err == nil {
		lockFolder(lock) // where the file system has no locks, nobody's sweep can lock it either
		dir = filepath.Join(filepath.Dir(made), kind.prefix()+strings.TrimPrefix(filepath.Base(made), unlocked))
		err = syscall.Rename(made, dir) // unlike os.Rename it takes the place of nothing but an empty folder
	}
	if err != nil {
		err = fmt.Errorf("making a temporary folder: %w", errors.Join(err, os.RemoveAll(made)))
		if lock != nil {
			lock.Close()
		}
		return "", nil, err
	}
	return dir, func() error {
		defer lock.Close()
		return os.RemoveAll(dir)
	}, nil
}

func lockFolder(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// Sweep removes the folders of some kinds in $TMPDIR or /tmp that no living process has, and returns them. What this
// user may not remove stays, and is part of the error.
func Sweep(kinds ...Kind) (removed []string, err error) {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("looking for temporary folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		young := false
		is := strings.HasPrefix(e.Name(), unlocked)
		if info, err := e.Info(); is && err == nil {
			young = time.Since(info.ModTime()) < youngest
		}
		for _, k := range kinds {
			is = is || strings.HasPrefix(e.Name(), k.prefix())
		}
		if !is || young {
			continue
		}
		dir := filepath.Join(os.TempDir(), e.Name())
		switch gone, err := sweep(dir); {
		case err != nil:
			errs = append(errs, err)
		case gone:
			removed = append(removed, dir)
		}
	}
	return removed, errors.Join(errs...)
}

// youngest is the age from which a folder that was not even renamed is taken for left over: its process may be about to
// lock it.
const youngest = time.Minute

// sweep removes a folder that no process has locked.
func sweep(dir string) (gone bool, err error) {
	// anybody may have made anything of that name
	f, err := os.OpenFile(dir, syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if lockFolder(f) != nil {
		return false, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("removing what a killed program has left: %w", err)
	}
	return true, nil
}
