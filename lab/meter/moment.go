package meter

import (
	"errors"
	"os"
	"runtime"
)

// Moment is a reading of few counters, which is taken many times within a window.
type Moment struct {
	Ns      int64 `json:"ns"`       // the host's monotonic clock
	CPUNs   int64 `json:"cpu_ns"`   // CPU time so far of polling threads, interrupts and counted programs
	TxBytes int64 `json:"tx_bytes"` // bytes that the links have sent so far
}

// Moment reads the CPU time, and the bytes that the interfaces named by links have sent. It costs less than Sample,
// because it does not look for new programs: a program counts only from the next Sample on. costNs is the CPU time of
// the reading itself; Sample.MeterNs includes it.
func (s *Sampler) Moment(links []string) (m Moment, costNs int64, err error) {
	runtime.LockOSThread() // the cost is taken from the thread's own clock
	defer runtime.UnlockOSThread()
	before := ThreadNs()
	defer func() {
		costNs = ThreadNs() - before
		s.meterNs += costNs
	}()
	m.Ns = MonotonicNs()
	var errs []error
	for _, list := range s.napi {
		for _, t := range list {
			ns, err := t.clock.ns()
			errs, m.CPUNs = append(errs, err), m.CPUNs+ns
		}
	}
	for _, f := range s.roots {
		p, err := f.read()
		errs, m.CPUNs = append(errs, err), m.CPUNs+p.RunNs
	}
	rest := Sample{NAPI: map[string]Thread{}}
	errs = append(errs, s.readKernel(&rest), s.readLinks(&rest))
	if s.interrupted.polling() == ByTicks {
		stat, err := os.ReadFile("/proc/stat")
		if err == nil {
			rest.Stat, _, err = ParseProcStat(string(stat))
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.interrupted.read(&rest))
	for _, p := range rest.Processes {
		m.CPUNs += p.RunNs
	}
	for _, t := range rest.NAPI {
		m.CPUNs += t.RunNs
	}
	for _, name := range links {
		m.TxBytes += rest.Links[name].TxBytes
	}
	return m, 0, errors.Join(errs...)
}
