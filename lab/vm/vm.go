// Package vm runs a program of this machine under another kernel, in a small virtual machine (QEMU). In this package
// and its messages, the guest is the system inside of that virtual machine, and the machine is the one that runs QEMU.
// The guest sees the machine's files. What it changes stays in its memory and ends with it, except in shared folders:
// there it writes the machine's files.
//
//	gateweigh                    QEMU                              guest
//	Run ── starts ─────────────► kernel, initrd ── boots ────────► /init: this program again (RunAs)
//	  ◄──── hello, output, exit ─ one virtual serial port ───────── mounts the root, runs the command
//	  ───── command, signals ───►
package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/scratch"
)

// Config says which kernel and command to run.
type Config struct {
	Kernel  kernel.Kernel
	Command []string // program, as an absolute path, and arguments
	Dir     string   // working directory; empty: /
	Env     []string
	Shares  []string // folders that the guest may write, absolute
	// Logs is the folder where ConsoleFile is written when something went wrong; empty: a new one below os.TempDir.
	Logs        string
	MemoryMiB   int           // of the guest; 0: DefaultMemoryMiB
	CPUs        int           // of the guest; 0: as many as the machine has
	Timeout     time.Duration // for the command with KVM; 0: none. An emulated guest has emulatedFactor times as long
	BootTimeout time.Duration // until the guest answers, likewise; 0: 20 s

	Stdout, Stderr io.Writer // of the command; nil: discarded
	// Status is called with each step that begins. After the end of ctx another goroutine calls it. It may be nil.
	Status func(string)
}

// DefaultMemoryMiB is enough for labs with some hundred clients.
const DefaultMemoryMiB = 3072

// ConsoleFile is the name of the file with the guest's console output in Config.Logs.
const ConsoleFile = "console.log"

// minGuestMiB is what a guest needs to start.
const minGuestMiB = 256

// Times that a guest is given, at the speed of KVM.
const (
	bootTimeout = 20 * time.Second
	endTimeout  = 10 * time.Second // after a signal
)

// emulatedFactor is how much more time an emulated guest is given.
const emulatedFactor = 10

// Errors that Run wraps.
var (
	ErrNoQEMU      = errors.New("qemu-system-x86_64 is not here: install the package qemu-system-x86")
	ErrMemory      = errors.New("not enough memory for the guest")
	ErrPanic       = errors.New("the guest's kernel panicked")
	ErrNoAnswer    = errors.New("the guest did not answer in time")
	ErrEnded       = errors.New("the virtual machine ended before its command")
	ErrTimeout     = errors.New("the command in the guest took too long")
	ErrGuestMemory = errors.New("the guest ran out of memory")
	ErrInterrupted = errors.New("interrupted")
	ErrStatic      = errors.New(
		"this program is linked dynamically, and starts a guest only as a static one: build it with CGO_ENABLED=0 (make " +
			"build)")
)

// Ended tells how a command in a guest ended.
type Ended struct {
	VM     result.VM
	Code   int           // the command's exit code; 128 plus the signal's number if a signal ended it
	Booted time.Duration // from the start of QEMU until the command was sent to the guest
}

// Run boots a guest, runs the command in it and waits for its end. When ctx ends, Run sends the command SIGINT and
// waits at most endTimeout. When Run has returned, or this process was killed, the virtual machine does not exist any
// more. That KVM starts no guest is noted until the machine's next boot.
func Run(ctx context.Context, cfg Config) (Ended, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return Ended{}, err
	}
	cfg.Status("preparing the guest: kernel " + cfg.Kernel.Release)
	m, err := prepare(cfg.Kernel)
	if err != nil {
		return Ended{}, err
	}
	defer m.close()
	list, without := withoutKVM(accelerators(), kvmNote)
	why := ""
	if without {
		why = "; KVM started no guest here: to try it again, remove " + kvmNote
	}
	var out Ended
	var failed accelerator
	for _, m.accelerator = range list {
		cfg.Status("starting the guest (" + m.name + why + ")")
		out, err = boot(ctx, cfg, m)
		if err == nil || !m.mayFail || out.Booted > 0 || ctx.Err() != nil {
			break
		}
		cfg.Status(fmt.Sprintf("kernel %s does not start with %s: %v", cfg.Kernel.Release, m.name, err))
		failed = m.accelerator
	}
	if out.Booted > 0 {
		noteKVM(kvmNote, failed, m.accelerator)
	}
	if err == nil || out.Booted == 0 && errors.Is(err, ErrInterrupted) {
		return out, err
	}
	return out, cfg.withConsole(err, m.consoleText())
}

