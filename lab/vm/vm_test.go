package vm_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/vm"
)

// envKilled is set, to a kernel's release, in the environment of a process that TestGuestEndsWithItsParent kills.
const envKilled = "GATEWEIGH_TEST_KILLED"

// TestMain runs the tests. The test binary also is the first process of guests (vm.RunAs), and the process that
// TestGuestEndsWithItsParent kills while it runs a guest.
func TestMain(m *testing.M) {
	vm.RunAs(os.Args)
	if release := os.Getenv(envKilled); release != "" {
		places, err := kernel.UsualPlaces()
		var k kernel.Kernel
		if err == nil {
			k, err = places.Find(release)
		}
		if err == nil {
			_, err = vm.Run(
				context.Background(), vm.Config{Kernel: k, Command: []string{"/bin/sleep", "1000"}, Logs: os.Args[1]})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// guest is the outcome of a shell script that ran in a guest.
type guest struct {
	vm.Ended
	err            error
	share, logs    string // the first shared folder, and vm.Config.Logs
	stdout, stderr string
}

// boot runs a shell script in a guest, in its first shared folder. It sets what cfg leaves open.
func boot(t *testing.T, cfg vm.Config, script string) guest {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if cfg.Stdout == nil {
		cfg.Stdout = &stdout
	}
	if len(cfg.Shares) == 0 {
		cfg.Shares = []string{t.TempDir()}
	}
	cfg.Command, cfg.Dir, cfg.Stderr = []string{"/bin/sh", "-c", script}, cfg.Shares[0], &stderr
	cfg.Env = append(append(os.Environ(), "NAME=value"), cfg.Env...)
	cfg.Logs, cfg.MemoryMiB = cmp.Or(cfg.Logs, filepath.Join(t.TempDir(), "logs, of a guest")), cmp.Or(cfg.MemoryMiB, 768)
	g := guest{share: cfg.Shares[0], logs: cfg.Logs}
	g.Ended, g.err = vm.Run(t.Context(), cfg)
	g.stdout, g.stderr = stdout.String(), stderr.String()
	return g
}

// console checks that the console of a guest that failed is in a file, that the error names the file, and that it has a
// text.
func (g guest) console(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(g.logs, vm.ConsoleFile)
	if console, err := os.ReadFile(file); err != nil || !bytes.Contains(console, []byte(text)) ||
		!strings.Contains(g.err.Error(), file) {
		t.Errorf("want the console with %q, and its name: %v, %v", text, g.err, err)
	}
}

// TestGuests runs several guests at the same time, of which one ends without an error.
func TestGuests(t *testing.T) {
	k, temporary := labtest.Guests(t), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Run("at once", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, kernel.Kernel){
			"ends": testCommandEnds, "panics": testPanics, "killed": killedAfterRecord, "memory": outOfMemory,
			"boot": testNeverBoots,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, k)
			})
		}
	})
	if left, err := filepath.Glob(filepath.Join(temporary, "gateweigh-*")); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

// testCommandEnds: a command in a guest can use the machine's programs and the kernel's modules. It writes shared
// folders, and a full disk is full for it too. Run returns its output and exit code.
func testCommandEnds(t *testing.T, k kernel.Kernel) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "greet"), []byte("#!/bin/sh\necho greeted\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + os.Getenv("PATH") + ":" + programs + ":" + filepath.Join(programs, "none")
	g := boot(t, vm.Config{Kernel: k, Shares: []string{t.TempDir(), smallDisk(t)}, Env: []string{path}}, `
uname -r; echo "$NAME" >&2
touch /etc/gateweigh-test-was-here && echo changed
echo kept > kept.new && mv kept.new kept
modprobe wireguard && test -d /sys/module/wireguard && echo wireguard
ip link add d0 type dummy && echo dummy
: <> /dev/net/tun && test -d /sys/module/tun && echo tun
echo link | cat /dev/stdin > /dev/stdout
test -d /sys/fs/cgroup/init.scope -o -f /sys/fs/cgroup/cgroup.procs && echo cgroup
small=$(mount | sed -n 's/^share1 on \([^ ]*\) .*/\1/p')
LC_ALL=C dd if=/dev/zero of="$small/large" bs=64k count=100 2>&1 | grep -o 'No space left on device'
greet
sleep 1000 & exit 7`)
	if want := k.Release +
		"\nchanged\nwireguard\ndummy\ntun\nlink\ncgroup\nNo space left on device\ngreeted\n"; g.err != nil || g.Code != 7 ||
		g.stdout != want || g.stderr != "value\n" {
		t.Errorf("exit code %d, %v, printed %q, %q; want 7, %q", g.Code, g.err, g.stdout, g.stderr, want)
	}
	if g.VM.Release != k.Release || g.VM.CPU == "" || g.VM.Accelerator != result.KVM && g.VM.Accelerator != result.TCG {
		t.Errorf("the guest is said to be %+v", g.VM)
	}
	if text, err := os.ReadFile(filepath.Join(g.share, "kept")); err != nil || string(text) != "kept\n" {
		t.Errorf("in the shared folder: %q, %v", text, err)
	}
	if entries, err := os.ReadDir(g.share); err != nil || len(entries) != 1 {
		t.Errorf("the shared folder has %v, %v", entries, err)
	}
	if _, err := os.Stat("/etc/gateweigh-test-was-here"); err == nil {
		t.Error("the guest has changed the machine's files")
	}
	if _, err := os.Stat(g.logs); err == nil {
		t.Error("the console of a guest that ended well was kept")
	}
}

// smallDisk returns the folder of a disk of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs root for a small disk: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return folder
}

// TestGuestEndsWithItsParent: kill -9 of the process that started a guest ends QEMU too, and leaves no files.
func TestGuestEndsWithItsParent(t *testing.T) {
	k := labtest.Guests(t)
	temporary := t.TempDir()
	runtime.LockOSThread() // the kernel kills the process when this thread ends (Pdeathsig)
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), envKilled+"="+k.Release, "TMPDIR="+temporary)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	labtest.Await(t, "QEMU", func() bool {
		children = labtest.QEMUs(cmd.Process.Pid)
		return len(children) > 0
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	labtest.AwaitEnd(t, "QEMU", children)
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}
