package meter

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Sample is one reading of all of a host's meters.
type Sample struct {
	MonotonicNs int64             `json:"monotonic_ns"` // the host's clock when the CPU counters were read
	NAPI        map[string]Thread `json:"napi"`         // by interface name
	Processes   []Process         `json:"processes"`    // the host's programs, see Sampler.Counted
	Links       map[string]Link   `json:"links"`        // by interface name
	SNMP        SNMP              `json:"snmp"`         // host and clients together
	IPIn        int64             `json:"ip_in"`        // buffers received by the host's own IP layer
	Stat        Stat              `json:"stat"`         // the whole machine
	CPUs        int               `json:"cpus"`         // of the machine, online
	AgentNs     int64             `json:"agent_ns"`     // CPU time of the agent itself
	MeterNs     int64             `json:"meter_ns"`     // CPU time all samples so far have cost
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

	napi    map[string]pollingThread
	roots   map[processKey]*followed
	snmp    *SNMPFile
	clients []*SNMPFile
	meterNs int64
}

// Open finds the polling threads of IfNames; call it when links are up and
// again when they change. Links without a polling thread are an error: their
// work would land on nobody's account. After an error nothing is open.
func (s *Sampler) Open() (err error) {
	s.Close()
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	pids, err := NAPIThreads(s.IfNames)
	if err != nil {
		return err
	}
	s.napi = map[string]pollingThread{}
	for _, name := range s.IfNames {
		if len(pids[name]) != 1 {
			return fmt.Errorf("%s has %d NAPI threads, want 1: is threaded NAPI on and GRO not switched off?", name, len(pids[name]))
		}
		t, err := openPollingThread(pids[name][0])
		if err != nil {
			return err
		}
		s.napi[name] = t
	}
	if s.Follow {
		if err := s.readFollowed(&Sample{}); err != nil {
			return err
		}
	}
	s.snmp, err = OpenSNMP()
	return err
}

// pollingThread is one NAPI thread: its time by the task clock, its waiting
// and its slices by schedstat.
type pollingThread struct {
	*ThreadFile
	clock *TaskClock
}

func openPollingThread(pid int) (pollingThread, error) {
	file, err := OpenThread(pid)
	if err != nil {
		return pollingThread{}, err
	}
	clock, err := OpenTaskClock(pid, false)
	if err != nil {
		file.Close()
		return pollingThread{}, err
	}
	return pollingThread{file, clock}, nil
}

func (t pollingThread) read() (Thread, error) {
	th, err := t.Read()
	if err != nil {
		return th, err
	}
	th.RunNs, err = t.clock.Ns()
	return th, err
}

func (t pollingThread) close() {
	t.ThreadFile.Close()
	t.clock.Close()
}

// AddClients adds the counters of clients with namespaces of their own.
func (s *Sampler) AddClients(files []*SNMPFile) { s.clients = append(s.clients, files...) }

// Close releases the open counters.
func (s *Sampler) Close() {
	for _, t := range s.napi {
		t.close()
	}
	for _, f := range s.roots {
		f.close()
	}
	if s.snmp != nil {
		s.snmp.Close()
	}
	for _, c := range s.clients {
		c.Close()
	}
	s.napi, s.roots, s.snmp, s.clients = nil, nil, nil, nil
}

// Sample reads all meters. A failing meter is part of the returned error; what
// the others read is returned all the same.
func (s *Sampler) Sample() (Sample, error) {
	runtime.LockOSThread() // the cost is taken from the thread's own clock
	defer runtime.UnlockOSThread()
	before := threadNs()
	out := Sample{NAPI: map[string]Thread{}}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	out.MonotonicNs = MonotonicNs()
	for name, t := range s.napi {
		th, err := t.read()
		note(err)
		out.NAPI[name] = th
	}
	if s.Follow {
		note(s.readFollowed(&out))
	} else {
		note(s.readProcesses(&out))
	}
	note(s.readNet(&out))
	note(readProc("/proc/stat", func(r io.Reader) (err error) {
		var cpus map[int]Stat
		out.Stat, cpus, err = ParseProcStat(r)
		out.CPUs = len(cpus)
		return err
	}))
	s.meterNs += threadNs() - before
	out.MeterNs = s.meterNs
	out.AgentNs = processNs()
	return out, errors.Join(errs...)
}

