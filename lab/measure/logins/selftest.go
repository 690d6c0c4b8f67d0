package logins

import (
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Limits of a storm's self-tests.
const (
	maxOther   = 0.30 // share of all CPUs that programs outside the lab may use
	otherTicks = 4    // error of that share, in ticks of 10 ms of the kernel's CPU accounts
)

// hostFailures are errors of a client host whose machine has limits that are too low. The remedy may be empty.
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

// judge applies the self-tests. It rejects a storm that a limit of the lab made fail. Failures caused by the device are
// results, also if its programs ended.
func (s *Storm) judge(e evidence) (bench.Rejects, error) {
	rules := []bench.Rule{bench.RejectFor(e.failedProof...)}
	for _, text := range e.ended.Lab {
		rules = append(rules, bench.RejectIf(true, "lab: %s", text))
	}
	// Leases always cross the router's link. A login may not.
	rules = append(rules, bench.RejectIf(s.Lease.Through > 0 && s.Lease.ThreadNs[e.polling] == 0,
		"leases: polling thread %s did not run: its work is counted elsewhere", e.polling))
	rules = append(rules, s.Lease.rules("leases", e)...)
	rules = append(rules, s.Login.rules("logins", e)...)
	return bench.Judge(append(rules, bench.RejectIf(e.overflows > 0,
		"machine: its neighbour table was full %s (gc_thresh3 is one for all namespaces): "+
			"gateweigh doctor says what to set", words.Counted(int(e.overflows), "time")))...)
}

// rules returns the self-tests of one phase. name is the phase's name in messages.
func (p Phase) rules(name string, e evidence) []bench.Rule {
	w := bench.Window{
		When: " during the " + name, Seconds: p.Seconds, Machine: p.Machine, CPUs: e.cpus,
		WantedShare: e.speed, Share: p.RouterShare,
	}
	most := maxOther + bench.Ticks(otherTicks, p.Seconds, e.cpus)
	return []bench.Rule{w.Speed, w.Steal,
		bench.RejectIf(p.OtherBusy > most, "machine: other programs used %.0f %% of it during the %s, limit %.0f %%",
			100*p.OtherBusy, name, 100*most),
		func(r *bench.Rejects) error { p.rejectHostFailures(name, r); return nil },
	}
}

// rejectHostFailures rejects a phase in which clients failed by a limit of their host.
func (p Phase) rejectHostFailures(name string, r *bench.Rejects) {
	for _, reason := range slices.Concat(p.Failures, p.Refusals) {
		for _, failure := range hostFailures {
			if strings.Contains(reason.First, failure.text) {
				r.Add("client host, %s: %s met a limit of its own: %s%s", name,
					words.Counted(reason.Count, "client"), reason.First, failure.remedy)
				break
			}
		}
	}
}