// prepare makes the files of a virtual machine, in memory.
func prepare(k kernel.Kernel) (m virtualMachine, err error) {
	image, err := k.Bootable()
	if err != nil {
		return m, err
	}
	list := []struct {
		file  **os.File
		name  string
		write func(io.Writer) error
	}{
		{&m.image, "kernel", func(w io.Writer) error { _, err := w.Write(image); return err }},
		{&m.initrd, "initrd", func(w io.Writer) error { return writeInitrd(w, k) }},
		{&m.console, "console", func(io.Writer) error { return nil }},
	}
	for _, f := range list {
		if *f.file, err = inMemory(f.name, f.write); err != nil {
			m.close()
			return m, err
		}
	}
	return m, nil
}

// close frees the machine's files.
func (m virtualMachine) close() {
	for _, f := range []*os.File{m.image, m.initrd, m.console} {
		if f != nil {
			f.Close()
		}
	}
}

// withConsole stores the text of a guest's console in a file, and adds the file's name to the error.
func (c Config) withConsole(err error, text []byte) error {
	if len(text) == 0 {
		return err
	}
	var bad error
	if c.Logs == "" {
		c.Logs, _, bad = scratch.New(scratch.Console)
	} else {
		bad = os.MkdirAll(c.Logs, 0o755)
	}
	file := filepath.Join(c.Logs, ConsoleFile)
	if bad == nil {
		bad = os.WriteFile(file, text, 0o644)
	}
	if bad != nil {
		return fmt.Errorf("%w; the guest's console could not be kept: %w", err, bad)
	}
	return fmt.Errorf("%w; the guest's console: %s", err, file)
}

// Check reports, before anything is written, why a guest cannot start here.
func (c Config) Check() error {
	_, err := c.checked()
	return err
}

// checked fills in defaults. It returns an error if no guest can start.
func (c Config) checked() (Config, error) {
	c.MemoryMiB, c.CPUs = cmp.Or(c.MemoryMiB, DefaultMemoryMiB), cmp.Or(c.CPUs, runtime.NumCPU())
	c.BootTimeout, c.Dir = cmp.Or(c.BootTimeout, bootTimeout), cmp.Or(c.Dir, "/")
	c.Stdout, c.Stderr = cmp.Or(c.Stdout, io.Discard), cmp.Or(c.Stderr, io.Discard)
	if c.Status == nil {
		c.Status = func(string) {}
	}
	if runtime.GOARCH != "amd64" {
		return c, fmt.Errorf("guests are for x86-64, and this machine is %s", runtime.GOARCH)
	}
	if qemu() == "" {
		return c, ErrNoQEMU
	}
	if err := c.Kernel.Check(); err != nil {
		return c, err
	}
	if !filepath.IsAbs(c.Command[0]) {
		return c, fmt.Errorf("program %q for the guest: want an absolute path", c.Command[0])
	}
	c.Shares = slices.Clone(c.Shares)
	paths := []*string{&c.Dir, &c.Kernel.Modules}
	for i := range c.Shares {
		paths = append(paths, &c.Shares[i])
	}
	for _, path := range paths {
		if !filepath.IsAbs(*path) {
			return c, fmt.Errorf("folder %q for the guest: want an absolute path", *path)
		}
		// The guest has its own /tmp and /run, in which the target of a symbolic link may be missing.
		direct, err := filepath.EvalSymlinks(*path)
		if err != nil {
			return c, fmt.Errorf("for the guest: %w", err)
		}
		*path = direct
	}
	return c, enoughMemory(c.MemoryMiB)
}

// FromEnvironment returns the virtual machine that this process was started in by Run, and false where there is none.
func FromEnvironment() (*result.VM, bool, error) {
	text, found := os.LookupEnv(EnvVM)
	if !found {
		return nil, false, nil
	}
	var m result.VM
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, true, fmt.Errorf("%s in the environment: %w", EnvVM, err)
	}
	return &m, true, nil
}
