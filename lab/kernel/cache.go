// The cache: the folder of kernels that Fetch has fetched (Places.Cache).

package kernel

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files in the folder of a fetched kernel.
const (
	nameFile = "name"      // the name by which Find knows it
	sumsFile = "sha256sum" // of all other files, as sha256sum(1) writes them
)

// fetchingPrefix begins the names of folders with an incomplete kernel: one that is being fetched or removed.
const fetchingPrefix = ".fetching-"

// Fetched lists the kernels that Fetch has fetched, sorted by name and then by release, the newest last.
func (p Places) Fetched() []Kernel {
	folders, _ := filepath.Glob(filepath.Join(p.Cache, "*", nameFile))
	var list []Kernel
	for _, file := range folders {
		if strings.HasPrefix(filepath.Base(filepath.Dir(file)), fetchingPrefix) {
			continue
		}
		name, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		k, err := unpacked(filepath.Dir(file))
		if err != nil {
			continue
		}
		k.Name = strings.TrimSpace(string(name))
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Kernel) int { return cmp.Or(strings.Compare(a.Name, b.Name), byRelease(a, b)) })
	return list
}

// Has reports whether this version of an offered kernel is fetched already.
func (p Places) Has(o Offer) bool {
	_, err := os.Stat(filepath.Join(p.fetchedFolder(o.Name, o.Version), nameFile))
	return err == nil
}

// fetchedFolder returns the folder for a fetched kernel of a name and a version of its package.
func (p Places) fetchedFolder(name, version string) string {
	return filepath.Join(p.Cache, strings.ReplaceAll(name, ":", "-")+"-"+version)
}

// Remove deletes the fetched kernels with this name or this release, and returns them. status is called when it has to
// wait for another process.
func (p Places) Remove(ctx context.Context, name string, status func(string)) ([]Kernel, error) {
	var list []Kernel
	for _, k := range p.Fetched() {
		if k.Name == name || k.Release == name {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(
			"kernel %q is not among the fetched ones: gateweigh kernel list shows them: %w", name, ErrUnknown)
	}
	unlock, err := p.lock(ctx, status)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, k := range list {
		if err := p.discard(k.folder()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// folder returns the folder with all files of a fetched kernel.
func (k Kernel) folder() string { return filepath.Dir(filepath.Dir(k.Image)) }

// discard deletes a folder of the cache. It renames the folder first, so that nobody takes a half-deleted one for a
// kernel.
func (p Places) discard(folder string) error {
	away, err := os.MkdirTemp(p.Cache, fetchingPrefix)
	if err != nil {
		return fmt.Errorf("removing a kernel: %w", err)
	}
	if err = os.Rename(folder, filepath.Join(away, "old")); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, os.RemoveAll(away)); err != nil {
		return fmt.Errorf("removing a kernel: %w", err)
	}
	return nil
}

// lock has other calls of Fetch and Remove, also of other processes, wait until unlock is called. It removes what a
// killed process has left in the cache. status is called while it waits itself.
func (p Places) lock(ctx context.Context, status func(string)) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(p.Cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the folder of fetched kernels: %w", explainAptError(err, ""))
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		status("waiting for another gateweigh, which changes " + p.Cache)
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
	}
	left, _ := filepath.Glob(filepath.Join(p.Cache, fetchingPrefix+"*")) // the pattern is valid
	for _, folder := range left {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// Size is what the kernel's files take on the disk, in bytes.
func (k Kernel) Size() (bytes int64) {
	_ = filepath.WalkDir(k.folder(), func(_ string, e fs.DirEntry, err error) error { // an error: less is counted
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// writeSums writes the checksums of a folder's files into sumsFile. checkFiles compares them later.
func writeSums(folder string) error {
	var text bytes.Buffer
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
		return err
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, sumsFile), text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("noting the kernel's files: %w", explainAptError(err, ""))
	}
	return nil
}

// checkFiles returns an error if a file of a fetched kernel is missing or has changed since it was fetched.
func checkFiles(folder string) error {
	f, err := os.Open(filepath.Join(folder, sumsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		got, err := sumOf(filepath.Join(folder, name))
		if err == nil && got != want {
			err = fmt.Errorf("%s has changed", name)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// sumOf returns the SHA-256 of a file, in hexadecimal.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
