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
	MonotonicNs int64             `json:"monotonic_ns"` // the host's monotonic clock when the CPU counters were read
	LinksNs     int64             `json:"links_ns"`     // the same clock when the links' counters were read
	NAPI        map[string]Thread `json:"napi"`         // by interface name: the sum of all threads that poll it
	Processes   []Process         `json:"processes"`    // the host's programs, see Sampler.Counted
	Links       map[string]Link   `json:"links"`        // by interface name
	SNMP        SNMP              `json:"snmp"`         // sum of the host's namespace and its clients'
	IPIn        int64             `json:"ip_in"`        // buffers received by the host's own IP layer
	Stat        Stat              `json:"stat"`         // of the whole machine
	Unused      map[int]int64     `json:"unused"`       // by CPU: ticks in which it idled or another virtual machine had it
	Steal       map[int]int64     `json:"steal"`        // by CPU: ticks in which another virtual machine had it
	CPUs        int               `json:"cpus"`         // number of the machine's CPUs that are online
	AgentNs     int64             `json:"agent_ns"`     // CPU time of the agent itself
	MeterNs     int64             `json:"meter_ns"`     // CPU time that all readings so far have cost
	// Polling is how links without polling threads were metered: BySoftirq or ByTicks; empty: all links have threads.
	Polling string `json:"polling,omitempty"`
	// InterruptNs is the part of NAPI's time that was in interrupts, by CPU (see StolenNs).
	InterruptNs map[int]int64 `json:"interrupt_ns,omitempty"`
	// Unmetered is why NAPI and Processes are left out; empty: they are read.
	Unmetered string `json:"unmetered,omitempty"`
}

// Sampler reads the meters of one host. It is not safe for concurrent use.
type Sampler struct {
	// IfNames are the lab's links on this host.
	IfNames []string
	// PIDLink names the process namespace of the host's programs (see PIDsIn).
	PIDLink string
	// Skip are processes of that namespace that are never counted.
	Skip map[int]bool
	// Counted are the command names that count; empty counts all.
	Counted []string
	// Follow counts programs by task clocks, as polling threads always are: to the nanosecond, with all their descendants.
	// It counts the programs that run when the sampler is opened, and what these start. It does not count what the agent
	// starts later, nor what a program starts in the very milliseconds in which its clocks are opened. A program that is
	// not Counted, but has started one that is, must go on running.
	Follow bool
	// Kernel lists the kernel threads that count as well, by their names up to a slash: "kworker", "ksoftirqd".
	Kernel []string
	// Unmetered is why CPU time is not read. Empty: it is read, and a clock that cannot be opened is an error.
	Unmetered string

	napi    map[string][]pollingThread // by interface name
	veths   []string                   // those of IfNames that are veths
	roots   map[Process]*followed      // programs with task clocks (Follow), by Process.id
	kernel  map[Process]Process        // kernel threads as they were last read, by Process.id
	snmp    []*SNMPFile                // the host's first, then those of clients with namespaces of their own
	meterNs int64                      // Sample.MeterNs

	interrupted interruptedLinks // those of IfNames that no thread polls
}

// Open finds the polling threads of IfNames and opens all counters. Call it when the links are up, and again when they
// change. Links without polling threads are metered in interrupts. It is an error if the kernel was asked to poll a
// link by threads and the link has none, because its work would not be counted. After an error nothing is open.
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

// AddClients adds the counters of clients that have network namespaces of their own.
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

// Sample reads all meters. When one of them fails, the error says so, and the sample has the readings of the others.
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

// readClocks reads the CPU time of polling threads, programs and kernel threads into out.
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

// readFollowed reads the task clocks of all programs that it follows, and begins to follow new programs. It does not
// follow a program that a followed one has started, because the clocks of that one count it already.
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

// counts reports whether a process is one of the programs in Counted.
func (s *Sampler) counts(p Process) bool {
	return len(s.Counted) == 0 || slices.Contains(s.Counted, p.Name)
}

// rootOf returns the followed program that p is or descends from. It looks for it among the parents of p in alive, the
// host's living programs by process id. covered reports whether the clocks of a followed program count p. That is taken
// to be so, without a known root, if the parent of p is not among the host's programs: p may then be an orphan whose
// parent was followed and has ended.
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

// readNet reads the counters of all links, and the IP counters of the host and its clients, into out.
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

// PSSMiB returns the memory of the counted processes in MiB (proportional set size). With Follow it includes their
// descendants. It walks page tables, which takes milliseconds for large programs, so it is called outside of windows.
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

// clockNs reads a clock of clock_gettime(2), nanoseconds.
func clockNs(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // these clocks always exist on Linux
	}
	return ts.Nano()
}
