package kernel_test

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/kernel"
)

// archive is a Debian archive in a folder. It is the only source that apt-get knows in a test.
type archive struct{ folder, suite string }

// newArchive makes an archive with the packages of a kernel, and has apt-get use it. installedKiB is the size that the
// kernel's package says to take when it is installed.
func newArchive(t *testing.T, installedKiB int) archive {
	t.Helper()
	a := archive{t.TempDir(), "bookworm"}
	const image = "linux-image-6.1.0-9-amd64"
	files := a.addPackage(t, "linux-image-amd64", "6.1.9-1", "Depends: "+image+" (= 6.1.9-1)\n", nil) +
		a.addPackage(t, image, "6.1.9-1", fmt.Sprintf("Installed-Size: %d\n", installedKiB), map[string]string{
			"boot/vmlinuz-6.1.0-9-amd64":                string(bzImage("6.1.0-9-amd64 (built here)")),
			"boot/config-6.1.0-9-amd64":                 "CONFIG_NET=y\n",
			"lib/modules/6.1.0-9-amd64/modules.builtin": "", "lib/modules/6.1.0-9-amd64/modules.order": "",
		})
	write(t, filepath.Join(a.folder, "Packages"), files)
	sum := sha256.Sum256([]byte(files))
	write(t, filepath.Join(a.folder, "Release"),
		fmt.Sprintf("Origin: here\nSuite: %s\nCodename: %s\nSHA256:\n %x %d Packages\n", a.suite, a.suite, sum, len(files)))
	a.configureApt(t, "file:"+a.folder)
	return a
}

