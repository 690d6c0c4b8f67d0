package result

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Open reads the run in a run folder or in a bundle of one. A bundle is unpacked into a temporary
// folder, Run.Dir, which forget removes: call forget when the run's files are no longer needed, also
// after an error. For kinds see ReadRecords.
func Open(ctx context.Context, name string, kinds ...Kind) (run Run, forget func(), err error) {
	dir, forget := name, func() {}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Run{}, forget, fmt.Errorf("%s is not a run folder, nor a bundle: it does not exist", name)
	case err != nil:
		return Run{}, forget, fmt.Errorf("open run: %w", err)
	case !info.IsDir():
		temporary, remove, err := temporaryFolder()
		if err != nil {
			return Run{}, forget, fmt.Errorf("unpack %s: %w", name, err)
		}
		dir, forget = filepath.Join(temporary, "run"), remove
		if err := UnpackBundle(ctx, name, dir); err != nil {
			return Run{}, forget, err
		}
	}
	run, err = ReadRun(dir, kinds...)
	return run, forget, err
}

// temporaryPrefix begins the names of the folders that bundles are unpacked into.
const temporaryPrefix = "gateweigh-bundle-"

// temporaryFolder makes a folder for an unpacked bundle and locks it until remove. It removes those
// that processes which were killed have left.
func temporaryFolder() (dir string, remove func(), err error) {
	sweep()
	if dir, err = os.MkdirTemp("", temporaryPrefix); err != nil {
		return "", nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // a file system without locks has no sweep either
	return dir, func() { os.RemoveAll(dir); lock.Close() }, nil
}

// youngest is the age from which an unlocked folder is taken for left over: a younger one may be about to be locked.
const youngest = time.Minute

// sweep removes temporary folders that no process has locked. What cannot be removed stays: it may be another user's.
func sweep() {
	all, err := filepath.Glob(filepath.Join(os.TempDir(), temporaryPrefix+"*"))
	if err != nil {
		return // the folder for temporary files has a name that is no pattern
	}
	for _, dir := range all {
		f, err := os.OpenFile(dir, syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // anybody may have made anything of that name
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil && time.Since(info.ModTime()) > youngest && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}
