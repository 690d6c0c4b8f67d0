package main_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// emulators are qemu-user's programs for processes of other architectures.
var emulators = map[string]string{
	"386": "qemu-i386", "amd64": "qemu-x86_64", "arm": "qemu-arm", "arm64": "qemu-aarch64",
	"mips": "qemu-mips", "mipsle": "qemu-mipsel", "riscv64": "qemu-riscv64",
}

const (
	version = "v0-test"
	sources = "0123456789abcdef"
)

// agents are the programs to test, by architecture: those of the folder AGENTS; or this machine's own, ARM's, which
// tests of small boxes build too, and the most different one: big-endian, 32 bits, no floating-point unit.
func agents(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	if dir := os.Getenv("AGENTS"); dir != "" {
		for arch := range emulators {
			list[arch] = filepath.Join(dir, "gateweigh-agent-"+arch)
		}
		return list
	}
	for _, arch := range []string{runtime.GOARCH, "arm", "mips"} {
		list[arch] = built(t, arch)
	}
	return list
}

// folder is where the tests build agents, each once.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "gateweigh-agents-"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// built is an agent made as the Makefile does.
func built(t *testing.T, arch string) string {
	t.Helper()
	file := filepath.Join(folder, "gateweigh-agent-"+arch)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	flags := "-s -w -X main.version=" + version + " -X github.com/gateweigh/gateweigh/lab/agent.Sources=" + sources
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARM=5", "GOMIPS=softfloat", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent for %s: %v\n%s", arch, err, out)
	}
	return file
}

// native reports whether this machine's own processor runs programs of an architecture. qemu-i386 of Debian 12 runs no
// Go program: its threads share what should be the thread's own.
func native(arch string) bool {
	return arch == runtime.GOARCH || arch == "386" && runtime.GOARCH == "amd64"
}

// command runs an agent's program, in an emulator where it is not this machine's.
func command(arch, file string, args ...string) *exec.Cmd {
	if !native(arch) {
		file, args = emulators[arch], slices.Insert(args, 0, file)
	}
	return exec.Command(file, args...)
}

// emulated are the trials that an emulator must do; this machine's own processor must do all.
var emulated = []string{"program", "protocol", "machine", "find",
	"bpf objects", "plans", "frames", "udp streams", "host"}

// permitted is a trial that some machines permit nobody, such as those in containers.
const permitted = "real time"

func TestAgentsTestThemselves(t *testing.T) {
	list := agents(t)
	for _, arch := range slices.Sorted(maps.Keys(list)) {
		t.Run(arch, func(t *testing.T) {
			const most = 12 << 20
			if info, err := os.Stat(list[arch]); err != nil || info.Size() >= most {
				t.Fatalf("%+v, %v: want a file of less than %d bytes", info, err, most)
			}
			out, err := command(arch, list[arch], "--self-test").CombinedOutput()
			t.Logf("%s", out)
			if native(arch) && errors.Is(err, syscall.ENOEXEC) {
				t.Skip("the kernel lacks programs of 32 bits (CONFIG_IA32_EMULATION)")
			}
			if err != nil {
				t.Fatal(err)
			}
			done := map[string]bool{}
			for line := range strings.Lines(string(out)) {
				if name, is := strings.CutPrefix(line, "ok        "); is {
					done[strings.TrimSpace(name[:min(13, len(name))])] = true
				} else if native(arch) && strings.HasPrefix(line, "not here") && !strings.Contains(line, permitted) {
					t.Errorf("this machine's own processor did not do: %s", line)
				}
			}
			for _, name := range emulated {
				if !done[name] {
					t.Errorf("not done: %s", name)
				}
			}
		})
	}
}

// TestAgentsOfOneBuildMatch: the lab takes an agent of another architecture whose sources are its own, and no
// other.
func TestAgentsOfOneBuildMatch(t *testing.T) {
	agent.Version, agent.Sources = version, sources
	options := agent.Options{Run: "test", Host: "box", LogDir: t.TempDir()}
	hello := greet(t, command("mips", built(t, "mips"), options.Args()...))
	if err := hello.Matches(); err != nil || hello.Arch != "mips" {
		t.Errorf("an agent of the same build: %+v, %v", hello, err)
	}
	agent.Sources = "fedcba9876543210"
	if err := hello.Matches(); err == nil || !strings.Contains(err.Error(), "mips") {
		t.Errorf("an agent of other sources: %+v, %v", hello, err)
	}
}

// greet speaks to an agent as the lab does.
func greet(t *testing.T, cmd *exec.Cmd) agent.Hello {
	t.Helper()
	var output bytes.Buffer
	cmd.Stderr = &output
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := agent.NewConn(out, in, "the agent", func() string { return "" })
	defer func() {
		conn.Close()
		<-conn.Done()
		cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hello, err := conn.Hello(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, output.Bytes())
	}
	return hello
}

func TestAgentAloneSaysWhatItIs(t *testing.T) {
	out, err := exec.Command(built(t, runtime.GOARCH)).CombinedOutput()
	if exit, is := err.(*exec.ExitError); !is || exit.ExitCode() != 2 || !bytes.Contains(out, []byte("--self-test")) {
		t.Errorf("%v: %s", err, out)
	}
}
