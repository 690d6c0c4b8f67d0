package labtest

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/kernel"
)

// Debian returns Debian's kernel. It fetches the kernel once. If neither the cache nor apt has it, it skips the test.
func Debian(t testing.TB) kernel.Kernel {
	t.Helper()
	places, err := kernel.UsualPlaces()
	if err != nil {
		t.Fatal(err)
	}
	k, err := places.Find(kernel.Debian)
	if errors.Is(err, kernel.ErrUnknown) {
		k, err = places.Fetch(t.Context(), kernel.Debian, func(string) {})
	}
	if errors.Is(err, kernel.ErrNetwork) {
		t.Skipf("no Debian kernel is here, and apt reaches no server from the test's network namespace: gateweigh kernel "+
			"fetch debian: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Guests returns Debian's kernel for guests. It skips the test if this test binary cannot start guests.
func Guests(t testing.TB) kernel.Kernel {
	t.Helper()
	own, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if own.Section(".interp") != nil {
		t.Skip("the test binary is linked dynamically, and starts guests only as a static one: CGO_ENABLED=0 go test")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("qemu-system-x86_64 is not installed: install the package qemu-system-x86")
	}
	return Debian(t)
}

// QEMUs returns the processes of virtual machines that a process has started.
func QEMUs(parent int) (list []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		text, _ := os.ReadFile(file) // fails if the process has ended meanwhile
		if strings.HasPrefix(string(text), "Name:\tqemu-system") &&
			strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}

// AwaitEnd waits until none of the processes runs. A process that has ended and whose parent has not waited for it (a
// zombie) does not run.
func AwaitEnd(t testing.TB, what string, pids []int) {
	t.Helper()
	Await(t, "the end of "+what, func() bool {
		for _, pid := range pids {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil &&
				!strings.Contains(string(text), "zombie") {
				return false
			}
		}
		return true
	})
}
