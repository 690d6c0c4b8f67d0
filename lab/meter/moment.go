package meter

import (
	"errors"
	"os"
	"runtime"
)

// Moment is a reading of the counters that a course over time needs.
type Moment struct {
	Ns      int64 `json:"ns"`       // the host's clock
	CPUNs   int64 `json:"cpu_ns"`   // that polling threads and counted programs have used so far
	TxBytes int64 `json:"tx_bytes"` // that some links have sent so far
}

// Moment reads CPU time and what some links have sent. It costs a part of Sample, because it looks for no new programs:
// a program counts from the sample after its start on. costNs is the CPU time that the reading took; it is in
// Sample.MeterNs, too.
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
