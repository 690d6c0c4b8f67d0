package vm_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/vm"
)

// testPanics: when the guest's kernel panics, the error and the console say so. What the guest wrote before is kept.
func testPanics(t *testing.T, k kernel.Kernel) {
	g := boot(t, vm.Config{Kernel: k}, "echo first > measured; echo c > /proc/sysrq-trigger; sleep 1000")
	if !errors.Is(g.err, vm.ErrPanic) || !strings.Contains(g.err.Error(), "sysrq") {
		t.Fatalf("want a panic by sysrq: %v", g.err)
	}
	g.console(t, "Kernel panic")
	if text, err := os.ReadFile(filepath.Join(g.share, "measured")); err != nil || string(text) != "first\n" {
		t.Errorf("what the guest wrote before the panic: %q, %v", text, err)
	}
}

// killOnWrite kills the QEMU that has a folder in its arguments, once something is written to it.
type killOnWrite struct {
	folder string
	once   sync.Once
	killed int
}

// Write implements io.Writer.
func (k *killOnWrite) Write(p []byte) (int, error) {
	k.once.Do(func() {
		for _, pid := range labtest.QEMUs(os.Getpid()) {
			if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(args, []byte(k.folder)) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // an error: none is counted
				k.killed++
			}
		}
	})
	return len(p), nil
}

// killedAfterRecord: what the guest writes into a shared folder is in the machine's file at once, even if QEMU is
// killed right afterwards.
func killedAfterRecord(t *testing.T, k kernel.Kernel) {
	by := &killOnWrite{folder: t.TempDir()}
	g := boot(t, vm.Config{Kernel: k, Shares: []string{by.folder}, Stdout: by},
		"echo record > measured; echo written; sleep 1000")
	if by.killed != 1 || !errors.Is(g.err, vm.ErrEnded) || !strings.Contains(g.err.Error(), "dmesg") {
		t.Errorf("killed %d, %v", by.killed, g.err)
	}
	if text, err := os.ReadFile(filepath.Join(by.folder, "measured")); err != nil || string(text) != "record\n" {
		t.Errorf("what the guest wrote just before: %q, %v", text, err)
	}
}

// outOfMemory: the guest's kernel ends a program because memory is short. The error says so, although the command goes
// on, and although the disk is too full to keep the console.
func outOfMemory(t *testing.T, k kernel.Kernel) {
	full := smallDisk(t)
	if err := os.WriteFile(filepath.Join(full, "large"), make([]byte, 2<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	g := boot(t, vm.Config{Kernel: k, MemoryMiB: 300, Logs: full}, "tail /dev/zero; exit 3")
	if !errors.Is(g.err, vm.ErrGuestMemory) || !strings.Contains(g.err.Error(), "tail") ||
		!strings.Contains(g.err.Error(), "--vm-memory") || g.Code != 3 {
		t.Fatalf("exit code %d, %v", g.Code, g.err)
	}
	if !errors.Is(g.err, syscall.ENOSPC) {
		t.Errorf("of the console: %v", g.err)
	}
}

// testNeverBoots: Run gives up after its time limits when a kernel does nothing, and when a command does not end.
func testNeverBoots(t *testing.T, k kernel.Kernel) {
	t.Run("kernel", func(t *testing.T) {
		idle := k
		idle.Image = filepath.Join(t.TempDir(), "vmlinux")
		if err := os.WriteFile(idle.Image, idleKernel(t), 0o644); err != nil {
			t.Fatal(err)
		}
		if g := boot(t, vm.Config{Kernel: idle, BootTimeout: 50 * time.Millisecond}, "true"); !errors.Is(
			g.err, vm.ErrNoAnswer) {
			t.Errorf("want %v: %v", vm.ErrNoAnswer, g.err)
		}
	})
	t.Run("command", func(t *testing.T) {
		if g := boot(t, vm.Config{Kernel: k, Timeout: 50 * time.Millisecond}, "sleep 1000"); !errors.Is(
			g.err, vm.ErrTimeout) || g.Booted == 0 {
			t.Errorf("want %v: %v", vm.ErrTimeout, g.err)
		}
	})
}

// idleKernel returns a kernel that does nothing: an ELF file that QEMU enters by PVH, and that then halts for ever.
func idleKernel(t *testing.T) []byte {
	t.Helper()
	const entry, headers, note, code = 0x100000, 64, 64 + 2*56, 64 + 2*56 + 20
	var b bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	for _, part := range []any{
		elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: entry,
			Phoff: headers, Ehsize: 64, Phentsize: 56, Phnum: 2, Shentsize: 64},
		elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: 4, Off: note, Vaddr: entry + note, Paddr: entry + note, Filesz: 20,
			Memsz: 20, Align: 4},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: 5, Off: code, Vaddr: entry, Paddr: entry, Filesz: 4, Memsz: 4, Align: 1},
		[]uint32{4, 4, 18}, []byte("Xen\x00"), uint32(entry),
		[]byte{0xfa, 0xf4, 0xeb, 0xfd}, // cli; hlt; back to hlt
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestGuestsThatCannotStart: the error tells why a guest cannot start, and what to do. Some causes are found before
// QEMU is started, others by QEMU.
func TestGuestsThatCannotStart(t *testing.T) {
	k := labtest.Guests(t)
	check := func(cfg vm.Config, want error, texts ...string) {
		t.Helper()
		cfg.Command, cfg.Logs = []string{"/bin/true"}, t.TempDir()
		_, err := vm.Run(t.Context(), cfg)
		if !errors.Is(err, want) {
			t.Errorf("want %v, got: %v", want, err)
			return
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is missing: %v", text, err)
			}
		}
	}
	check(vm.Config{Kernel: withoutModule(t, k, "/overlay.ko")}, kernel.ErrNoModule, "overlay", k.Release)
	other := k
	other.Release = "6.1.0-1-amd64"
	check(vm.Config{Kernel: other}, kernel.ErrNoModule, "6.1.0-1-amd64", "is of "+k.Release)
	check(vm.Config{Kernel: k, MemoryMiB: 1 << 30}, vm.ErrMemory, "--vm-memory", "available")
	check(vm.Config{Kernel: k, MemoryMiB: 1}, vm.ErrMemory, "--vm-memory")
	real, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	as := func(script string) { labtest.Program(t, filepath.Base(real), fmt.Sprintf(script, real)) }
	// The real QEMU with a limit of its memory, and with an option that it does not know.
	as(`ulimit -v 1500000; exec "%s" "$@"`)
	check(vm.Config{Kernel: k, MemoryMiB: 2048}, vm.ErrMemory, "annot allocate", "--vm-memory")
	as(`exec "%s" -of-another-version "$@"`)
	check(vm.Config{Kernel: k, MemoryMiB: 512}, vm.ErrEnded, "-of-another-version", "invalid option")
	t.Setenv("PATH", t.TempDir())
	check(vm.Config{Kernel: k}, vm.ErrNoQEMU, "qemu-system-x86")
}

// withoutModule returns the kernel k without one module. file is the end of the module's path in modules.dep.
func withoutModule(t *testing.T, k kernel.Kernel, file string) kernel.Kernel {
	t.Helper()
	index, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep"))
	if err != nil {
		t.Fatal(err)
	}
	k.Modules = t.TempDir()
	for name, data := range map[string][]byte{
		"modules.dep": bytes.ReplaceAll(index, []byte(file), []byte("/else.ko")), "modules.builtin": nil} {
		if err := os.WriteFile(filepath.Join(k.Modules, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return k
}