// addPackage builds a package and returns its paragraph for the archive's list of packages. more has further fields of
// its control file, files the contents of its files by path.
func (a archive) addPackage(t *testing.T, name, version, more string, files map[string]string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	fields := fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\n%s", name, version, more)
	write(t, filepath.Join(tree, "DEBIAN", "control"), fields+"Description: for a test\n")
	for path, text := range files {
		write(t, filepath.Join(tree, path), text)
	}
	file := fmt.Sprintf("%s_%s_amd64.deb", name, version)
	runCommand(t, "dpkg-deb", "-Znone", "-b", tree, filepath.Join(a.folder, file))
	data, err := os.ReadFile(filepath.Join(a.folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(
		"%sFilename: ./%s\nSize: %d\nSHA256: %x\nDescription: for a test\n\n", fields, file, len(data), sha256.Sum256(data))
}

// configureApt has apt-get use only this source (a URL), and keep its state in a temporary folder.
func (a archive) configureApt(t *testing.T, source string) {
	t.Helper()
	state := t.TempDir()
	for _, folder := range []string{"lists/partial", "cache/archives/partial", "parts", "preferences"} {
		if err := os.MkdirAll(filepath.Join(state, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(state, "sources.list"), "deb [trusted=yes arch=amd64] "+source+" ./\n")
	write(t, filepath.Join(state, "apt.conf"), fmt.Sprintf(
		`Dir::State "%[1]s"; Dir::State::Lists "%[1]s/lists"; Dir::Cache "%[1]s/cache"; Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "%[1]s/parts"; Dir::Etc::Parts "%[1]s/parts"; Dir::Etc::PreferencesParts "%[1]s/preferences"; Dir::State::Status "/dev/null"; APT::Sandbox::User "root"; APT::Architecture "amd64"; Acquire::Languages "none";
`, state))
	t.Setenv("APT_CONFIG", filepath.Join(state, "apt.conf"))
	_ = exec.Command("apt-get", "-q", "update").Run() // an error: there is nothing at the source
}

// serveBroken has apt-get use the archive over HTTP. The connection breaks in the middle of each package.
func (a archive) serveBroken(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".deb") {
			http.ServeFile(w, r, filepath.Join(a.folder, filepath.Clean(r.URL.Path)))
			return
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(make([]byte, 1000)) // an error: the client has gone
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	a.configureApt(t, server.URL)
}

// bzImage returns the header of a bzImage with this text of a version.
func bzImage(version string) []byte {
	image := make([]byte, 0x400)
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x20f)
	binary.LittleEndian.PutUint16(image[0x20e:], 0x300-0x200)
	binary.LittleEndian.PutUint16(image[0x236:], 1)
	copy(image[0x300:], version)
	return image
}

// write writes a file, and makes its folder.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runCommand runs a command, and fails the test if it fails.
func runCommand(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func noStatus(string) {}

// TestFetch fetches a kernel with apt-get from an archive on this machine, fetches it again, and removes it.
func TestFetch(t *testing.T) {
	newArchive(t, 100)
	p := kernel.Places{Cache: filepath.Join(t.TempDir(), "kernels")}
	left := filepath.Join(p.Cache, ".fetching-1", "boot", "vmlinuz-1")
	write(t, left, "half of it")
	write(t, filepath.Join(p.Cache, ".fetching-1", "name"), "debian")
	if list := p.Fetched(); len(list) != 0 {
		t.Errorf("a half fetched kernel is listed: %v", list)
	}
	if _, err := p.Find("debian"); !errors.Is(err, kernel.ErrUnknown) ||
		!strings.Contains(err.Error(), "kernel fetch debian") {
		t.Errorf("before: %v", err)
	}
	k, err := p.Fetch(t.Context(), "debian", noStatus)
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
	var messages []string
	if again, err := p.Fetch(t.Context(), "debian", func(text string) { messages = append(messages, text) }); err != nil ||
		again != k || strings.Contains(strings.Join(messages, " "), "unpacking") {
		t.Errorf("again: %+v, %v, said %q", again, err, messages)
	}
	fetchDamaged(t, p, k)
	if removed, err := p.Remove(t.Context(), k.Release, noStatus); err != nil || len(removed) != 1 ||
		len(p.Fetched()) != 0 {
		t.Errorf("removed %v, %v, and listed are %v", removed, err, p.Fetched())
	}
	if _, err := p.Remove(t.Context(), "debian", noStatus); !errors.Is(err, kernel.ErrUnknown) {
		t.Errorf("removed again: %v", err)
	}
	if entries, err := os.ReadDir(p.Cache); err != nil || len(entries) != 1 { // .lock
		t.Errorf("left in the cache: %v, %v", entries, err)
	}
}

// fetchDamaged: Fetch fetches a kernel again if one of its files has changed or is missing.
func fetchDamaged(t *testing.T, p kernel.Places, k kernel.Kernel) {
	t.Helper()
	for name, damage := range map[string]func() error{
		"cut":     func() error { return os.Truncate(k.Image, 0x3f0) },
		"removed": func() error { return os.Remove(filepath.Join(k.Modules, "modules.dep")) },
		"config":  func() error { return os.Remove(filepath.Join(k.Modules, "config")) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		again, err := p.Fetch(t.Context(), "debian", noStatus)
		if err != nil || again != k {
			t.Errorf("%s: %+v, %v", name, again, err)
			continue
		}
		if info, err := os.Stat(k.Image); err != nil || info.Size() != 0x400 || k.Check() != nil {
			t.Errorf("%s: not whole again: %v, %v", name, info, err)
		}
	}
}

// TestFetchWaits: Fetch waits while another process has the cache's lock. The end of its context ends the wait.
func TestFetchWaits(t *testing.T) {
	p := kernel.Places{Cache: t.TempDir()}
	lock, err := os.Create(filepath.Join(p.Cache, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := p.Fetch(ctx, "debian", func(text string) {
		if !strings.Contains(text, p.Cache) {
			t.Errorf("it says %q", text)
		}
		cancel()
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ended with %v", err)
	}
}

// TestOffers: Offers lists the kernels of apt's sources, none if these have none. Without apt it is an error.
func TestOffers(t *testing.T) {
	a := newArchive(t, 100)
	offers, err := kernel.Offers(t.Context())
	if want := (kernel.Offer{Name: "debian", Version: "6.1.9-1"}); err != nil || len(offers) != 1 || offers[0] != want {
		t.Errorf("%v, %v", offers, err)
	}
	a.configureApt(t, "file:"+t.TempDir())
	if offers, err := kernel.Offers(t.Context()); err != nil || len(offers) > 0 {
		t.Errorf("of an empty source: %v, %v", offers, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := kernel.Offers(t.Context()); err == nil || !errors.Is(err, kernel.ErrProgram) ||
		!strings.Contains(err.Error(), "apt-cache") {
		t.Errorf("without apt: %v", err)
	}
	if _, err := (kernel.Places{Cache: t.TempDir()}).Fetch(t.Context(), "debian", noStatus); !errors.Is(
		err, kernel.ErrProgram) || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("fetching without apt: %v", err)
	}
}

// TestFetchFails: the error of a failed Fetch tells the cause, and no kernel is left in the cache.
func TestFetchFails(t *testing.T) {
	p := kernel.Places{Cache: filepath.Join(t.TempDir(), "kernels")}
	check := func(name string, want error, text string) {
		t.Helper()
		_, err := p.Fetch(t.Context(), name, noStatus)
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
	a.serveBroken(t)
	check("debian", kernel.ErrNetwork, "linux-image")
	check("debian:../../x", kernel.ErrSuite, `"../../x"`)
	check("debian:", kernel.ErrSuite, `""`)
	if _, err := p.Fetch(t.Context(), "fedora", noStatus); !errors.Is(err, kernel.ErrUnknown) {
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
	if _, err := p.Fetch(t.Context(), "debian", noStatus); !errors.Is(err, kernel.ErrSpace) {
		t.Errorf("want %v, got %v", kernel.ErrSpace, err)
	}
	if list := p.Fetched(); len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
}

// TestImagesThatAreNoKernels: Find refuses files that are no kernels for x86-64, and the error says what they are.
func TestImagesThatAreNoKernels(t *testing.T) {
	old, narrow, arm := bzImage("2.6.20 "), bzImage("6.1.0 "), bzImage("")
	copy(arm[56:], "ARM\x64")
	binary.LittleEndian.PutUint16(old[0x206:], 0x0205)
	binary.LittleEndian.PutUint16(narrow[0x236:], 0)
	for name, c := range map[string]struct {
		image []byte
		want  error
		text  string
	}{
		"text": {[]byte("a letter"), kernel.ErrForm, "neither"}, "old": {old, kernel.ErrForm, "2.6.25"},
		"narrow": {narrow, kernel.ErrForm, "32 bits"},
		"alone":  {bzImage("6.1.0-9 x"), syscall.ENOENT, "depmod"}, "elf": {[]byte(elf.ELFMAG), kernel.ErrForm, "version"},
		"arm64": {arm, kernel.ErrForm, "arm64"}, "elf for arm64": {elfFor(t, elf.EM_AARCH64), kernel.ErrForm, "AARCH64"},
		"Linux 4.4": {bzImage("4.4.302 x"), kernel.ErrForm, "4.5"},
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
	pipe := filepath.Join(t.TempDir(), "vmlinuz")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (kernel.Places{}).Find(pipe); !errors.Is(err, kernel.ErrForm) {
		t.Errorf("a pipe: %v", err)
	}
}

// elfFor returns the header of an ELF file for a kind of machine.
func elfFor(t *testing.T, machine elf.Machine) []byte {
	t.Helper()
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(header.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	data, err := binary.Append(nil, binary.LittleEndian, header)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLayouts: Find finds the modules of a kernel in all places where packages and builders put them. If there are only
// modules of another release, the error names that release.
func TestLayouts(t *testing.T) {
	for _, c := range []struct{ given, image, modules string }{
		{"pkg/boot/vmlinuz-6.1.0-9", "pkg/boot/vmlinuz-6.1.0-9", "pkg/lib/modules"},
		{"pkg", "pkg/boot/vmlinuz-6.1.0-9", "pkg/lib/modules"},
		{"vmlinuz", "vmlinuz", "modules"}, {"vmlinuz", "vmlinuz", "lib/modules"},
	} {
		folder := t.TempDir()
		given := filepath.Join(folder, c.given)
		write(t, filepath.Join(folder, c.image), string(bzImage("6.1.0-9 (built here)")))
		write(t, filepath.Join(folder, c.modules, "6.1.0-8", "modules.dep"), "")
		if _, err := (kernel.Places{}).Find(given); err == nil ||
			!strings.Contains(err.Error(), "there are those of 6.1.0-8") || !strings.Contains(err.Error(), "depmod") {
			t.Errorf("%+v: with modules of another release: %v", c, err)
		}
		want := filepath.Join(folder, c.modules, "6.1.0-9")
		write(t, filepath.Join(want, "modules.dep"), "")
		if k, err := (kernel.Places{}).Find(given); err != nil || k.Name != given || k.Release != "6.1.0-9" ||
			k.Modules != want {
			t.Errorf("%+v: %+v, %v", c, k, err)
		}
	}
}

// TestModulesInOrder: the modules that a module needs come before it, each once. Built-in ones are left out.
func TestModulesInOrder(t *testing.T) {
	folder := t.TempDir()
	k := kernel.Kernel{Name: "k", Release: "1", Modules: folder}
	write(t, filepath.Join(folder, "modules.dep"),
		"kernel/c-d.ko: kernel/b.ko kernel/a.ko\nkernel/b.ko: kernel/a.ko\nkernel/a.ko:\nkernel/packed.ko.xz:\n")
	write(t, filepath.Join(folder, "modules.builtin"), "kernel/inside.ko\n")
	for _, name := range []string{"a", "b", "c-d", "packed"} {
		write(t, filepath.Join(folder, "kernel", name+".ko"), "module "+name)
	}
	runCommand(t, "xz", filepath.Join(folder, "kernel", "packed.ko"))
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

// FuzzBootable: no content of a kernel's file makes the program panic.
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
