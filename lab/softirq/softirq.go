// Package softirq measures the CPU time of links that no kernel thread polls, because the driver or the kernel has no
// threads for that (threaded NAPI). Such links are polled in a softirq, after an interrupt of their device. eBPF
// programs at tracepoints of the kernel measure the time of each link exactly (softirq.bpf.c).
//
// The time includes time in which the hypervisor ran something else on the CPU (steal). The kernel counts steal by CPU
// and subtracts it from the time of tasks only.
package softirq

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type port -type work -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs softirq.bpf.c

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Work is what one CPU has done since the Meter was opened: in polls of a link, or in handlers of an interrupt.
type Work struct {
	Ns     int64 // CPU time, nanoseconds
	Times  int64 // number of polls, or of calls of handlers
	Frames int64 // frames that the polls have taken; 0 for handlers
}

// Meter counts the work for all links and interrupts of the machine while it is open.
type Meter struct {
	objs  programsObjects // the eBPF programs and their maps
	hooks []link.Link     // the programs' attachments to tracepoints
	netns uint32          // inode of the network namespace whose links Link finds
}

// Open begins to count. Link will find the links of the calling thread's network namespace. Open needs root, or CAP_BPF
// and CAP_PERFMON, and a kernel with BTF.
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

// Link returns the work of each CPU in polls of a link in softirqs. ifindex is the index of the link's interface. Polls
// by threads are not counted.
func (m *Meter) Link(ifindex int) ([]Work, error) {
	return read(m.objs.Polled, programsPort{Ifindex: uint32(ifindex), Netns: m.netns})
}

// Interrupt returns the work of each CPU in the handlers of an interrupt, which is given by its number.
func (m *Meter) Interrupt(number int) ([]Work, error) { return read(m.objs.Handled, uint32(number)) }

// Sum adds up the work of all CPUs.
func Sum(byCPU []Work) (sum Work) {
	for _, w := range byCPU {
		sum.Ns, sum.Times, sum.Frames = sum.Ns+w.Ns, sum.Times+w.Times, sum.Frames+w.Frames
	}
	return sum
}

// read returns the entry of a map, which has the work of each CPU. It returns nil if the map has no such entry: no work
// was done then.
func read(counts *ebpf.Map, key any) (list []Work, err error) {
	var byCPU []programsWork
	if err := counts.Lookup(key, &byCPU); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading what interrupts did: %w", err)
	}
	for _, w := range byCPU {
		list = append(list, Work{int64(w.Ns), int64(w.Times), int64(w.Frames)})
	}
	return list, nil
}

// Close detaches the programs and frees the counts. It may be called twice.
func (m *Meter) Close() {
	for _, h := range m.hooks {
		h.Close()
	}
	m.hooks = nil
	m.objs.Close()
}
