// The modules of a kernel: which ones another one needs, and their files.

package kernel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoModule is wrapped when a kernel lacks a module: it is neither built in nor a file.
var ErrNoModule = errors.New("the kernel lacks a module")

// Module is a kernel module, ready to be loaded.
type Module struct {
	Name string
	Data []byte // an ELF file
}

// Load reads the modules of these names, and the modules that they depend on, from their files. It returns them in the
// order in which they can be loaded, without those that are built into the kernel.
func (k Kernel) Load(names ...string) ([]Module, error) {
	paths, err := k.withDependencies(names)
	if err != nil {
		return nil, err
	}
	var list []Module
	for _, path := range paths {
		data, err := readModule(filepath.Join(k.Modules, path))
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		if release := moduleRelease(data); release != "" && release != k.Release {
			return nil, fmt.Errorf("kernel %s is %s, and its module %s is of %s: put the modules of %s there: %w", k.Name,
				k.Release, filepath.Join(k.Modules, path), release, k.Release, ErrNoModule)
		}
		list = append(list, Module{moduleName(path), data})
	}
	return list, nil
}

// moduleRelease returns the release of the kernel that a module is for, from the text "vermagic" in its file. It is
// empty if the file has no such text.
func moduleRelease(module []byte) string {
	_, text, _ := bytes.Cut(module, []byte("\x00vermagic="))
	release, _, _ := bytes.Cut(text[:min(len(text), 256)], []byte(" "))
	return string(release)
}

// withDependencies returns the files of these modules and of all modules that they need, as paths below k.Modules. Each
// comes after those that it needs.
func (k Kernel) withDependencies(names []string) ([]string, error) {
	index, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	needs := parseDependencies(string(index))
	builtin, err := os.ReadFile(filepath.Join(k.Modules, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	inside := map[string]bool{} // names of modules that are built in
	for line := range strings.Lines(string(builtin)) {
		inside[moduleName(strings.TrimSpace(line))] = true
	}
	byName := map[string]string{} // paths by the modules' names
	for path := range needs {
		byName[moduleName(path)] = path
	}
	var order []string
	for _, name := range names {
		path, found := byName[name]
		switch {
		case found:
			order = append(order, needs[path]...)
			order = append(order, path)
		case !inside[name]:
			return nil, fmt.Errorf("kernel %s: %s (%s): not below %s: give a kernel that has it, as Debian's has: %w", k.Name,
				name, k.Release, k.Modules, ErrNoModule)
		}
	}
	return withoutRepeats(order), nil
}

// parseDependencies reads the text of modules.dep. A line is "PATH: PATHS": a module and the modules that it needs, of
// which the last is to be loaded first. It returns, by the module's path, what it needs in the order of loading.
func parseDependencies(text string) map[string][]string {
	needs := map[string][]string{}
	for line := range strings.Lines(text) {
		path, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || path == "" {
			continue
		}
		fields := strings.Fields(rest)
		before := make([]string, 0, len(fields))
		for i := len(fields) - 1; i >= 0; i-- {
			before = append(before, fields[i])
		}
		needs[path] = before
	}
	return needs
}

// moduleName returns the name of the module in a file: "9pnet_virtio" for "kernel/net/9p/9pnet_virtio.ko.xz".
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// readModule reads a module's file, and decompresses it.
func readModule(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	if err != nil {
		return nil, err
	}
	var command []string
	switch filepath.Ext(path) {
	case ".ko":
		return data, nil
	case ".gz":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w (%w)", path, ErrDamaged, err)
		}
		data, err := io.ReadAll(io.LimitReader(r, maxImage))
		if err != nil {
			err = fmt.Errorf("%s: %w (%w)", path, ErrDamaged, err)
		}
		return data, err
	case ".xz":
		command = []string{"xz", "-dc"}
	case ".zst":
		command = []string{"zstd", "-dcq"}
	default:
		return nil, fmt.Errorf("%s: compressed in an unknown way", path)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("%s: %w (%s: %s)", path, ErrDamaged, command[0], bytes.TrimSpace(failed.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf(
			"decompressing %s: %w: install %s", path, err, map[string]string{"xz": "xz-utils", "zstd": "zstd"}[command[0]])
	}
	return out, nil
}

// withoutRepeats returns the list with only the first of equal elements.
func withoutRepeats(list []string) (once []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			once = append(once, s)
		}
	}
	return once
}
