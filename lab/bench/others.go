package bench

import "github.com/gateweigh/gateweigh/lab/burn"

// leastOthers is how many CPUs interrupts and the kernel's own work take, and clocks are off.
const leastOthers = 0.1

// OthersShare is the share of the routers' CPUs, 0 to 1, that programs had between two readings which are not of a lab;
// what the kernel itself takes counts as nothing. usedNs is the time of all routers; what slows them down is the lab's
// too.
//
// usedNs has the kernel's threads that work for devices (dut.Traits.KernelThreads) on whatever CPU: nobody knows which
// part of it was the routers'. With such devices others can therefore have had more than is found, by up to what those
// threads used on other CPUs.
func (s *Bench) OthersShare(a, b Reading, usedNs int64) float64 {
	others, _ := s.others(a, b, usedNs)
	return others / float64(max(len(s.Router.CPUs), 1))
}

// others is how much of the routers' CPUs others had, and how much was in use, CPUs.
func (s *Bench) others(a, b Reading, usedNs int64) (others, busy float64) {
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

// WaitedForOthers is for how long, of the time between two readings, threads of a router waited for a CPU that programs
// had which are not of a lab. A device with many threads waits for its own, which is no disturbance: of the wait counts
// the part that other programs had of all that ran there (see OthersShare).
func (s *Bench) WaitedForOthers(a, b Reading, waitNs, usedNs int64) float64 {
	others, busy := s.others(a, b, usedNs)
	if others == 0 {
		return 0
	}
	seconds := secondsOf(a, b)
	return float64(waitNs) / 1e9 / seconds * others / busy
}
