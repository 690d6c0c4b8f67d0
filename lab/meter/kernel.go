package meter

import (
	"maps"
	"slices"
	"strings"
)

// kthreadd starts all other threads of the kernel.
const kthreadd = 2

// OfKernel reports whether a process is a thread of the kernel.
func (p Process) OfKernel() bool { return p.Parent == kthreadd }

// readKernel adds the kernel's threads that count: those of Kernel, of the whole machine. They have no namespace, so
// what they do for others counts too. Threads that have ended keep what they had used when they were last read.
func (s *Sampler) readKernel(out *Sample) error {
	if len(s.Kernel) == 0 {
		return nil
	}
	if s.kernel == nil {
		s.kernel = map[Process]Process{}
	}
	pids, err := PIDs()
	for _, pid := range pids {
		p, err := ReadStat(pid)
		if err != nil || p.Parent != kthreadd {
			continue // an error: it has ended meanwhile
		}
		// A worker's name goes on with what it does, "kworker/u4:1-events_unbound", and changes.
		name, _, _ := strings.Cut(p.Name, "/")
		if !slices.Contains(s.Kernel, name) {
			continue
		}
		if p, err = ReadProcess(pid); err == nil {
			p.Name = name
			s.kernel[p.id()] = p
		}
	}
	out.Processes = slices.AppendSeq(out.Processes, maps.Values(s.kernel))
	return err
}
