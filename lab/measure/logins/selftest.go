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

// hostFailures are what a client host meets when the machine's limits are too low, and
// what to do about them where it is known.
var hostFailures = []struct{ text, remedy string }{
	{"too many open files", ": raise nofile (ulimit -Hn), gateweigh doctor says how far"},
	{"no buffer space available", ""},
	{"opening a socket", ""},
	{"cannot assign requested address", ""},
	{"resource temporarily unavailable", ""},
}

// evidence is the input of a storm's self-tests besides the record.
type evidence struct {
	polling     string // the polling thread of the router's link to the clients
	ended       bench.Ended
	cpus        int     // of the machine
	speed       float64 // of the routers, as asked for; 0: not slowed
	overflows   int64   // of the machine's neighbour table, during the storm
	failedProof bench.Rejects
}

// judge applies the self-tests: a storm that failed by a limit of the lab is rejected. Failures
// caused by the device are results, also when its programs end.
func (s *Storm) judge(e evidence) (bench.Rejects, error) {
	rules := []bench.Rule{bench.RejectFor(e.failedProof...)}
	for _, text := range e.ended.Lab {
		rules = append(rules, bench.RejectIf(true, "lab: %s", text))
	}
	// Leases always cross the link; what a login sends is the portal's affair.
	rules = append(rules, bench.RejectIf(s.Lease.Through > 0 && s.Lease.ThreadNs[e.polling] == 0,
		"leases: polling thread %s did not run: its work is counted elsewhere", e.polling))
	rules = append(rules, s.Lease.rules("leases", e)...)
	rules = append(rules, s.Login.rules("logins", e)...)
	return bench.Judge(append(rules, bench.RejectIf(e.overflows > 0,
		"machine: its neighbour table was full %s (gc_thresh3 is one for all namespaces): "+
			"gateweigh doctor says what to set", words.Counted(int(e.overflows), "time")))...)
}

// rules are those of one phase.
func (p Phase) rules(name string, e evidence) []bench.Rule {
	w := bench.Window{
		When: " during the " + name, Seconds: p.Seconds, Machine: p.Machine, CPUs: e.cpus,
		Asked: e.speed, Share: p.RouterShare,
	}
	most := maxOther + bench.Ticks(otherTicks, p.Seconds, e.cpus)
	return []bench.Rule{w.Speed, w.Steal,
		bench.RejectIf(p.OtherBusy > most, "machine: other programs used %.0f %% of it during the %s, limit %.0f %%",
			100*p.OtherBusy, name, 100*most),
		func(r *bench.Rejects) error { p.rejectHostFailures(name, r); return nil },
	}
}

// rejectHostFailures adds the failures that are a client host's own.
func (p Phase) rejectHostFailures(name string, r *bench.Rejects) {
	for _, reason := range slices.Concat(p.Failures, p.Refusals) {
		for _, own := range hostFailures {
			if strings.Contains(reason.First, own.text) {
				r.Add("client host, %s: %s met a limit of its own: %s%s", name,
					words.Counted(reason.Count, "client"), reason.First, own.remedy)
				break
			}
		}
	}
}