func (s *Sampler) readProcesses(out *Sample) error {
	if s.PIDLink == "" {
		return nil
	}
	all, err := ProcessesIn(s.PIDLink, s.Skip)
	for _, p := range all {
		if s.counts(p) {
			out.Processes = append(out.Processes, p)
		}
	}
	return err
}

// processKey tells processes with a reused id apart.
type processKey struct {
	pid   int
	start int64
}

func keyOf(p Process) processKey { return processKey{p.PID, p.Start} }

// readFollowed reads the task clocks of all programs that were ever seen, and
// follows those not seen before unless a followed one has started them: that
// one's clocks have them already.
func (s *Sampler) readFollowed(out *Sample) error {
	first := s.roots == nil
	if first {
		s.roots = map[processKey]*followed{}
	}
	alive, err := ProcessesIn(s.PIDLink, s.Skip)
	if err != nil {
		return err
	}
	byPID := byPID(alive)
	waits := map[*followed]int64{}
	var errs []error
	for _, p := range alive {
		root, covered := s.rootOf(p, byPID)
		if s.counts(p) && (first || !covered) { // what runs already has inherited nothing
			f, err := follow(p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			s.roots[keyOf(p)], root = f, f
		}
		if root != nil {
			waits[root] += p.WaitNs
		}
	}
	for _, f := range s.roots {
		f.WaitNs = max(f.WaitNs, waits[f]) // what has ended takes its own with it
		p, err := f.read()
		errs = append(errs, err)
		out.Processes = append(out.Processes, p)
	}
	slices.SortFunc(out.Processes, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Start, b.Start), a.PID-b.PID) })
	return errors.Join(errs...)
}

func (s *Sampler) counts(p Process) bool {
	return len(s.Counted) == 0 || slices.Contains(s.Counted, p.Name)
}

func byPID(list []Process) map[int]Process {
	out := make(map[int]Process, len(list))
	for _, p := range list {
		out[p.PID] = p
	}
	return out
}

// rootOf is the followed program that p is or descends from. The parents of
// living programs tell, except for one that the host's init has taken over: it
// may be an orphan or the agent's. It is taken for an orphan, covered by clocks
// of a root that is not known any more.
func (s *Sampler) rootOf(p Process, alive map[int]Process) (root *followed, covered bool) {
	orphan := true
	for range len(alive) + 1 {
		if root := s.roots[keyOf(p)]; root != nil {
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

func (s *Sampler) readNet(out *Sample) error {
	err := readProc("/proc/thread-self/net/dev", func(r io.Reader) (err error) {
		out.Links, err = ParseNetDev(r)
		return err
	})
	if err != nil {
		return err
	}
	if s.snmp == nil {
		return errors.New("sampler is not open")
	}
	if out.SNMP, err = s.snmp.Read(); err != nil {
		return err
	}
	out.IPIn = out.SNMP.IPInReceives
	for _, c := range s.clients {
		v, err := c.Read()
		if err != nil {
			return err
		}
		out.SNMP = out.SNMP.Add(v)
	}
	return nil
}

// PSSMiB is the memory of the counted processes in MiB, when programs are
// followed with their descendants'. It walks page tables (milliseconds for large
// programs), so it is read outside the windows.
func (s *Sampler) PSSMiB() (float64, error) {
	alive, err := ProcessesIn(s.PIDLink, s.Skip)
	if err != nil {
		return 0, err
	}
	byPID := byPID(alive)
	var kib int64
	for _, p := range alive {
		if root, _ := s.rootOf(p, byPID); root == nil && !s.counts(p) {
			continue
		}
		if v, err := PSSKiB(p.PID); err == nil { // otherwise it has ended meanwhile
			kib += v
		}
	}
	return float64(kib) / 1024, nil
}

func readProc(path string, parse func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return parse(f)
}

// MonotonicNs is the host's monotonic clock, nanoseconds.
func MonotonicNs() int64 { return clockNs(unix.CLOCK_MONOTONIC) }

func threadNs() int64  { return clockNs(unix.CLOCK_THREAD_CPUTIME_ID) }
func processNs() int64 { return clockNs(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockNs(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // these clocks always exist on Linux
	}
	return ts.Nano()
}
