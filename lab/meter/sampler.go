package meter

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Sample is one reading of all of a host's meters.
type Sample struct {
	MonotonicNs int64             `json:"monotonic_ns"` // the host's clock when the CPU counters were read
	LinksNs     int64             `json:"links_ns"`     // and when those of the links were
	NAPI        map[string]Thread `json:"napi"`         // by interface name: all that poll it together
	Processes   []Process         `json:"processes"`    // the host's programs, see Sampler.Counted
	Links       map[string]Link   `json:"links"`        // by interface name
	SNMP        SNMP              `json:"snmp"`         // host and clients together
	IPIn        int64             `json:"ip_in"`        // buffers received by the host's own IP layer
	Stat        Stat              `json:"stat"`         // the whole machine
	Unused      map[int]int64     `json:"unused"`       // ticks in which each CPU idled, or another guest had it
	Steal       map[int]int64     `json:"steal"`        // ticks in which another guest had each CPU
	CPUs        int               `json:"cpus"`         // of the machine, online
	AgentNs     int64             `json:"agent_ns"`     // CPU time of the agent itself
	MeterNs     int64             `json:"meter_ns"`     // CPU time all samples so far have cost
	// Polling is how links without threads were metered: BySoftirq or ByTicks; empty: all have threads.
	Polling string `json:"polling,omitempty"`
	// InterruptNs is the part of NAPI that was in interrupts, by CPU: see StolenNs.
	InterruptNs map[int]int64 `json:"interrupt_ns,omitempty"`
	// Unmetered is why NAPI and Processes are left out; empty: they are read.
	Unmetered string `json:"unmetered,omitempty"`
}

// Sampler reads the meters of one host. It is not safe for concurrent use.
type Sampler struct {
	// IfNames are the lab's links on this host.
	IfNames []string
	// PIDLink names the process namespace of the host's programs.
	PIDLink string
	// Skip are processes of that namespace that are never counted.
	Skip map[int]bool
	// Counted are the command names that count; empty counts all.
	Counted []string
	// Follow counts programs by task clocks, as polling threads always are: to
	// the nanosecond, with all their descendants. It counts what runs when the
	// sampler is opened and what that starts; not what the agent starts later, nor
	// what a program starts in the very milliseconds in which its clocks are opened.
	// A program that is not Counted but starts one that is must go on running.
	Follow bool
	// Kernel are threads of the kernel that count as well, by their names up to a slash: "kworker", "ksoftirqd".
	Kernel []string
	// Unmetered is why CPU time is left out; empty: it is read, and clocks that cannot be opened are an error.
	Unmetered string

	napi    map[string][]pollingThread
	veths   []string              // of IfNames
	roots   map[Process]*followed // by Process.id
	kernel  map[Process]Process   // threads of the kernel as they were last read, by Process.id
	snmp    []*SNMPFile           // the host's, and those of clients with namespaces of their own
	meterNs int64

	interrupted interrupted // of IfNames: those without threads
}

// Open finds the polling threads of IfNames; call it when links are up and
// again when they change. A link that the kernel was asked to poll by threads and that has none is an error: nobody
// would count its work. Other links without are metered in interrupts. After an error nothing is open.
func (s *Sampler) Open() (err error) {
	s.Close()
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Unmetered == "" {
		if err := s.openClocks(); err != nil {
			return err
		}
	}
	hostSNMP, err := OpenSNMP()
	if err == nil {
		s.AddClients([]*SNMPFile{hostSNMP})
	}
	return err
}

// openClocks opens what counts the time of polling threads, interrupts and programs.
func (s *Sampler) openClocks() error {
	tids, err := NAPIThreads(s.IfNames)
	if err != nil {
		return err
	}
	s.napi = map[string][]pollingThread{}
	for _, name := range s.IfNames {
		if err := s.openLink(name, tids[name]); err != nil {
			return err
		}
	}
	if s.Follow {
		return s.readFollowed(&Sample{})
	}
	return nil
}

// AddClients adds the counters of clients with namespaces of their own.
func (s *Sampler) AddClients(files []*SNMPFile) { s.snmp = append(s.snmp, files...) }

// Close releases the open counters.
func (s *Sampler) Close() {
	for _, list := range s.napi {
		for _, t := range list {
			t.close()
		}
	}
	s.interrupted.close()
	for _, f := range s.roots {
		f.close()
	}
	for _, f := range s.snmp {
		f.Close()
	}
	s.napi, s.veths, s.roots, s.kernel, s.snmp = nil, nil, nil, nil, nil
}

