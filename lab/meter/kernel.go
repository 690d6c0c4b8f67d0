package meter

import (
	"maps"
	"slices"
	"strings"
)

// kthreadd is the id of the kernel thread that is the parent of all others.
const kthreadd = 2

// OfKernel reports whether a process is a kernel thread.
func (p Process) OfKernel() bool { return p.Parent == kthreadd }

// readKernel adds the kernel threads that Sampler.Kernel names to out.Processes. It takes those of the whole machine,
// because a kernel thread has no namespace, so their work for other programs is in the figures too. A thread that has
// ended is listed with what it had used when it was last read.
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
