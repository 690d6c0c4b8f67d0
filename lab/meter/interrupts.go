// Meters links that no kernel thread polls. Their packets are taken in interrupts and in the softirq that follows them,
// so no thread or process is charged for that work.

package meter

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/lab/softirq"
)

// Values of Sample.Polling: how links without polling threads are metered.
const (
	// BySoftirq is exact. The kernel's tracepoints tell how long the softirq polled the link, and how long the handlers of
	// its device's interrupts ran.
	BySoftirq = "softirq"
	// ByTicks is sampled in ticks of 10 ms. It is the interrupt and softirq time of all CPUs in /proc/stat, whatever
	// caused it.
	ByTicks = "ticks"
)

// Threaded reports whether the kernel was asked to poll a link by threads.
func Threaded(ifname string) bool {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", ifname, "threaded"))
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// interruptedLinks meters the links that are polled in interrupts. The zero value has no links.
type interruptedLinks struct {
	meter *softirq.Meter             // nil: the kernel does not allow it, so the time is sampled (ByTicks)
	links map[string]interruptedLink // by interface name
	first string                     // first interface name of links; the time that ticks show is added to this link
}

// interruptedLink is a link that is polled in interrupts.
type interruptedLink struct {
	index int   // of the interface
	irqs  []int // numbers of its device's interrupts; none for a virtual link
}

// add begins to meter a link, given by its interface's name and index.
func (in *interruptedLinks) add(name string, index int) {
	if in.links == nil {
		in.links = map[string]interruptedLink{}
		in.meter, _ = softirq.Open() // an error: there is no meter
	}
	numbers, _ := softirq.InterruptsOf(name)
	in.links[name] = interruptedLink{index, numbers}
	if in.first == "" || name < in.first {
		in.first = name
	}
}

// polling returns the value for Sample.Polling.
func (in *interruptedLinks) polling() string {
	switch {
	case in.links == nil:
		return ""
	case in.meter == nil:
		return ByTicks
	}
	return BySoftirq
}

// read writes the time of each link into out.NAPI, as a Thread without an id. Before the call out.Stat must be set,
// from which ByTicks takes the time.
func (in *interruptedLinks) read(out *Sample) error {
	var errs []error
	for name, link := range in.links {
		var t Thread
		switch {
		case in.meter != nil:
			polls, err := in.meter.Link(link.index)
			errs = append(errs, err)
			t.Slices = softirq.Sum(polls).Times
			t.RunNs = out.addInterrupts(polls)
			for _, number := range link.irqs {
				handlers, err := in.meter.Interrupt(number)
				errs = append(errs, err)
				t.RunNs += out.addInterrupts(handlers)
			}
		case name == in.first:
			t.RunNs = (out.Stat.IRQ + out.Stat.SoftIRQ) * tick
		}
		out.NAPI[name] = t
	}
	out.Polling = in.polling()
	return errors.Join(errs...)
}

// addInterrupts adds work, which is listed by CPU, to InterruptNs. It returns the time of all CPUs together,
// nanoseconds.
func (s *Sample) addInterrupts(byCPU []softirq.Work) (ns int64) {
	if s.InterruptNs == nil {
		s.InterruptNs = map[int]int64{}
	}
	for cpu, w := range byCPU {
		s.InterruptNs[cpu] += w.Ns
		ns += w.Ns
	}
	return ns
}

// StolenNs returns the largest part of InterruptNs between samples a and b in which the hypervisor may have had the
// CPUs instead, nanoseconds. The clock of interrupts runs on while another virtual machine has the CPU. On each CPU
// that part is at most the steal of the CPU (ticks of 10 ms), and at most the time of the interrupts there.
func StolenNs(a, b Sample) (most int64) {
	for cpu, ns := range b.InterruptNs {
		most += min(ns-a.InterruptNs[cpu], (b.Steal[cpu]-a.Steal[cpu])*tick)
	}
	return most
}

// tick is the unit of time of /proc/stat, nanoseconds.
const tick = 10_000_000

// close ends the metering and forgets all links.
func (in *interruptedLinks) close() {
	if in.meter != nil {
		in.meter.Close()
	}
	*in = interruptedLinks{}
}

// openLink begins to meter a link, given by its interface's name. tids are the threads that poll it, one for each of
// its queues. A link without threads is polled in interrupts.
func (s *Sampler) openLink(name string, tids []int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("asking what %s is: %w", name, err)
	}
	if link.Type() == "veth" {
		s.veths = append(s.veths, name)
	}
	if len(tids) == 0 {
		_, noHardware := os.Stat(filepath.Join("/sys/class/net", name, "device"))
		if Threaded(name) || noHardware != nil && link.Type() != "veth" {
			return fmt.Errorf("%s has 0 NAPI threads: is threaded NAPI on and GRO not switched off?", name)
		}
		s.interrupted.add(name, link.Attrs().Index)
	}
	for _, tid := range tids {
		t, err := openPollingThread(tid)
		if err != nil {
			return err
		}
		s.napi[name] = append(s.napi[name], t)
	}
	return nil
}

// readThreads adds up the counters of a link's polling threads. The sum has the id of the first thread.
func readThreads(list []pollingThread) (sum Thread, err error) {
	for _, t := range list {
		one, err := t.read()
		if err != nil {
			return sum, err
		}
		sum.TID = cmp.Or(sum.TID, one.TID)
		sum.RunNs, sum.WaitNs, sum.Slices = sum.RunNs+one.RunNs, sum.WaitNs+one.WaitNs, sum.Slices+one.Slices
	}
	return sum, nil
}
