package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/vm"
	"github.com/gateweigh/gateweigh/quote"
)

// checkFree returns an error where a new run cannot use a folder: it is a file, or holds a run.
func checkFree(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is a file: choose a folder that does not exist yet as --out", dir)
	}
	if holdsRun(dir) {
		return fmt.Errorf(
			"%s holds a run already: continue it with --resume %s, or choose another --out", dir, quote.Word(dir))
	}
	return nil
}

// makeRunFolder makes the folder of a new run: that of --out, else one named after the present second. Two runs that
// begin at the same time get different folders. forget removes the folders made here that are still empty.
func makeRunFolder(exp *experiment.Experiment, flags runFlags) (dir string, forget func(), err error) {
	stem := filepath.Join("runs", time.Now().UTC().Format("20060102T150405Z")+"-"+exp.Name)
	if dir = stem; flags.out != "" {
		dir = flags.out
		if err := checkFree(dir); err != nil {
			return "", nil, err
		}
	}
	var made []string // the innermost first
	forget = func() {
		for _, folder := range made {
			os.Remove(folder) // one with something in it stays
		}
	}
	if os.Geteuid() != 0 && len(flags.kernels) == 0 {
		return dir, forget, nil // the run will ask for root, which helps more than that the folder cannot be made
	}
	for folder := filepath.Clean(dir); doesNotExist(folder); folder = filepath.Dir(folder) {
		made = append(made, folder)
	}
	err = os.MkdirAll(filepath.Dir(filepath.Clean(dir)), 0o755)
	for n := 2; err == nil; n++ {
		if err = os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
			break
		}
		made = nil // it existed, or another run has just made it
		if flags.out != "" {
			return dir, forget, nil // checkFree found no run in it
		}
		dir, err = fmt.Sprintf("%s-%d", stem, n), nil
		made = []string{dir}
	}
	if err != nil {
		forget()
		return "", nil, fmt.Errorf("making the run's folder: %w: choose another with --out", err)
	}
	return dir, forget, nil
}

func doesNotExist(folder string) bool {
	_, err := os.Stat(folder)
	return errors.Is(err, fs.ErrNotExist)
}

// checkKernels returns an error for the first kernel that is not known or cannot start on this machine. It is called
// before anything is fetched, made or waited for. Names that are empty or native are skipped.
func (f runFlags) checkKernels(ctx context.Context, names ...string) error {
	for _, name := range names {
		if name == "" || name == native {
			continue
		}
		err := usableKernel(ctx, name, f.guest.memoryMiB)
		if f.resuming && errors.Is(err, kernel.ErrUnknown) {
			err = fmt.Errorf(
				"%s was begun under kernel %s, which is not here any more: %w: put it there again (gateweigh kernel list names "+
					"the others), or begin a run of its own under one of those",
				f.resume, name, kernel.ErrUnknown)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// usableKernel returns an error where a kernel is not known or its guest cannot start. A kernel of Debian's that is not
// here yet passes: it is fetched later.
func usableKernel(ctx context.Context, name string, memoryMiB int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	places, err := kernel.UsualPlaces()
	if err != nil {
		return err
	}
	k, err := places.Find(name)
	if err != nil && !(errors.Is(err, kernel.ErrUnknown) && kernel.IsDebian(name)) {
		return kernelError(ctx, name, err)
	}
	check := vm.Config{Command: []string{program}, Kernel: k, MemoryMiB: memoryMiB}.Check()
	if check != nil && (err == nil || errors.Is(check, vm.ErrNoQEMU)) {
		return check
	}
	return nil
}
