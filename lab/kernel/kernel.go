// Package kernel finds kernels and their modules on this machine, fetches Debian's kernels, and reads from their files
// what lab/vm needs to boot them in a virtual machine. In its comments the guest is that virtual machine. The package
// needs no root.
package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is a kernel with its modules, in files of this machine.
type Kernel struct {
	Name    string `json:"name"`    // as Find takes it: "debian", a path, a release
	Release string `json:"release"` // "6.1.0-56-amd64", as uname -r prints it
	Image   string `json:"image"`   // path of the bzImage or ELF file
	// Modules is the folder that holds modules.dep: /lib/modules/RELEASE, or such a folder elsewhere.
	Modules string `json:"modules"`
}

// Places are the folders in which kernels are looked for. The zero value has none.
type Places struct {
	Boot    string // has vmlinuz-RELEASE: /boot
	Modules string // has RELEASE/modules.dep: /lib/modules
	Cache   string // has a folder for each fetched kernel
}

// UsualPlaces are this machine's places. Fetched kernels are below XDG_CACHE_HOME, or ~/.cache.
func UsualPlaces() (Places, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Places{}, fmt.Errorf("looking for the folder of fetched kernels: %w: set XDG_CACHE_HOME", err)
	}
	return Places{Boot: "/boot", Modules: "/lib/modules", Cache: filepath.Join(cache, "gateweigh", "kernels")}, nil
}

// ErrUnknown is wrapped when there is no such kernel here.
var ErrUnknown = errors.New("no such kernel here")

// Debian begins the names of kernels that Fetch gets.
const Debian = "debian"

// Installed lists the kernels of this machine's packages, the newest release last.
func (p Places) Installed() []Kernel {
	images, _ := filepath.Glob(filepath.Join(p.Boot, "vmlinuz-*")) // the pattern is valid
	var list []Kernel
	for _, image := range images {
		release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
		k := Kernel{Name: release, Release: release, Image: image, Modules: filepath.Join(p.Modules, release)}
		if k.Check() == nil {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, byRelease)
	return list
}

// Find returns the kernel of a name: "debian" or "debian:SUITE" that was fetched (of several the newest),
// the release of an installed or a fetched one, or a path. A path is a vmlinuz or vmlinux, with its modules in
// lib/modules beside its folder (as a package has them), in modules beside it, or installed; or
// a folder that holds boot and lib/modules.
func (p Places) Find(name string) (Kernel, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return p.kernelAt(name)
	}
	var found Kernel
	for _, k := range slices.Concat(p.Installed(), p.Fetched()) {
		if k.Name == name || k.Release == name {
			found = k
		}
	}
	if found.Image != "" {
		return found, nil
	}
	if IsDebian(name) {
		return found, fmt.Errorf("kernel %s is not fetched yet: gateweigh kernel fetch %s: %w", name, name, ErrUnknown)
	}
	return found, fmt.Errorf(
		"kernel %q: want debian, debian:SUITE, a release that gateweigh kernel list shows, or the path of a kernel "+
			"(./vmlinuz): %w", name, ErrUnknown)
}

// kernelAt returns the kernel at a path (see Find).
func (p Places) kernelAt(path string) (Kernel, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Kernel{}, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Kernel{}, fmt.Errorf("kernel %s: no such file: %w", path, ErrUnknown)
	}
	if err != nil {
		return Kernel{}, err
	}
	if info.IsDir() {
		return unpacked(path)
	}
	release, err := releaseOf(path)
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{Name: path, Release: release, Image: path}
	beside := filepath.Dir(path)
	for _, folder := range []string{filepath.Join(filepath.Dir(beside), "lib", "modules"), filepath.Join(beside, "lib",
		"modules"), filepath.Join(beside, "modules"), p.Modules} {
		k.Modules = filepath.Join(folder, release)
		bad := k.Check()
		if bad == nil {
			return k, nil
		}
		if err == nil || k.otherReleases() != "" && folder != p.Modules { // the modules were probably meant to be here
			err = bad
		}
	}
	return k, err
}

// unpacked returns the kernel in a folder with the files of one package: boot/vmlinuz-RELEASE and lib/modules/RELEASE.
func unpacked(folder string) (Kernel, error) {
	images, _ := filepath.Glob(filepath.Join(folder, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("%s: want one boot/vmlinuz-RELEASE below it, there are %d: name the kernel's file: %w",
			folder, len(images), ErrUnknown)
	}
	release, err := releaseOf(images[0])
	k := Kernel{Name: folder, Release: release, Image: images[0],
		Modules: filepath.Join(folder, "lib", "modules", release)}
	if err != nil {
		return k, err
	}
	return k, k.Check()
}

// Check returns an error if a part of the kernel is missing: its image or its modules.
func (k Kernel) Check() error {
	if _, err := os.Stat(k.Image); err != nil {
		return fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	index := filepath.Join(k.Modules, "modules.dep")
	if _, err := os.Stat(index); err != nil {
		return fmt.Errorf(
			"kernel %s is %s: its modules are not in %s (no modules.dep%s): put them there and run depmod -b FOLDER %s, where "+
				"FOLDER holds lib/modules: %w",
			k.Name, k.Release, k.Modules, k.otherReleases(), k.Release, err)
	}
	return nil
}

// otherReleases names the releases that have modules where those of k are missing, as the end of a message. It is empty
// if there are none.
func (k Kernel) otherReleases() string {
	list, _ := filepath.Glob(filepath.Join(filepath.Dir(k.Modules), "*", "modules.dep")) // the pattern is valid
	for i := range list {
		list[i] = filepath.Base(filepath.Dir(list[i]))
	}
	if len(list) == 0 {
		return ""
	}
	return "; there are those of " + strings.Join(list, ", ")
}

// byRelease orders by the numbers in releases, so that 6.10 follows 6.9.
func byRelease(a, b Kernel) int {
	x, y := numbers(a.Release), numbers(b.Release)
	return cmp.Or(slices.Compare(x, y), strings.Compare(a.Release, b.Release))
}

// numbers returns the numbers in a text: 6, 1, 0 and 56 for "6.1.0-56-amd64".
func numbers(text string) (list []int) {
	in := false
	for _, r := range text {
		digit := r >= '0' && r <= '9'
		if digit && !in {
			list = append(list, 0)
		}
		if digit {
			list[len(list)-1] = 10*list[len(list)-1] + int(r-'0')
		}
		in = digit
	}
	return list
}

// IsDebian reports whether Fetch gets the kernel of that name.
func IsDebian(name string) bool { return name == Debian || strings.HasPrefix(name, Debian+":") }
