package bench

import "github.com/gateweigh/gateweigh/lab/burn"

// leastOthers is the smallest number of CPUs that counts as use by others. Less can be interrupts, the kernel's own
// work or the error of clocks.
const leastOthers = 0.1

// OthersShare is the share of the routers' CPUs, 0 to 1, that other programs than the lab's had between two snapshots.
// The kernel's own work does not count. usedNs is the CPU time of all routers. The programs that slow routers down are
// the lab's.
//
// usedNs includes the kernel's threads that work for devices (dut.Traits.KernelThreads), on any CPU. With such devices
// the true share can be larger, by up to the time of these threads on CPUs that are not the routers'.
func (s *Bench) OthersShare(a, b Snapshot, usedNs int64) float64 {
	others, _ := s.otherPrograms(a, b, usedNs)
	return others / float64(max(len(s.Router.CPUs), 1))
}

// otherPrograms returns how many of the routers' CPUs other programs had, and how many were busy.
func (s *Bench) otherPrograms(a, b Snapshot, usedNs int64) (others, busy float64) {
	seconds := secondsOf(a, b)
	if seconds <= 0 {
		return 0, 0
	}
	busy = float64(len(s.Router.CPUs))
	for _, cpu := range s.Router.CPUs {
		busy -= Ticks(float64(b.Router.Unused[cpu]-a.Router.Unused[cpu]), seconds, 1)
	}
	var burned float64
	for i := range b.Slow {
		burned += burn.Share(a.Slow[i], b.Slow[i])
	}
	if others = busy - burned - float64(usedNs)/1e9/seconds; others < leastOthers {
		return 0, busy
	}
	return others, busy
}

// WaitedForOthers is the time that threads of a router waited for CPUs that other programs than the lab's had, as a
// share of the time between two snapshots. A device with many threads also waits for itself, which is no disturbance.
// So the wait is multiplied by the part that other programs had of the CPUs' busy time (see OthersShare).
func (s *Bench) WaitedForOthers(a, b Snapshot, waitNs, usedNs int64) float64 {
	others, busy := s.otherPrograms(a, b, usedNs)
	if others == 0 {
		return 0
	}
	seconds := secondsOf(a, b)
	return float64(waitNs) / 1e9 / seconds * others / busy
}
