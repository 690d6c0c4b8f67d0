package kernel_test

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/kernel"
)

// archive is a Debian archive in a folder, which apt-get knows alone.
type archive struct{ folder, suite string }

// newArchive makes an archive with packages of a kernel, and has apt-get use it.
func newArchive(t *testing.T, installedKiB int) archive {
	t.Helper()
	a := archive{t.TempDir(), "bookworm"}
	const image = "linux-image-6.1.0-9-amd64"
	files := a.pack(t, "linux-image-amd64", "6.1.9-1", "Depends: "+image+" (= 6.1.9-1)\n", nil) +
		a.pack(t, image, "6.1.9-1", fmt.Sprintf("Installed-Size: %d\n", installedKiB), map[string]string{
			"boot/vmlinuz-6.1.0-9-amd64": string(bzImage("6.1.0-9-amd64 (built here)")), "boot/config-6.1.0-9-amd64": "CONFIG_NET=y\n",
			"lib/modules/6.1.0-9-amd64/modules.builtin": "", "lib/modules/6.1.0-9-amd64/modules.order": "",
		})
	write(t, filepath.Join(a.folder, "Packages"), files)
	sum := sha256.Sum256([]byte(files))
	write(t, filepath.Join(a.folder, "Release"), fmt.Sprintf("Origin: here\nSuite: %s\nCodename: %s\nSHA256:\n %x %d Packages\n", a.suite, a.suite, sum, len(files)))
	a.use(t, "file:"+a.folder)
	return a
}

