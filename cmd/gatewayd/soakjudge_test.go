package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// How much growth is none. The heap's goal is twice what Go's collector finds in use: a session that leaves 100 bytes
// behind makes it grow by 5 % of 40 MB in 50 minutes of 10,000 sessions. All memory also has what the collector has
// freed and not given back yet, which made it grow by 4 % where the goal did not.
const (
	memoryGrowth = 0.05 // of all memory's mean
	countGrowth  = 3    // file descriptors and threads
	tableGrowth  = 0.10 // of a table's entries, and
	tableEntries = 50   // besides: odd devices come with what they make up
)

// reportFaults fails the benchmark for whatever the daemon did wrong.
func (s *soak) reportFaults() {
	for _, label := range slices.Sorted(maps.Keys(s.actions)) {
		fmt.Printf("%6d %s\n", s.actions[label], label)
	}
	for _, text := range slices.Concat(s.measured.flat(), s.accountingFaults(s.acct.accounting(""))) {
		s.fault("%s", text)
	}
	for line := range strings.Lines(s.daemon.output()) {
		if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") {
			s.fault("the daemon's log: %s", line)
		}
	}
	fmt.Printf("%d sessions, %d faults\n", len(s.sessions), len(s.faults))
}

// flat returns what the daemon held more and more of.
func (m *meter) flat() (faults []string) {
	if len(m.minutes) < 2*warmUpMinutes {
		fmt.Printf("%d minutes are too few to say whether memory is flat\n", len(m.minutes))
		return nil
	}
	_, memory := m.growth("PSS MB")
	for _, name := range slices.Sorted(maps.Keys(m.minutes[len(m.minutes)-1])) {
		grown, mean := m.growth(name)
		fmt.Printf("minutes %d to %d: %s grew by %.3g, of %.4g\n", warmUpMinutes, len(m.minutes), name, grown, mean)
		most := math.Inf(1)
		switch {
		case slices.Contains([]string{"PSS MB", "RSS MB", "heap goal MB", "outside heap MB"}, name):
			most = memoryGrowth * memory
		case name == "fds" || name == "threads":
			most = countGrowth
		case strings.HasPrefix(name, "table ") || name == "conntrack" || name == "leases" || name == "clients":
			most = tableGrowth*mean + tableEntries
		}
		if grown > most {
			faults = append(faults, fmt.Sprintf("%s is not flat: it grew by %.4g of %.4g", name, grown, mean))
		}
	}
	return faults
}

// accountingFaults returns what the accounting server was told that clients have not done.
func (s *soak) accountingFaults(records []record) (faults []string) {
	find := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := map[string][]record{}
	for _, r := range records {
		id := r.value("Acct-Session-Id")
		if kind := r.value("Acct-Status-Type"); kind != "Accounting-On" && kind != "Accounting-Off" {
			all[id] = append(all[id], r)
		}
	}
	exact := 0
	for id, records := range all {
		once := slices.DeleteFunc(kinds(records), func(kind string) bool { return kind == "Interim-Update" })
		last := records[len(records)-1]
		l := s.sessions[id]
		switch {
		case !slices.Equal(once, []string{"Start", "Stop"}) || last.value("Acct-Status-Type") != "Stop":
			find("session %s was accounted as %v", id, kinds(records))
		case l == nil:
			find("session %s of %s is accounted, and no client has had it", id, last.value("User-Name"))
		case last.counts() == l.traffic:
			exact++
		case !l.covers(last.counts()):
			find("session %s of %s (%s, %s) is counted %+v, and its client has passed %+v",
				id, l.user, l.endedBy, last.value("Acct-Terminate-Cause"), last.counts(), l.traffic)
		}
	}
	for id, l := range s.sessions {
		if all[id] == nil {
			find("session %s of %s is not accounted", id, l.user)
		}
	}
	fmt.Printf("%d sessions accounted, %d of them to the byte as their clients counted; the others had other traffic, "+
		"too\n", len(all), exact)
	return faults
}

// covers reports whether a client may be counted other counts than its own: it had traffic that it did not count.
func (l *clientSession) covers(c control.Traffic) bool {
	all := l.traffic.UpBytes + l.traffic.DownBytes + mostUncounted
	return l.uncounted && c.UpBytes >= l.traffic.UpBytes && c.DownBytes >= l.traffic.DownBytes &&
		c.UpBytes+c.DownBytes <= all
}

// mostUncounted is what a client passes at most that it does not count: some files and refused datagrams.
const mostUncounted = 20 * 2 * fileBytes

// TestSoakFindsFaults: the checks of BenchmarkSoak find leaks, sessions that were reported twice, half or not at all,
// and wrong byte counts.
func TestSoakFindsFaults(t *testing.T) {
	t.Parallel()
	reports := func(id, kind, bytes string) record {
		r := record{"Acct-Session-Id": {id}, "Acct-Status-Type": {kind}}
		for _, name := range []string{
			"Input-Gigawords", "Output-Gigawords", "Output-Octets", "Input-Packets", "Output-Packets"} {
			r["Acct-"+name] = []string{"0"}
		}
		r["Acct-Input-Octets"] = []string{bytes}
		return r
	}
	start, stop := reports("1", "Start", "0"), reports("1", "Stop", "100")
	for name, c := range map[string]struct {
		reports   []record
		uncounted bool
		found     int
	}{
		"as it was":        {reports: []record{start, reports("1", "Interim-Update", "50"), stop}},
		"started twice":    {reports: []record{start, start, stop}, found: 1},
		"never stopped":    {reports: []record{start}, found: 1},
		"updated after it": {reports: []record{start, stop, reports("1", "Interim-Update", "100")}, found: 1},
		"not at all":       {found: 1},
		"of nobody": {
			reports: []record{start, stop, reports("2", "Start", "0"), reports("2", "Stop", "0")}, found: 1},
		"too much":            {reports: []record{start, reports("1", "Stop", "101")}, found: 1},
		"more, as it must be": {reports: []record{start, reports("1", "Stop", "101")}, uncounted: true},
		"less than it must":   {reports: []record{start, reports("1", "Stop", "99")}, uncounted: true, found: 1},
	} {
		s := &soak{sessions: map[string]*clientSession{
			"1": {id: "1", traffic: control.Traffic{UpBytes: 100}, uncounted: c.uncounted}}}
		if got := s.accountingFaults(c.reports); len(got) != c.found {
			t.Errorf("%s: found %q", name, got)
		}
	}
	for name, c := range map[string]struct {
		mb, fds float64 // a minute
		found   int
	}{"flat": {}, "falls": {mb: -1, fds: -1}, "leaks memory": {mb: 0.05, found: 1}, "leaks files": {fds: 0.1, found: 1}} {
		m := &meter{}
		for i := range 60 {
			level := float64(i)
			m.minutes = append(
				m.minutes, figures{"PSS MB": 40, "heap goal MB": 13 + c.mb*level, "fds": 100 + c.fds*level, "objects": level})
		}
		if got := m.flat(); len(got) != c.found {
			t.Errorf("%s: found %q", name, got)
		}
	}
}
