// Package watch notices that a CPU is away: the hypervisor has given it to another virtual machine, or firmware runs on
// it. Meanwhile the rings of the CPU's links fill up and lose packets. The programs under test do not cause such
// losses.
//
// A timer interrupts the CPU every 200 µs, and an eBPF program (watch.bpf.c) notes the longest time between two
// interrupts.
package watch

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type seen -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs watch.bpf.c

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/layout"
)

// timerPeriod is the time between two interrupts of a watched CPU. The length of an absence is known to within one
// period.
const timerPeriod = 200 * time.Microsecond

// ErrDenied says that this process may not watch CPUs.
var ErrDenied = errors.New("watching a CPU is not permitted here: it takes root, or CAP_PERFMON and CAP_BPF")

// CPU is a watched CPU.
type CPU struct {
	objs   programsObjects
	hook   link.Link     // the program's attachment to the timers' tracepoint
	timer  int           // perf event that makes the timer; -1: none
	memory []byte        // the program's map
	seen   *programsSeen // the map's only entry
}

// Start watches a CPU until Close. If the process lacks the right, the error wraps ErrDenied.
func Start(cpu int) (_ *CPU, err error) {
	c := &CPU{timer: -1}
	defer func() {
		if err != nil {
			c.Close()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
				err = fmt.Errorf("%w (%w)", ErrDenied, err)
			}
			err = fmt.Errorf("watching CPU %d: %w", cpu, err)
		}
	}()
	spec, err := loadPrograms()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["watched"].Set(uint32(cpu)); err != nil {
		return nil, fmt.Errorf("setting its CPU: %w", err)
	}
	if err := spec.LoadAndAssign(&c.objs, nil); err != nil {
		return nil, fmt.Errorf("loading its program: %w", err)
	}
	c.memory, err = unix.Mmap(c.objs.Times.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping its memory: %w", err)
	}
	c.seen = (*programsSeen)(unsafe.Pointer(&c.memory[0]))
	// This event makes the kernel run a timer with the period. The event leaves out idle time, and then does not overflow
	// on an idle CPU: the kernel stops an event that overflows too often between two ticks, and an idle CPU has no ticks.
	// The timer runs on an idle CPU all the same.
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(timerPeriod), Bits: unix.PerfBitExcludeIdle,
	}
	c.timer, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("starting a timer: %w", err)
	}
	c.hook, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "hrtimer_expire_entry", Program: c.objs.Look})
	if err != nil {
		return nil, fmt.Errorf("hearing its timer: %w", err)
	}
	return c, nil
}

// Away returns the longest time that the CPU was away since the last call. It may be up to one period too short.
func (c *CPU) Away() time.Duration {
	return max(0, time.Duration(atomic.SwapUint64(&c.seen.Longest, 0))-timerPeriod)
}

// Close ends the watch.
func (c *CPU) Close() {
	if c.hook != nil {
		c.hook.Close()
	}
	if c.timer >= 0 {
		unix.Close(c.timer)
	}
	if c.memory != nil {
		_ = unix.Munmap(c.memory) // fails only for memory that mmap did not map
	}
	c.objs.Close()
}

// CheckObject returns an error if the embedded eBPF program does not fit its architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"times": programsSeen{}})
}
