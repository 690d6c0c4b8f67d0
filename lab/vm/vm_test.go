package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/vm"
)

const envKilled = "GATEWEIGH_TEST_KILLED"

// TestMain lets the test binary be the first process of guests, and a process to be killed.
func TestMain(m *testing.M) {
	vm.RunAs(os.Args)
	if release := os.Getenv(envKilled); release != "" {
		places, err := kernel.Usual()
		var k kernel.Kernel
		if err == nil {
			k, err = places.Find(release)
		}
		if err == nil {
			_, err = vm.Run(context.Background(), vm.Config{Kernel: k, Command: []string{"/bin/sleep", "1000"}, Logs: os.Args[1]})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// debian is Debian's kernel, fetched once.
func debian(t *testing.T) kernel.Kernel {
	t.Helper()
	places, err := kernel.Usual()
	if err != nil {
		t.Skip(err)
	}
	k, err := places.Find(kernel.Debian)
	if errors.Is(err, kernel.ErrUnknown) {
		k, err = places.Fetch(t.Context(), kernel.Debian, func(string) {})
	}
	if errors.Is(err, kernel.ErrNetwork) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// guest runs a shell command in a guest.
type guest struct {
	vm.Ended
	err            error
	share, logs    string
	stdout, stderr string
}

func boot(t *testing.T, k kernel.Kernel, share, script string) guest {
	t.Helper()
	g := guest{share: share, logs: filepath.Join(t.TempDir(), "logs, of a guest")} // QEMU's own separator
	var stdout, stderr bytes.Buffer
	g.Ended, g.err = vm.Run(t.Context(), vm.Config{
		Kernel: k, Command: []string{"/bin/sh", "-c", script}, Dir: share, Env: append(os.Environ(), "NAME=value"), Shares: []string{share}, Logs: g.logs,
		Stdout: &stdout, Stderr: &stderr,
	})
	if errors.Is(g.err, vm.ErrStatic) {
		t.Skip(g.err)
	}
	g.stdout, g.stderr = stdout.String(), stderr.String()
	return g
}

// TestTwoGuests runs two at once: one whose command ends, and one whose kernel panics.
func TestTwoGuests(t *testing.T) {
	k := debian(t)
	one, other := t.TempDir(), t.TempDir()
	t.Run("at once", func(t *testing.T) {
		t.Run("ends", func(t *testing.T) {
			t.Parallel()
			commandEnds(t, k, boot(t, k, one, `
uname -r; echo "$NAME" >&2
touch /etc/gateweigh-test-was-here && echo changed
echo kept > kept.new && mv kept.new kept
modprobe wireguard && test -d /sys/module/wireguard && echo wireguard
ip link add d0 type dummy && echo dummy
: <> /dev/net/tun && test -d /sys/module/tun && echo tun
echo link | cat /dev/stdin > /dev/stdout
test -d /sys/fs/cgroup/init.scope -o -f /sys/fs/cgroup/cgroup.procs && echo cgroup
sleep 1000 & exit 7`))
		})
		t.Run("panics", func(t *testing.T) {
			t.Parallel()
			g := boot(t, k, other, "echo first > measured; echo c > /proc/sysrq-trigger; sleep 1000")
			console, err := os.ReadFile(filepath.Join(g.logs, vm.ConsoleFile))
			if !errors.Is(g.err, vm.ErrPanic) || !strings.Contains(g.err.Error(), "sysrq") || !strings.Contains(g.err.Error(), vm.ConsoleFile) || err != nil || !bytes.Contains(console, []byte("Kernel panic")) {
				t.Errorf("want a panic by sysrq, and its console: %v, %v", g.err, err)
			}
			if text, err := os.ReadFile(filepath.Join(other, "measured")); err != nil || string(text) != "first\n" {
				t.Errorf("what the guest wrote before the panic: %q, %v", text, err)
			}
		})
	})
	if entries, err := os.ReadDir(one); err != nil || len(entries) != 1 {
		t.Errorf("the first guest's folder has %v, %v", entries, err)
	}
}

func commandEnds(t *testing.T, k kernel.Kernel, g guest) {
	t.Helper()
	if want := k.Release + "\nchanged\nwireguard\ndummy\ntun\nlink\ncgroup\n"; g.err != nil || g.Code != 7 || g.stdout != want || g.stderr != "value\n" {
		t.Errorf("exit code %d, %v, printed %q, %q; want 7, %q", g.Code, g.err, g.stdout, g.stderr, want)
	}
	if g.VM.Release != k.Release || g.VM.CPU == "" || g.VM.Accelerator != result.KVM && g.VM.Accelerator != result.TCG {
		t.Errorf("the guest is said to be %+v", g.VM)
	}
	if text, err := os.ReadFile(filepath.Join(g.share, "kept")); err != nil || string(text) != "kept\n" {
		t.Errorf("in the shared folder: %q, %v", text, err)
	}
	if _, err := os.Stat("/etc/gateweigh-test-was-here"); err == nil {
		t.Error("the guest has changed the machine's files")
	}
	if _, err := os.Stat(filepath.Join(g.logs, vm.ConsoleFile)); err == nil {
		t.Error("the console of a guest that ended well was kept")
	}
}

// TestKilled: kill -9 of the process that started a guest ends QEMU too.
func TestKilled(t *testing.T) {
	k := debian(t)
	cmd := exec.Command("/proc/self/exe", t.TempDir())
	cmd.Env = append(os.Environ(), envKilled+"="+k.Release)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	labtest.Await(t, "QEMU", func() bool {
		children = qemus(cmd.Process.Pid)
		return len(children) > 0
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	labtest.Await(t, "the end of QEMU", func() bool {
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil && !strings.Contains(status(pid), "zombie") {
				return false
			}
		}
		return true
	})
}

// qemus are the QEMU processes that a process has started.
func qemus(parent int) (list []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if text := status(pid); strings.Contains(text, fmt.Sprintf("\nPPid:\t%d\n", parent)) && strings.HasPrefix(text, "Name:\tqemu-system") {
			list = append(list, pid)
		}
	}
	return list
}

func status(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return string(text)
}

// TestRefused: what cannot work is said before a guest is started.
func TestRefused(t *testing.T) {
	k := debian(t)
	lacking := k
	lacking.Modules = t.TempDir()
	index, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"modules.dep": bytes.ReplaceAll(index, []byte("/overlay.ko"), []byte("/else.ko")), "modules.builtin": nil} {
		if err := os.WriteFile(filepath.Join(lacking.Modules, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(cfg vm.Config, want error, text string) {
		t.Helper()
		cfg.Command, cfg.Logs = []string{"/bin/true"}, t.TempDir()
		if _, err := vm.Run(t.Context(), cfg); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("want %v with %q, got: %v", want, text, err)
		}
	}
	check(vm.Config{Kernel: lacking}, kernel.ErrNoModule, "overlay")
	check(vm.Config{Kernel: k, MemoryMiB: 1 << 30}, vm.ErrMemory, "--vm-memory")
	t.Setenv("PATH", t.TempDir())
	check(vm.Config{Kernel: k}, vm.ErrNoQEMU, "qemu-system-x86")
}
