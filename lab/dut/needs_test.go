package dut

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program puts an executable script on a PATH of its own.
func program(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestMissingNamesProgramsAndRemedies(t *testing.T) {
	needs := []Need{
		{Program: "sh", Package: "dash"},
		{Program: "gwd-b", Package: "gadgets"},
		{Program: "gwd-a", Package: "gadgets"},
		{Program: "gwd-c", Advice: "build it"},
	}
	err := missing("gadget", needs)
	if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "gadget: not on PATH: gwd-a, gwd-b (package gadgets), gwd-c (build it)") {
		t.Errorf("error is %v", err)
	}
	if err := missing("gadget", needs[:1]); err != nil {
		t.Error(err)
	}
}

func TestVersionIsTheProgramsFirstLine(t *testing.T) {
	program(t, "iperf3", "echo; echo 'iperf 3.99 (cJSON)'; echo more; exit 1\n")
	if v := (Need{Program: "iperf3", Package: "iperf3"}).Version(t.Context()); v != "iperf 3.99 (cJSON)" {
		t.Errorf("version %q", v)
	}
	program(t, "dpkg-query", "echo \"$*\"\n")
	program(t, "gwd-unknown", "echo ran >&2; touch \"$0.ran\"\n")
	if v := (Need{Program: "gwd-unknown", Package: "gadgets"}).Version(t.Context()); v != "gadgets -W -f ${Version} gadgets" {
		t.Errorf("version of an unknown program %q, want its package's", v)
	}
	path, err := (Need{Program: "gwd-unknown"}).Path()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".ran"); err == nil {
		t.Error("an unknown program was run")
	}
	if v := (Need{Program: "gwd-absent", Package: "gadgets"}).Version(t.Context()); v != "" {
		t.Errorf("version of a missing program %q", v)
	}
}

// TestVersionTellsBuildsApart: what is weighed is in a run's records also where it is found
// beside the lab, and two builds that call themselves the same are two.
func TestVersionTellsBuildsApart(t *testing.T) {
	versions := map[string]bool{}
	for _, build := range []string{"one", "two"} {
		program(t, "gatewayd", "[ $1 = version ] && echo gatewayd v1\n# build "+build+"\n")
		need := NewGateway("ebpf", 1).Traits().Needs[0]
		v := need.Version(t.Context())
		if need.Program != "gatewayd" || !strings.HasPrefix(v, "gatewayd v1, sha256 ") {
			t.Errorf("%s: version %q", need.Program, v)
		}
		versions[v] = true
	}
	if len(versions) != 2 {
		t.Errorf("versions of two builds: %v", versions)
	}
}

// TestDepsInstallWhatDevicesNeed: the script that prepares a machine knows
// every package that a device of ours asks for.
func TestDepsInstallWhatDevicesNeed(t *testing.T) {
	script, err := os.ReadFile("../../.ci/deps")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		d, err := New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range d.Traits().Needs {
			if n.Package != "" && !strings.Contains(string(script), ":"+n.Package) {
				t.Errorf("%s needs %s: .ci/deps does not install the package %s", name, n.Program, n.Package)
			}
			if n.Remedy() == "" || n.Why == "" {
				t.Errorf("%s needs %s: nothing says why, or what to do without it", name, n.Program)
			}
		}
	}
}
