// Package vm runs a program of this machine under another kernel: in a small virtual machine (QEMU) whose files are
// this machine's, read only, below what the guest changes, which is forgotten at its end. Named folders are shared
// for writing, and what the guest writes there is on the machine at once.
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
	"time"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Config says what runs in which guest.
type Config struct {
	Kernel  kernel.Kernel
	Command []string // program, as an absolute path, and arguments
	Dir     string   // working directory; empty: /
	Env     []string
	Shares  []string // folders that the guest may write, absolute
	// Logs is the folder of ConsoleFile, which stays only when something went wrong.
	Logs      string
	MemoryMiB int           // of the guest; 0: DefaultMemoryMiB
	CPUs      int           // of the guest; 0: as many as the machine has
	Timeout   time.Duration // of the command on a machine of this speed; 0: none

	Stdout, Stderr io.Writer    // of the command; nil: discarded
	Status         func(string) // hears what is done; may be nil
}

// DefaultMemoryMiB is enough for labs with some hundred clients.
const DefaultMemoryMiB = 3072

// ConsoleFile is the guest's console in Config.Logs.
const ConsoleFile = "console.log"

// Times that a guest is given, at the speed of KVM.
const (
	bootWithin = 20 * time.Second
	endWithin  = 10 * time.Second // after a signal
)

// slower is how much more time an emulated guest is given.
const slower = 10

// Errors that Run wraps.
var (
	ErrNoQEMU   = errors.New("qemu-system-x86_64 is not here: install the package qemu-system-x86")
	ErrMemory   = errors.New("not enough memory for the guest")
	ErrPanic    = errors.New("the guest's kernel panicked")
	ErrNoAnswer = errors.New("the guest did not answer in time")
	ErrEnded    = errors.New("the virtual machine ended before its command")
	ErrTimeout  = errors.New("the command in the guest took too long")
	ErrStatic   = errors.New("this program is linked dynamically, and starts a guest only as a static one: build it with CGO_ENABLED=0 (make build)")
)

// Ended is how a command in a guest ended.
type Ended struct {
	VM     result.VM
	Code   int           // the command's exit code; 128 and the signal's number where one ended it
	Booted time.Duration // until the command was started
}

// Run boots a guest and runs the command in it until that ends. When ctx ends, the command is sent SIGINT and is
// waited for, for a while. In any case the virtual machine is gone when Run returns, and when this process is killed.
func Run(ctx context.Context, cfg Config) (Ended, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return Ended{}, err
	}
	scratch, err := os.MkdirTemp("", "gateweigh-vm-")
	if err != nil {
		return Ended{}, fmt.Errorf("making a folder for the virtual machine: %w", err)
	}
	defer os.RemoveAll(scratch)
	cfg.Status("preparing the guest: kernel " + cfg.Kernel.Release)
	image, err := cfg.Kernel.Bootable(scratch)
	if err != nil {
		return Ended{}, err
	}
	initrd := filepath.Join(scratch, "initrd")
	if err := writeInitrd(initrd, cfg.Kernel); err != nil {
		return Ended{}, err
	}
	console := filepath.Join(cfg.Logs, ConsoleFile)
	for _, a := range accelerators() {
		cfg.Status("starting the guest (" + a.name + ")")
		var out Ended
		out, err = boot(ctx, cfg, machine{accelerator: a, image: image, initrd: initrd, console: console})
		if err == nil {
			return out, os.Remove(console)
		}
		if !a.mayFail || out.Booted > 0 || ctx.Err() != nil {
			break
		}
		cfg.Status(fmt.Sprintf("kernel %s does not start with %s: %v", cfg.Kernel.Release, a.name, err))
	}
	if info, bad := os.Stat(console); bad == nil && info.Size() > 0 {
		return Ended{}, fmt.Errorf("%w; the guest's console: %s", err, console)
	}
	return Ended{}, err
}

// checked fills in defaults, and refuses what cannot work.
func (c Config) checked() (Config, error) {
	if c.MemoryMiB == 0 {
		c.MemoryMiB = DefaultMemoryMiB
	}
	if c.CPUs == 0 {
		c.CPUs = runtime.NumCPU()
	}
	if c.Status == nil {
		c.Status = func(string) {}
	}
	c.Stdout, c.Stderr = cmp.Or(c.Stdout, io.Discard), cmp.Or(c.Stderr, io.Discard)
	if c.Dir == "" {
		c.Dir = "/"
	}
	for _, folder := range append([]string{c.Logs, c.Dir}, c.Shares...) {
		if !filepath.IsAbs(folder) {
			return c, fmt.Errorf("folder %q for the guest: want an absolute path", folder)
		}
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
	return c, enoughMemory(c.MemoryMiB)
}

// Inside returns the virtual machine that this process was started in by Run, and false where there is none.
func Inside() (*result.VM, bool, error) {
	text, is := os.LookupEnv(EnvVM)
	if !is {
		return nil, false, nil
	}
	var m result.VM
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, true, fmt.Errorf("%s in the environment: %w", EnvVM, err)
	}
	return &m, true, nil
}
