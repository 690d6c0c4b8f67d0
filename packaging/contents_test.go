package packaging

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

var made = flag.String("made", "", "a folder with packages of all architectures, which are checked too")

// unpack has a shell command for each format, that writes the package's files below the working directory. $0 is the
// package. rpm installs into a root of its own, with a database there.
var unpack = map[string]string{
	".deb": `dpkg-deb -x "$0" .`,
	".rpm": `rpm --root "$PWD" --dbpath /db --ignorearch --nodeps --noscripts -i "$0" && rm -r db`,
	".apk": `tar -xzf "$0" && rm .[A-Za-z]*`,
	// of the image's blobs, layers are compressed
	".tar": `tar -xf "$0"; for b in blobs/sha256/*; do ! gzip -t $b 2>&- || tar -xzf $b; done
		rm -r blobs index.json oci-layout`,
	".ipk": `tar -xzOf "$0" ./data.tar.gz | tar -xz`,
}

// processors has the file header's words for names of architectures in names of packages.
var processors = map[*regexp.Regexp]elf.Machine{
	regexp.MustCompile(`[._](amd64|x86_64)\.`):           elf.EM_X86_64,
	regexp.MustCompile(`[._](arm64|aarch64.*)\.`):        elf.EM_AARCH64,
	regexp.MustCompile(`[._](armhf|arm|arm_cortex.*)\.`): elf.EM_ARM,
}

// checkMade: packages of all architectures are as they should be, lintian finds no error in them, and the same sources
// make the same bytes.
func checkMade(t *testing.T, folder string) {
	t.Helper()
	checkAll(t, folder)
	checked := 0
	for name := range sums(t, folder) {
		if filepath.Ext(name) == ".deb" {
			checked++
			file := filepath.Join(folder, name)
			out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error", file).CombinedOutput()
			if err != nil {
				t.Errorf("lintian: %v\n%s", err, out)
			}
		}
	}
	if checked == 0 {
		t.Errorf("%s has no packages for Debian", folder)
	}
	first := sums(t, pack(t, "v1.2.3", "gatewayd", "deb oci"))
	second := sums(t, pack(t, "v1.2.3", "gatewayd", "deb oci"))
	if !maps.Equal(first, second) {
		t.Errorf("the packages are %v, and made again %v", first, second)
	}
}

// checkAll: every package in a folder has the files of its list in testdata (-update writes them), and its program is
// for the processor in its name.
func checkAll(t *testing.T, folder string) {
	t.Helper()
	if len(sums(t, folder)) == 0 {
		t.Fatalf("%s has no packages", folder)
	}
	for name := range sums(t, folder) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(folder, name)
			tree := extract(t, file)
			program, _, _ := strings.Cut(name, "_")
			program, _, _ = strings.Cut(program, "-")
			goldentest.Compare(t, "testdata/"+program+filepath.Ext(name)+".txt", list(t, tree))
			checkProcessor(t, name, tree, program)
		})
	}
}

// sums returns the hash of each package in a folder, by name.
func sums(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := os.ReadDir(folder)
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(folder, f.Name()))
		must(t, err)
		all[f.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return all
}

func extract(t *testing.T, file string) (tree string) {
	t.Helper()
	tree = t.TempDir()
	cmd := exec.Command("sh", "-ec", unpack[filepath.Ext(file)], file)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return tree
}

// list returns mode and path of all files in a tree, one a line, in the order of paths. Man pages but the program's
// first one, examples and agents of other architectures are left out: they change with commands.
func list(t *testing.T, tree string) string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		name := strings.TrimPrefix(path, tree)
		if !regexp.MustCompile(`/man/.*-|/gateweigh/examples/|gateweigh-agent-(arm|mips|386|riscv)`).MatchString(name) {
			lines = append(lines, fmt.Sprintf("%s %s\n", info.Mode(), name))
		}
		return err
	}))
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// checkProcessor: the program in the tree is for the processor that the package's name says, and static.
func checkProcessor(t *testing.T, name, tree, program string) {
	t.Helper()
	files, err := filepath.Glob(tree + "/usr/*/" + program)
	must(t, err)
	if program == "gateweigh" && !strings.HasSuffix(name, "pk") {
		files = []string{tree + "/usr/lib/gateweigh/gateweigh"}
	}
	data, err := os.ReadFile(files[0])
	must(t, err)
	f, err := elf.NewFile(bytes.NewReader(data))
	must(t, err)
	for pattern, machine := range processors {
		if pattern.MatchString(name) != (f.Machine == machine) {
			t.Errorf("its program is for %s", f.Machine)
		}
	}
	if f.Section(".interp") != nil {
		t.Error("its program needs libraries")
	}
}
