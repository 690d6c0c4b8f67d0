// Package softirq meters links that are polled in interrupts: drivers without threads for it, or kernels. The time is
// exact, by the kernel's tracepoints, and of each link by itself. It contains what the hypervisor took meanwhile: the
// kernel keeps that by CPU (its steal clock), and leaves it out of the time of tasks alone.
package softirq

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type port -type work -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs softirq.bpf.c

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Work is the work that was done so far.
type Work struct {
	Ns     int64 // time, nanoseconds
	Times  int64 // polls of a link, or calls of a handler
	Frames int64 // that polls have taken; 0 of handlers
}

// Meter meters all links and interrupts of the machine while it is open.
type Meter struct {
	objs  programsObjects
	hooks []link.Link
	netns uint32
}

// Open begins to meter. Links are those of the calling thread's network namespace. It takes root, or CAP_BPF and
// CAP_PERFMON, and a kernel with BTF.
func Open() (_ *Meter, err error) {
	m := &Meter{}
	defer func() {
		if err != nil {
			m.Close()
			err = fmt.Errorf("metering interrupts: %w", err)
		}
	}()
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return nil, fmt.Errorf("looking for the network namespace: %w", err)
	}
	m.netns = uint32(st.Ino)
	if err := loadProgramsObjects(&m.objs, nil); err != nil {
		return nil, fmt.Errorf("loading its programs: %w", err)
	}
	for name, program := range map[string]*ebpf.Program{
		"softirq_entry": m.objs.SoftirqEntry, "softirq_exit": m.objs.SoftirqExit, "napi_poll": m.objs.NapiPoll,
		"irq_handler_entry": m.objs.IrqEntry, "irq_handler_exit": m.objs.IrqExit,
	} {
		hook, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
		if err != nil {
			return nil, fmt.Errorf("attaching to %s: %w", name, err)
		}
		m.hooks = append(m.hooks, hook)
	}
	return m, nil
}

// Link is the work of a link's polls in interrupts, by CPU. Polls by threads are not in it.
func (m *Meter) Link(ifindex int) ([]Work, error) {
	return read(m.objs.Polled, programsPort{Ifindex: uint32(ifindex), Netns: m.netns})
}

// Interrupt is the work of an interrupt's handlers, by CPU.
func (m *Meter) Interrupt(number int) ([]Work, error) { return read(m.objs.Handled, uint32(number)) }

// Sum is the work of all CPUs together.
func Sum(each []Work) (sum Work) {
	for _, w := range each {
		sum.Ns, sum.Times, sum.Frames = sum.Ns+w.Ns, sum.Times+w.Times, sum.Frames+w.Frames
	}
	return sum
}

// read is a map's entry; one that is not there has done nothing.
func read(of *ebpf.Map, key any) (list []Work, err error) {
	var each []programsWork
	if err := of.Lookup(key, &each); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading what interrupts did: %w", err)
	}
	for _, w := range each {
		list = append(list, Work{int64(w.Ns), int64(w.Times), int64(w.Frames)})
	}
	return list, nil
}

// Close ends it. Twice is harmless.
func (m *Meter) Close() {
	for _, h := range m.hooks {
		h.Close()
	}
	m.hooks = nil
	m.objs.Close()
}
