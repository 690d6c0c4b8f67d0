package bench

import "github.com/gateweigh/gateweigh/lab/burn"

// leastOthers is the smallest use by other programs that counts, in CPUs. Less can be interrupts, the kernel's own work
// or the error of clocks.
const leastOthers = 0.1

// OthersShare is the share of the routers' CPUs, 0 to 1, that programs of other users of the machine used between two
// snapshots. The kernel's own work does not count. usedNs is the CPU time of all routers. The programs that slow
// routers down (package burn) are the lab's.
//
// usedNs includes the kernel's threads that work for devices (dut.Traits.KernelThreads), on any CPU. With such devices
// the true share can be larger, by up to the time of these threads on CPUs that are not the routers'.
func (s *Bench) OthersShare(a, b Snapshot, usedNs int64) float64 {
	others, _ := s.otherPrograms(a, b, usedNs)
	return others / float64(max(len(s.Router.CPUs), 1))
}

// otherPrograms returns how many of the routers' CPUs were used by other programs, and how many were busy at all, both
// in CPUs.
func (s *Bench) otherPrograms(a, b Snapshot, usedNs int64) (others, busy float64) {
	seconds := secondsBetween(a, b)
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

// WaitedForOthers is how long a router's threads waited for a CPU because of other programs, as a share of the time
// between two snapshots; it exceeds 1 when several threads waited. waitNs is the run-queue wait of the router's
// threads. Threads of a device also wait for each other, which is no disturbance. So the wait is multiplied by the
// other programs' part of the CPUs' busy time (see OthersShare).
func (s *Bench) WaitedForOthers(a, b Snapshot, waitNs, usedNs int64) float64 {
	others, busy := s.otherPrograms(a, b, usedNs)
	if others == 0 {
		return 0
	}
	seconds := secondsBetween(a, b)
	return float64(waitNs) / 1e9 / seconds * others / busy
}
