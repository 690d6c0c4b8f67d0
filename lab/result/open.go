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
		scratch.Sweep(scratch.Bundle) // those of other users stay
		temporary, done, err := scratch.New(scratch.Bundle)
		if err != nil {
			return Run{}, forget, fmt.Errorf("unpack %s: %w", name, err)
		}
		dir, forget = filepath.Join(temporary, "run"), func() { done() }
		if err := UnpackBundle(ctx, name, dir); err != nil {
			return Run{}, forget, err
		}
	}
	run, err = ReadRun(dir, kinds...)
	return run, forget, err
}
