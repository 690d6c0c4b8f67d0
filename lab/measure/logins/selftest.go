package logins

import (
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Limits of a storm's self-tests.
const (
	maxOther   = 0.30 // of all CPUs, by programs outside the lab
	otherTicks = 4    // of the machine's clock, 10 ms each, by which that may be off
)

// ownFailures are what a client host meets when the machine's limits are too low, and
// what to do about them where it is known.
var ownFailures = []struct{ text, remedy string }{
	{"too many open files", ": raise nofile (ulimit -Hn), gateweigh doctor says how far"},
	{"no buffer space available", ""},
	{"opening a socket", ""},
	{"cannot assign requested address", ""},
	{"resource temporarily unavailable", ""},
}

// evidence is the input of a storm's self-tests besides the record.
type evidence struct {
	polling   string // the polling thread of the router's link to the clients
	ended     bench.Ended
	cpus      int     // of the machine
	speed     float64 // of the routers, as asked for; 0: not slowed
	overflows int64   // of the machine's neighbour table, during the storm
	unlike    bench.Rejects
}

// judge applies the self-tests: a storm that failed by a limit of the lab is rejected. Failures
// caused by the device are results, also when its programs end.
func judge(s *Storm, e evidence) {
	rejects := e.unlike
	reject := rejects.Add
	s.Died = e.ended.Device
	for _, text := range e.ended.Lab {
		reject("lab: %s", text)
	}
	// Leases always cross the link; what a login sends is the portal's affair.
	if s.Lease.Through > 0 && s.Lease.ThreadNs[e.polling] == 0 {
		reject("leases: polling thread %s did not run: its work is counted elsewhere", e.polling)
	}
	for _, phase := range []struct {
		name string
		Phase
	}{{"leases", s.Lease}, {"logins", s.Login}} {
		rejects.Speed(phase.RouterShare, e.speed, " during the "+phase.name)
		rejects.Steal(phase.Machine, phase.Seconds, e.cpus, " during the "+phase.name)
		if most := maxOther + bench.Ticks(otherTicks, phase.Seconds, e.cpus); phase.OtherBusy > most {
			reject("machine: other programs used %.0f %% of it during the %s, limit %.0f %%", 100*phase.OtherBusy, phase.name,
				100*most)
		}
		for _, reason := range slices.Concat(phase.Failures, phase.Refusals) {
			own := slices.IndexFunc(
				ownFailures, func(f struct{ text, remedy string }) bool { return strings.Contains(reason.First, f.text) })
			if own >= 0 {
				reject("client host, %s: %s met a limit of its own: %s%s", phase.name, words.Counted(reason.Count, "client"),
					reason.First, ownFailures[own].remedy)
			}
		}
	}
	if e.overflows > 0 {
		reject("machine: its neighbour table was full %s (gc_thresh3 is one for all namespaces): gateweigh doctor says "+
			"what to set", words.Counted(int(e.overflows), "time"))
	}
	s.Rejects, s.Accepted = rejects, len(rejects) == 0
}
