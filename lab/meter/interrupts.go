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

// How links without polling threads are metered, in Sample.Polling.
const (
	// BySoftirq is exact, by the kernel's tracepoints: the softirq's polls of the link, and the handlers of its device's
	// interrupts.
	BySoftirq = "softirq"
	// ByTicks is sampled: the interrupt and softirq time of all CPUs in /proc/stat, whatever caused it.
	ByTicks = "ticks"
)

// Threaded reports whether the kernel was asked to poll a link by threads.
func Threaded(ifname string) bool {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", ifname, "threaded"))
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// interrupted are links that are polled in interrupts.
type interrupted struct {
	meter *softirq.Meter  // nil: by ticks
	why   error           // there is no meter
	links map[string]port // by name
	first string          // of the links: what ticks count is its
}

// port is what interrupts do for a link.
type port struct {
	index int
	irqs  []int // of its device
}

// add begins to meter a link.
func (in *interrupted) add(name string, index int) {
	if in.links == nil {
		in.links = map[string]port{}
		in.meter, in.why = softirq.Open()
	}
	numbers, _ := softirq.InterruptsOf(name)
	in.links[name] = port{index, numbers}
	if in.first == "" || name < in.first {
		in.first = name
	}
}

// polling is Sample.Polling.
func (in *interrupted) polling() string {
	switch {
	case in.links == nil:
		return ""
	case in.meter == nil:
		return ByTicks
	}
	return BySoftirq
}

// read adds the time of each link to a sample, as a thread's without an id. stat is of the same moment.
func (in *interrupted) read(out *Sample) error {
	var errs []error
	for name, p := range in.links {
		var t Thread
		switch {
		case in.meter != nil:
			each, err := in.meter.Link(p.index)
			errs = append(errs, err)
			t.Slices = softirq.Sum(each).Times
			t.RunNs = out.addInterrupts(each)
			for _, number := range p.irqs {
				each, err := in.meter.Interrupt(number)
				errs = append(errs, err)
				t.RunNs += out.addInterrupts(each)
			}
		case name == in.first:
			t.RunNs = (out.Stat.IRQ + out.Stat.SoftIRQ) * tick
		}
		out.NAPI[name] = t
	}
	out.Polling = in.polling()
	return errors.Join(errs...)
}

// addInterrupts adds work by CPU, and returns its time on all of them, nanoseconds.
func (s *Sample) addInterrupts(each []softirq.Work) (ns int64) {
	if s.InterruptNs == nil {
		s.InterruptNs = map[int]int64{}
	}
	for cpu, w := range each {
		s.InterruptNs[cpu] += w.Ns
		ns += w.Ns
	}
	return ns
}

// StolenNs is how much of the time of links that are polled in interrupts the hypervisor had at most between two
// samples, nanoseconds: of each CPU no more than it took of that CPU, and than interrupts worked there. Steal has ticks
// of 10 ms.
func StolenNs(a, b Sample) (most int64) {
	for cpu, ns := range b.InterruptNs {
		most += min(ns-a.InterruptNs[cpu], (b.Steal[cpu]-a.Steal[cpu])*tick)
	}
	return most
}

// tick of /proc/stat, nanoseconds.
const tick = 10_000_000

func (in *interrupted) close() {
	if in.meter != nil {
		in.meter.Close()
	}
	*in = interrupted{}
}

// openLink finds what polls a link: its threads, one for each of its queues, or interrupts.
func (s *Sampler) openLink(name string, tids []int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("asking what %s is: %w", name, err)
	}
	if link.Type() == "veth" {
		s.veths = append(s.veths, name)
	}
	if len(tids) == 0 {
		_, soft := os.Stat(filepath.Join("/sys/class/net", name, "device"))
		if Threaded(name) || soft != nil && link.Type() != "veth" {
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

// readThreads is the sum of a link's polling threads, with the id of the first.
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
