package result

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gateweigh/gateweigh/lab/scratch"
)

// Open reads the run in a run folder or in a bundle (see Folder). For kinds see ReadRecords.
func Open(ctx context.Context, name string, kinds ...Kind) (run Run, forget func(), err error) {
	dir, forget, err := Folder(ctx, name)
	if err != nil {
		return Run{}, forget, err
	}
	run, err = ReadRun(dir, kinds...)
	return run, forget, err
}

// Folder returns the run folder with this name, or the run folder in the bundle with this name. It unpacks a bundle
// into a temporary folder. Call forget to remove this folder when the run's files are no longer needed, also after an
// error.
func Folder(ctx context.Context, name string) (dir string, forget func(), err error) {
	forget = func() {}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", forget, fmt.Errorf("%s is not a run folder, nor a bundle: it does not exist", name)
	case err != nil:
		return "", forget, fmt.Errorf("open run: %w", err)
	case info.IsDir():
		return name, forget, nil
	}
	scratch.Sweep(scratch.Bundle) // removes leftovers of this user only
	temporary, done, err := scratch.New(scratch.Bundle)
	if err != nil {
		return "", forget, fmt.Errorf("unpack %s: %w", name, err)
	}
	dir = filepath.Join(temporary, "run")
	return dir, func() { done() }, UnpackBundle(ctx, name, dir)
}
