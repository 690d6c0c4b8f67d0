package meter

import (
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

	napi    map[string]*ThreadFile
	snmp    *SNMPFile
	clients []*SNMPFile
	meterNs int64
}

// Open finds the polling threads of IfNames; call it when links are up and
// again when they change. Links without a polling thread are an error: their
// work would land on nobody's account.
func (s *Sampler) Open() error {
	s.Close()
	pids, err := NAPIThreads(s.IfNames)
	if err != nil {
		return err
	}
	s.napi = map[string]*ThreadFile{}
	for _, name := range s.IfNames {
		if len(pids[name]) != 1 {
			return fmt.Errorf("%s has %d NAPI threads, want 1: is threaded NAPI on and GRO not switched off?", name, len(pids[name]))
		}
		if s.napi[name], err = OpenThread(pids[name][0]); err != nil {
			return err
		}
	}
	s.snmp, err = OpenSNMP()
	return err
}

// AddClients adds the counters of clients with namespaces of their own.
func (s *Sampler) AddClients(files []*SNMPFile) { s.clients = append(s.clients, files...) }

// Close releases the open counters.
func (s *Sampler) Close() {
	for _, t := range s.napi {
		t.Close()
	}
	if s.snmp != nil {
		s.snmp.Close()
	}
	for _, c := range s.clients {
		c.Close()
	}
	s.napi, s.snmp, s.clients = nil, nil, nil
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
		th, err := t.Read()
		note(err)
		out.NAPI[name] = th
	}
	note(s.readProcesses(&out))
	note(s.readNet(&out))
	note(readProc("/proc/stat", func(r io.Reader) (err error) {
		out.Stat, _, err = ParseProcStat(r)
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
		if len(s.Counted) == 0 || slices.Contains(s.Counted, p.Name) {
			out.Processes = append(out.Processes, p)
		}
	}
	return err
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

// PSSMiB is the memory of the counted processes in MiB. It walks page tables
// (milliseconds for large programs), so it is read outside the windows.
func (s *Sampler) PSSMiB() (float64, error) {
	var out Sample
	if err := s.readProcesses(&out); err != nil {
		return 0, err
	}
	var kib int64
	for _, p := range out.Processes {
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
