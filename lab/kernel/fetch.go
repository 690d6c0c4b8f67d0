// Fetches kernels of Debian with apt-get.

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// metapackage is the Debian package that depends on the package of the newest kernel.
const metapackage = "linux-image-amd64"

// Errors that Fetch wraps.
var (
	ErrNetwork = errors.New("no network")
	ErrSuite   = errors.New("unknown suite")
	ErrSpace   = errors.New("not enough space")
	ErrProgram = errors.New("a program is missing")
)

// suiteForm is the form of suites' names. A slash would change what apt is asked for.
var suiteForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~+-]*$`)

// Fetch fetches the kernel "debian" or "debian:SUITE" with apt, from the sources that the machine's apt is configured
// for. If the newest version is in the cache already, and complete, Fetch returns that one. A kernel is moved into the
// cache in one step, once it is complete. status is called with each step that begins.
func (p Places) Fetch(ctx context.Context, name string, status func(string)) (Kernel, error) {
	if !IsDebian(name) {
		return Kernel{}, fmt.Errorf("kernel %q cannot be fetched: want debian or debian:SUITE: %w", name, ErrUnknown)
	}
	if _, suite, given := strings.Cut(name, ":"); given && !suiteForm.MatchString(suite) {
		return Kernel{}, fmt.Errorf(
			"kernel %q: %w: %q: want a name such as bookworm-backports (gateweigh kernel list has those that apt knows)", name,
			ErrSuite, suite)
	}
	if err := os.MkdirAll(p.Cache, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("making the folder of fetched kernels: %w", explainAptError(err, ""))
	}
	unlock, err := p.lock(ctx, status)
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	f, err := p.newFetch(ctx, name, status)
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(f.folder)
	return f.all()
}

// fetch is one call of Fetch.
type fetch struct {
	Places
	ctx    context.Context
	name   string // "debian" or "debian:SUITE"
	folder string // where it downloads and unpacks: a new folder in the cache
	status func(string)
}

// newFetch makes the folder for a call of Fetch. It returns an error if a program that fetching needs is missing.
func (p Places) newFetch(ctx context.Context, name string, status func(string)) (fetch, error) {
	for program, pkg := range map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg", "depmod": "kmod"} {
		if programPath(program) == "" {
			return fetch{}, fmt.Errorf(
				"%s is not here: install the package %s, or give a kernel's path: %w", program, pkg, ErrProgram)
		}
	}
	folder, err := os.MkdirTemp(p.Cache, fetchingPrefix)
	if err != nil {
		return fetch{}, fmt.Errorf("making a folder for the kernel: %w", explainAptError(err, ""))
	}
	return fetch{p, ctx, name, folder, status}, os.Chmod(folder, 0o755)
}

// all carries out all steps of Fetch: it looks for the newest version, downloads and unpacks it, and moves it to its
// folder in the cache.
func (f fetch) all() (Kernel, error) {
	f.status("looking for the newest kernel")
	meta, err := f.download(metapackage)
	if err != nil {
		return Kernel{}, err
	}
	depends, err := f.field(meta, "Depends")
	if err != nil {
		return Kernel{}, err
	}
	version, err := f.field(meta, "Version")
	if err != nil {
		return Kernel{}, err
	}
	final := f.fetchedFolder(f.name, version)
	if _, err := os.Stat(final); err == nil {
		f.status("looking whether all its files are here")
		if bad := checkFiles(final); bad == nil {
			return f.findFetched(final)
		}
	}
	image, _, _ := strings.Cut(depends, " ")
	f.status("downloading " + image)
	file, err := f.download(image)
	if err != nil {
		return Kernel{}, err
	}
	if err := f.unpack(file); err != nil {
		return Kernel{}, err
	}
	if err := errors.Join(f.discard(final), os.Rename(f.folder, final)); err != nil {
		return Kernel{}, fmt.Errorf("keeping the kernel: %w", err)
	}
	return f.findFetched(final)
}

// findFetched returns the kernel in a folder of the cache.
func (f fetch) findFetched(folder string) (Kernel, error) {
	k, err := unpacked(folder)
	k.Name = f.name
	return k, err
}

// unpack unpacks a kernel's package (file) into f.folder, indexes its modules, and flushes all files to the disk.
func (f fetch) unpack(file string) error {
	kib, err := f.field(file, "Installed-Size")
	if err != nil {
		return err
	}
	if err := checkRoom(f.folder, kib); err != nil {
		return err
	}
	f.status("unpacking it")
	if _, err := f.run("dpkg-deb", "-x", file, f.folder); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
	}
	if _, err := os.Stat(filepath.Join(f.folder, "lib")); err != nil { // newer packages have usr/lib instead
		if err := os.Symlink("usr/lib", filepath.Join(f.folder, "lib")); err != nil {
			return err
		}
	}
	images, _ := filepath.Glob(filepath.Join(f.folder, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return fmt.Errorf("%s has no kernel in boot: %w", filepath.Base(file), ErrForm)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	if _, err := f.run("depmod", "-b", f.folder, release); err != nil {
		return fmt.Errorf("indexing the modules: %w", err)
	}
	// Programs that run under the kernel look for its configuration beside the modules.
	if err := os.Link(filepath.Join(f.folder, "boot", "config-"+release), filepath.Join(f.folder, "lib", "modules",
		release, "config")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.folder, nameFile), []byte(f.name+"\n"), 0o644); err != nil {
		return explainAptError(err, "")
	}
	debs, _ := filepath.Glob(filepath.Join(f.folder, "*.deb"))
	for _, deb := range debs {
		err = errors.Join(err, os.Remove(deb))
	}
	if err == nil {
		err = writeSums(f.folder)
	}
	folder, opened := os.Open(f.folder)
	if opened != nil {
		return errors.Join(err, opened)
	}
	return errors.Join(err, unix.Syncfs(int(folder.Fd())), folder.Close())
}

// download downloads a package's file into f.folder and returns its path. pkg is the package's name.
func (f fetch) download(pkg string) (string, error) {
	if _, suite, ok := strings.Cut(f.name, ":"); ok {
		pkg += "/" + suite
	}
	if _, err := f.run("apt-get", "-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30", "-o",
		"Acquire::https::Timeout=30", "download", pkg); err != nil {
		return "", fmt.Errorf("getting %s: %w", pkg, err)
	}
	name, _, _ := strings.Cut(pkg, "/")
	files, _ := filepath.Glob(filepath.Join(f.folder, name+"_*.deb"))
	if len(files) != 1 {
		return "", fmt.Errorf("getting %s: apt-get ended well and left no file", pkg)
	}
	return files[0], nil
}

// field returns a field of a package's control file, such as "Version". file is the package's file.
func (f fetch) field(file, name string) (string, error) {
	text, err := f.run("dpkg-deb", "-f", file, name)
	if text = strings.TrimSpace(text); err == nil && text == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("reading %s of %s: %w", name, filepath.Base(file), err)
	}
	return text, nil
}

// run runs a program in f.folder and returns its standard output. The error says what to do (explainAptError).
func (f fetch) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.ctx, programPath(program), args...)
	cmd.Dir, cmd.Env = f.folder, append(os.Environ(), "LC_ALL=C")
	// The program must end with this process. The kernel kills it when the thread that started it ends (Pdeathsig), so
	// that thread must live on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		if f.ctx.Err() != nil {
			return "", context.Cause(f.ctx)
		}
		if free, bad := freeKiB(f.folder); bad == nil && free < minFreeKiB { // not every program tells that the disk is full
			err = errors.Join(syscall.ENOSPC, err)
		}
		return "", explainAptError(err, messages.String())
	}
	return out.String(), nil
}

// explainAptError returns err with what it means and what to do about it. messages is the error output of apt-get or
// another program; it may be empty.
func explainAptError(err error, messages string) error {
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(messages, t) {
				return true
			}
		}
		return false
	}
	last := ""
	for line := range strings.Lines(messages) {
		if strings.HasPrefix(line, "E: ") || last == "" {
			last = strings.TrimSpace(strings.TrimPrefix(line, "E: "))
		}
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || has("No space left on device", "don't have enough free space"):
		return fmt.Errorf("%w: free some, or set XDG_CACHE_HOME to a folder with room", ErrSpace)
	case has("was not found", "is not valid for APT::Default-Release"):
		return fmt.Errorf(
			"%w (%s): apt knows those of /etc/apt/sources.list and sources.list.d; after a change: sudo apt-get update",
			ErrSuite, last)
	case has("Unable to locate package", "No packages found", "Can't find a source"):
		return fmt.Errorf("apt does not know it (%s): sudo apt-get update; the sources must be Debian's", last)
	case has("resolving", "Could not connect", "Unable to connect", "Failed to fetch", "Network is unreachable",
		"connection timed out"):
		return fmt.Errorf("%w (%s): check the network and the proxy, or give a kernel's path", ErrNetwork, last)
	case last != "":
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// checkRoom returns an error if the disk of a folder has less free space than a package needs. text is the package's
// Installed-Size: a number of KiB.
func checkRoom(folder, text string) error {
	kib, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("the package's Installed-Size: %w", err)
	}
	free, err := freeKiB(folder)
	if err != nil {
		return err
	}
	if free < kib {
		return fmt.Errorf(
			"the kernel takes %d MiB, and %s has %d: %w: free some, or set XDG_CACHE_HOME to a folder with room", kib>>10,
			folder, free>>10, ErrSpace)
	}
	return nil
}

// minFreeKiB is the free space, in KiB, below which a disk counts as full.
const minFreeKiB = 1024

// freeKiB returns the free space of the disk of a folder, KiB.
func freeKiB(folder string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, fmt.Errorf("looking for space in %s: %w", folder, err)
	}
	return disk.Bavail * uint64(disk.Bsize) >> 10, nil
}

// programPath returns the path of a program on PATH or in a folder that only root's PATH has; "" if there is none.
func programPath(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, folder := range []string{"/usr/sbin", "/sbin"} {
		if path := filepath.Join(folder, name); unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}
