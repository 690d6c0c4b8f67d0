// The end of the soak test (soak_test.go): what clients have seen is compared with what the daemon and the RADIUS
// servers say. TestSoakFindsFaults shows that the comparison finds faults.

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

// The growth that is allowed. The heap's goal is twice the memory that Go's collector finds in use: in 50 minutes with
// 10,000 sessions it grows by 5 % of 40 MB if each session leaks 100 bytes. The process's memory also has what the
// collector has freed and not returned yet, by which it grew by 4 % while the goal did not.
const (
	memoryGrowth = 0.05 // part of the mean of all memory
	countGrowth  = 3    // file descriptors, or threads
	tableGrowth  = 0.10 // part of the mean of a table's entries
	tableEntries = 50   // entries besides, which odd devices make up
)

// reportFaults fails the benchmark for each figure that grew, each wrong account and each error in the log.
func (s *soak) reportFaults() {
	for _, label := range slices.Sorted(maps.Keys(s.actions)) {
		fmt.Printf("%6d %s\n", s.actions[label], label)
	}
	for _, text := range slices.Concat(s.measured.growthFaults(), s.accountingFaults(s.acct.accounting(""))) {
		s.fault("%s", text)
	}
	for line := range strings.Lines(s.daemon.output()) {
		if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") {
			s.fault("the daemon's log: %s", line)
		}
	}
	fmt.Printf("%d sessions, %d faults\n", len(s.sessions), len(s.faults))
}

// growthFaults returns the figures that grew more than is allowed.
func (m *meter) growthFaults() (faults []string) {
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

// accountingFaults returns where the accounting server's records differ from the sessions as their clients saw them.
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

// covers reports whether counts other than the client's own may be right, because it had traffic that it did not count.
func (l *clientSession) covers(c control.Traffic) bool {
	all := l.traffic.UpBytes + l.traffic.DownBytes + mostUncounted
	return l.uncounted && c.UpBytes >= l.traffic.UpBytes && c.DownBytes >= l.traffic.DownBytes &&
		c.UpBytes+c.DownBytes <= all
}

// mostUncounted is the largest traffic that a client has and does not count, bytes: some files and refused datagrams.
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
		"right":                 {reports: []record{start, reports("1", "Interim-Update", "50"), stop}},
		"started twice":         {reports: []record{start, start, stop}, found: 1},
		"never stopped":         {reports: []record{start}, found: 1},
		"updated after the end": {reports: []record{start, stop, reports("1", "Interim-Update", "100")}, found: 1},
		"not at all":            {found: 1},
		"of no client": {
			reports: []record{start, stop, reports("2", "Start", "0"), reports("2", "Stop", "0")}, found: 1},
		"too many bytes":               {reports: []record{start, reports("1", "Stop", "101")}, found: 1},
		"more, with uncounted traffic": {reports: []record{start, reports("1", "Stop", "101")}, uncounted: true},
		"less, with uncounted traffic": {reports: []record{start, reports("1", "Stop", "99")}, uncounted: true, found: 1},
	} {
		s := &soak{sessions: map[string]*clientSession{
			"1": {id: "1", traffic: control.Traffic{UpBytes: 100}, uncounted: c.uncounted}}}
		if got := s.accountingFaults(c.reports); len(got) != c.found {
			t.Errorf("%s: found %q", name, got)
		}
	}
	for name, c := range map[string]struct {
		mb, fds float64 // growth in a minute
		found   int
	}{"flat": {}, "falls": {mb: -1, fds: -1}, "leaks memory": {mb: 0.05, found: 1}, "leaks files": {fds: 0.1, found: 1}} {
		m := &meter{}
		for i := range 60 {
			level := float64(i)
			m.minutes = append(
				m.minutes, figures{"PSS MB": 40, "heap goal MB": 13 + c.mb*level, "fds": 100 + c.fds*level, "objects": level})
		}
		if got := m.growthFaults(); len(got) != c.found {
			t.Errorf("%s: found %q", name, got)
		}
	}
}
