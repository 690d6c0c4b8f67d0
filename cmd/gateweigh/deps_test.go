// Tests of the installation of packages by .ci/deps.

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// TestDepsOfQuick: make run installs exactly the packages that the experiment quick needs.
func TestDepsOfQuick(t *testing.T) {
	e := finish(t, command(t, t.TempDir(), "list", "--json"))
	var l listing
	if err := json.Unmarshal([]byte(e.stdout), &l); err != nil {
		t.Fatalf("exit %d, %v", e.code, err)
	}
	quick := l.Experiments[0] // the list begins with it
	needs := slices.Clone(quick.Needs)
	for _, d := range l.Devices {
		if slices.Contains(quick.Devices, d.Name) {
			needs = append(needs, d.Needs...)
		}
	}
	var want []string
	for _, n := range needs {
		if n.Package != "" {
			want = append(want, n.Package)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if got := installed(t, "run"); !slices.Equal(got, want) {
		t.Errorf(".ci/deps run installs\n%v, quick needs\n%v", got, want)
	}
	all := installed(t)
	for _, name := range append(want, "chromium", "podman", "qemu-system-x86") {
		if !slices.Contains(all, name) {
			t.Errorf(".ci/deps does not install %s", name)
		}
	}
}

// installed returns the packages, sorted, that .ci/deps would install on a machine that has none of them.
func installed(t *testing.T, args ...string) []string {
	t.Helper()
	deps, err := filepath.Abs("../../.ci/deps")
	if err != nil {
		t.Fatal(err)
	}
	// .ci/deps prints the packages and ends, because it finds neither their programs nor apt-get.
	const bare = `mount -t tmpfs none /usr/sbin; mkdir /tmp/gwd-empty; PATH=/tmp/gwd-empty exec /bin/bash "$@"`
	cmd := exec.Command("unshare", slices.Concat([]string{"-m", "sh", "-ec",
		"mount -t tmpfs none /tmp; mount -t tmpfs none /usr/lib/ipsec 2>/dev/null || :; " + bare, "sh", deps}, args)...)
	out, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`^missing: (.*) \(Debian's package names\)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("%v: %s", err, out)
	}
	list := strings.Fields(string(found[1]))
	slices.Sort(list)
	return slices.Compact(list)
}

// TestKernelIsFetchedBeforeTests: make test fetches the kernel before it starts the tests, which have no network.
func TestKernelIsFetchedBeforeTests(t *testing.T) {
	out, err := exec.Command("make", "-n", "-C", "../..", "test").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(out)
	deps, fetch, tests := strings.Index(text, ".ci/deps"), strings.Index(text, "gateweigh kernel fetch --missing"),
		strings.Index(text, ".ci/suite")
	if deps < 0 || fetch < deps || tests < fetch {
		t.Errorf("packages, kernel, tests come at %d, %d, %d in:\n%s", deps, fetch, tests, text)
	}
}

// TestKernelThatIsHereNeedsNoServer: kernel fetch --missing asks no server for a kernel that was fetched before.
func TestKernelThatIsHereNeedsNoServer(t *testing.T) {
	k := labtest.Debian(t)
	e := finish(t, under(command(t, t.TempDir(), "kernel", "fetch", "--missing"), "unshare", "--net"))
	if e.code != 0 || !strings.Contains(e.stdout, k.Release) {
		t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
}
