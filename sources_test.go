package gateweigh_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdentityOfSources: the Makefile computes an identity of the sources of which agents are built. It changes with
// each of these files (inside), also with files for other architectures. It does not change with other files, and is
// the same on all machines.
func TestIdentityOfSources(t *testing.T) {
	dir := t.TempDir()
	copied := exec.Command("cp", "-a", "--parents", "Makefile", "go.mod", "go.sum", ".ci/sources", "cmd/gateweigh-agent",
		"internal", "lab", "output", "ppp", "quote", "textfile", dir)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	identity := func(env ...string) string {
		t.Helper()
		cmd := exec.Command("make", "-s", "--eval", "identity: ; @echo $(SOURCES)", "identity")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.Output()
		id := strings.TrimSpace(string(out))
		if err != nil || len(id) != 32 {
			t.Fatalf("%v: %q", err, out)
		}
		return id
	}
	before := identity()
	if now := identity("GOARCH=mips"); now != before {
		t.Errorf("on another machine it is %s, and %s here", now, before)
	}
	add := func(file, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file, text string
		inside     bool
	}{
		{"ppp/packet.go", "\n// more\n", true},
		{"ppp/pppoe/frame.go", "\n// more\n", true},
		{"lab/agent/agent.go", "\n// more\n", true},
		{"output/output.go", "\n// more\n", true},
		{"ppp/more_riscv64.go", "package ppp\n", true}, // for one architecture alone
		{"lab/watch/programs_bpfeb.o", "more", true},   // embedded on machines with the other byte order
		{"cmd/gateweigh-agent/main.go", "\n// more\n", true},
		{"go.sum", "\n", true},
		{"ppp/more_test.go", "package ppp\n", false},
		{"lab/report/more.go", "package report\n", false},
		{"ppp/more_windows.go", "package ppp\n", false},
	} {
		add(c.file, c.text)
		if now := identity(); (now != before) != c.inside {
			t.Errorf("with another %s the identity is another: %t, want %t", c.file, now != before, c.inside)
		} else {
			before = now
		}
	}
}