// pack builds a package and returns its paragraph in the archive's list.
func (a archive) pack(t *testing.T, name, version, more string, files map[string]string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	fields := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\n%s", name, version, more)
	write(t, filepath.Join(tree, "DEBIAN", "control"), fields+"Description: for a test\n")
	for path, text := range files {
		write(t, filepath.Join(tree, path), text)
	}
	file := fmt.Sprintf("%s_%s_amd64.deb", name, version)
	command(t, "dpkg-deb", "-Znone", "-b", tree, filepath.Join(a.folder, file))
	data, err := os.ReadFile(filepath.Join(a.folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\nDescription: for a test\n\n", fields, file, len(data), sha256.Sum256(data))
}

// use has apt-get read this source alone, with state of its own.
func (a archive) use(t *testing.T, source string) {
	t.Helper()
	state := t.TempDir()
	for _, folder := range []string{"lists/partial", "cache/archives/partial", "parts", "preferences"} {
		if err := os.MkdirAll(filepath.Join(state, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(state, "sources.list"), "deb [trusted=yes arch=amd64] "+source+" ./\n")
	write(t, filepath.Join(state, "apt.conf"), fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::Lists "%[1]s/lists"; Dir::Cache "%[1]s/cache"; Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "%[1]s/parts"; Dir::Etc::Parts "%[1]s/parts"; Dir::Etc::PreferencesParts "%[1]s/preferences"; Dir::State::Status "/dev/null"; APT::Sandbox::User "root"; APT::Architecture "amd64"; Acquire::Languages "none";
`, state))
	t.Setenv("APT_CONFIG", filepath.Join(state, "apt.conf"))
	_ = exec.Command("apt-get", "-q", "update").Run() // an error: there is nothing at the source
}

// bzImage is the header of one, with a version's text.
func bzImage(version string) []byte {
	image := make([]byte, 0x400)
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x20f)
	binary.LittleEndian.PutUint16(image[0x20e:], 0x300-0x200)
	binary.LittleEndian.PutUint16(image[0x236:], 1)
	copy(image[0x300:], version)
	return image
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func quiet(string) {}

// TestFetch gets a kernel with apt-get from an archive of this machine.
func TestFetch(t *testing.T) {
	newArchive(t, 100)
	p := kernel.Places{Cache: filepath.Join(t.TempDir(), "kernels")}
	left := filepath.Join(p.Cache, ".fetching-1", "boot", "vmlinuz-1")
	write(t, left, "half of it")
	write(t, filepath.Join(p.Cache, ".fetching-1", "name"), "debian")
	if list := p.Fetched(); len(list) != 0 {
		t.Errorf("a half fetched kernel is listed: %v", list)
	}
	if _, err := p.Find("debian"); !errors.Is(err, kernel.ErrUnknown) || !strings.Contains(err.Error(), "kernel fetch debian") {
		t.Errorf("before: %v", err)
	}
	k, err := p.Fetch(t.Context(), "debian", quiet)
	if err != nil || k.Release != "6.1.0-9-amd64" || k.Name != "debian" {
		t.Fatalf("%+v, %v", k, err)
	}
	for _, name := range []string{"debian", "6.1.0-9-amd64", k.Image} {
		if found, err := p.Find(name); err != nil || found.Image != k.Image || found.Modules != k.Modules {
			t.Errorf("Find(%q) is %+v, %v", name, found, err)
		}
	}
	if _, err := os.Stat(filepath.Join(k.Modules, "config")); err != nil {
		t.Error(err)
	}
	entries, err := filepath.Glob(filepath.Join(p.Cache, "*"))
	if err != nil || len(entries) != 2 { // the kernel and .lock
		t.Errorf("left in the cache: %v, %v", entries, err)
	}
	var said []string
	if again, err := p.Fetch(t.Context(), "debian", func(text string) { said = append(said, text) }); err != nil || again != k || strings.Contains(strings.Join(said, " "), "unpacking") {
		t.Errorf("again: %+v, %v, said %q", again, err, said)
	}
}

// TestFetchFails shows that each failure has its reason, and leaves no kernel behind.
func TestFetchFails(t *testing.T) {
	p := kernel.Places{Cache: filepath.Join(t.TempDir(), "kernels")}
	check := func(name string, want error, text string) {
		t.Helper()
		_, err := p.Fetch(t.Context(), name, quiet)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: want %v with %q, got: %v", name, want, text, err)
		}
		if entries, err := filepath.Glob(filepath.Join(p.Cache, "*")); err != nil || len(entries) != 1 {
			t.Errorf("%s left %v, %v", name, entries, err)
		}
	}
	a := newArchive(t, 1<<40)
	check("debian:nowhere", kernel.ErrSuite, "sources.list")
	check("debian", kernel.ErrSpace, "XDG_CACHE_HOME")
	check("debian:bookworm", kernel.ErrSpace, "XDG_CACHE_HOME")
	for _, file := range []string{"linux-image-6.1.0-9-amd64_6.1.9-1_amd64.deb", "linux-image-amd64_6.1.9-1_amd64.deb"} {
		if err := os.Remove(filepath.Join(a.folder, file)); err != nil {
			t.Fatal(err)
		}
	}
	check("debian", kernel.ErrNetwork, "linux-image-amd64")
	if _, err := p.Fetch(t.Context(), "fedora", quiet); !errors.Is(err, kernel.ErrUnknown) {
		t.Errorf("another distribution: %v", err)
	}
}

// TestFetchOnFullDisk: the disk fills while the package is copied.
func TestFetchOnFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a small disk")
	}
	newArchive(t, 1)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	p := kernel.Places{Cache: filepath.Join(small, "kernels")}
	if _, err := p.Fetch(t.Context(), "debian", quiet); !errors.Is(err, kernel.ErrSpace) {
		t.Errorf("want %v, got %v", kernel.ErrSpace, err)
	}
	if list := p.Fetched(); len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
}

// TestForm refuses files that are no kernels for x86-64, by what they are.
func TestForm(t *testing.T) {
	old, narrow := bzImage("2.6.20 "), bzImage("6.1.0 ")
	binary.LittleEndian.PutUint16(old[0x206:], 0x0205)
	binary.LittleEndian.PutUint16(narrow[0x236:], 0)
	for name, c := range map[string]struct {
		image []byte
		want  error
		text  string
	}{
		"text": {[]byte("a letter"), kernel.ErrForm, "neither"}, "old": {old, kernel.ErrForm, "2.6.25"}, "narrow": {narrow, kernel.ErrForm, "32 bits"},
		"alone": {bzImage("6.1.0-9 x"), syscall.ENOENT, "depmod"}, "elf": {[]byte(elf.ELFMAG), kernel.ErrForm, "version"},
	} {
		file := filepath.Join(t.TempDir(), "vmlinuz")
		write(t, file, string(c.image))
		if _, err := (kernel.Places{}).Find(file); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: want %v with %q, got: %v", name, c.want, c.text, err)
		}
	}
	if _, err := (kernel.Places{}).Find("./nowhere"); !errors.Is(err, kernel.ErrUnknown) {
		t.Errorf("a path without a file: %v", err)
	}
}

// TestModulesInOrder: what a module needs comes before it, once, and built-in ones are left out.
func TestModulesInOrder(t *testing.T) {
	folder := t.TempDir()
	k := kernel.Kernel{Name: "k", Release: "1", Modules: folder}
	write(t, filepath.Join(folder, "modules.dep"), "kernel/c-d.ko: kernel/b.ko kernel/a.ko\nkernel/b.ko: kernel/a.ko\nkernel/a.ko:\nkernel/packed.ko.xz:\n")
	write(t, filepath.Join(folder, "modules.builtin"), "kernel/inside.ko\n")
	for _, name := range []string{"a", "b", "c-d", "packed"} {
		write(t, filepath.Join(folder, "kernel", name+".ko"), "module "+name)
	}
	command(t, "xz", filepath.Join(folder, "kernel", "packed.ko"))
	list, err := k.Load("b", "inside", "c_d", "packed")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		got = append(got, m.Name+"="+string(m.Data))
	}
	if want := "a=module a, b=module b, c_d=module c-d, packed=module packed"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if _, err := k.Load("9p"); !errors.Is(err, kernel.ErrNoModule) || !strings.Contains(err.Error(), "9p") {
		t.Errorf("a module that is not there: %v", err)
	}
}

// FuzzBootable: no file that is said to be a kernel ends the program.
func FuzzBootable(f *testing.F) {
	f.Add(bzImage("6.1.0-9 x"))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, image []byte) {
		file := filepath.Join(t.TempDir(), "vmlinuz")
		write(t, file, string(image))
		_, _ = kernel.Kernel{Image: file}.Bootable()
		_, _ = kernel.Places{}.Find(file)
	})
}