// Sample reads all meters. A failing meter is part of the returned error; what
// the others read is returned all the same.
func (s *Sampler) Sample() (Sample, error) {
	runtime.LockOSThread() // the cost is taken from the thread's own clock
	defer runtime.UnlockOSThread()
	before := ThreadNs()
	out := Sample{NAPI: map[string]Thread{}, MonotonicNs: MonotonicNs(), Unmetered: s.Unmetered}
	var errs []error
	if s.Unmetered == "" {
		errs = append(errs, s.readClocks(&out))
	}
	errs = append(errs, s.readNet(&out))
	stat, err := os.ReadFile("/proc/stat")
	if err == nil {
		var cpus map[int]Stat
		out.Stat, cpus, err = ParseProcStat(string(stat))
		out.CPUs, out.Unused, out.Steal = len(cpus), map[int]int64{}, map[int]int64{}
		for n, st := range cpus {
			out.Unused[n], out.Steal[n] = st.Idle+st.IOWait+st.Steal, st.Steal
		}
	}
	errs = append(errs, err, s.interrupted.read(&out))
	s.meterNs += ThreadNs() - before
	out.MeterNs, out.AgentNs = s.meterNs, clockNs(unix.CLOCK_PROCESS_CPUTIME_ID)
	return out, errors.Join(errs...)
}

// readClocks reads the time of polling threads and programs.
func (s *Sampler) readClocks(out *Sample) error {
	var errs []error
	for name, list := range s.napi {
		th, err := readThreads(list)
		errs = append(errs, err)
		out.NAPI[name] = th
	}
	if s.Follow {
		errs = append(errs, s.readFollowed(out))
	} else if s.PIDLink != "" {
		all, err := processesIn(s.PIDLink, s.Skip)
		for _, p := range all {
			if s.counts(p) {
				out.Processes = append(out.Processes, p)
			}
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.readKernel(out))
	slices.SortFunc(out.Processes, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Start, b.Start), a.PID-b.PID) })
	return errors.Join(errs...)
}

// id tells processes apart, also those with a reused process id.
func (p Process) id() Process { return Process{PID: p.PID, Start: p.Start} }

// readFollowed reads the task clocks of all programs that were ever seen, and follows
// those not seen before, except the ones that a followed program has started: its clocks
// count them already.
func (s *Sampler) readFollowed(out *Sample) error {
	first := s.roots == nil
	if first {
		s.roots = map[Process]*followed{}
	}
	alive, err := processesIn(s.PIDLink, s.Skip)
	if err != nil {
		return err
	}
	waits := map[*followed]int64{}
	var errs []error
	for _, p := range alive {
		root, covered := s.rootOf(p, alive)
		if s.counts(p) && (first || !covered) { // what runs already has inherited nothing
			f, err := follow(p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			s.roots[p.id()], root = f, f
		}
		if root != nil {
			waits[root] += p.WaitNs
		}
	}
	for _, f := range s.roots {
		f.WaitNs = max(f.WaitNs, waits[f]) // less when a program has ended meanwhile
		p, err := f.read()
		errs = append(errs, err)
		out.Processes = append(out.Processes, p)
	}
	return errors.Join(errs...)
}

func (s *Sampler) counts(p Process) bool {
	return len(s.Counted) == 0 || slices.Contains(s.Counted, p.Name)
}

// rootOf is the followed program that p is or descends from, found by the parents of
// living programs. A program that the host's init has taken over may be an orphan or the
// agent's: it counts as an orphan, covered by the clocks of a root that is not known.
func (s *Sampler) rootOf(p Process, alive map[int]Process) (root *followed, covered bool) {
	orphan := true
	for range len(alive) + 1 {
		if root := s.roots[p.id()]; root != nil {
			return root, true
		}
		parent, known := alive[p.Parent]
		if !known {
			break
		}
		p, orphan = parent, false
	}
	return nil, orphan
}

// readLinks reads the counters of all links of the host.
func (s *Sampler) readLinks(out *Sample) error {
	out.LinksNs = MonotonicNs()
	dev, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return err
	}
	if out.Links, err = parseNetDev(string(dev)); err != nil {
		return err
	}
	for _, name := range s.veths {
		out.Links[name] = out.Links[name].withHeaders()
	}
	return nil
}

func (s *Sampler) readNet(out *Sample) error {
	if err := s.readLinks(out); err != nil {
		return err
	}
	if s.snmp == nil {
		return errors.New("sampler is not open")
	}
	for i, f := range s.snmp {
		v, err := f.Read()
		if err != nil {
			return err
		}
		if out.SNMP = out.SNMP.Add(v); i == 0 {
			out.IPIn = v.IPInReceives
		}
	}
	return nil
}

// PSSMiB is the memory of the counted processes in MiB, when programs are
// followed with their descendants'. It walks page tables (milliseconds for large
// programs), so it is read outside the windows.
func (s *Sampler) PSSMiB() (float64, error) {
	alive, err := processesIn(s.PIDLink, s.Skip)
	if err != nil {
		return 0, err
	}
	var kib int64
	for _, p := range alive {
		if root, _ := s.rootOf(p, alive); root == nil && !s.counts(p) {
			continue
		}
		if v, err := pssKiB(p.PID); err == nil { // otherwise it has ended meanwhile
			kib += v
		}
	}
	return float64(kib) / 1024, nil
}

// MonotonicNs is the host's monotonic clock, nanoseconds.
func MonotonicNs() int64 { return clockNs(unix.CLOCK_MONOTONIC) }

// ThreadNs is the CPU time of the calling thread, nanoseconds.
func ThreadNs() int64 { return clockNs(unix.CLOCK_THREAD_CPUTIME_ID) }

func clockNs(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // these clocks always exist on Linux
	}
	return ts.Nano()
}
