package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// How much is flat. A session that leaves 300 bytes behind makes a daemon of 40 MB grow by 5 % in 50 minutes of 8000 sessions; the
// collector and the kernel make the medians of minutes differ by 2 %.
const (
	memoryGrowth = 0.05 // of the mean
	countGrowth  = 3    // file descriptors and threads
	tableGrowth  = 0.10 // of the mean, and
	tableEntries = 50   // besides: odd devices come with what they make up
)

// judge fails the benchmark for whatever the daemon did wrong.
func (s *soak) judge() {
	for _, what := range slices.Sorted(maps.Keys(s.did)) {
		fmt.Printf("%6d %s\n", s.did[what], what)
	}
	s.flat()
	s.billed()
	for _, line := range strings.Split(s.daemon.said(), "\n") {
		if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") {
			s.fault("the daemon's log: %s", line)
		}
	}
	fmt.Printf("%d sessions, %d faults\n", len(s.lives), len(s.faults))
}

// flat judges what the daemon held.
func (s *soak) flat() {
	m := s.measured
	if len(m.minutes) < 2*settled {
		fmt.Printf("%d minutes are too few to say whether memory is flat\n", len(m.minutes))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.minutes[len(m.minutes)-1])) {
		grown, mean := m.growth(name)
		fmt.Printf("minutes %d to %d: %s grew by %.3g, of %.4g\n", settled, len(m.minutes), name, grown, mean)
		most := -1.0
		switch {
		case name == "PSS MB" || name == "RSS MB" || name == "heap of the system MB":
			most = memoryGrowth * mean
		case name == "fds" || name == "threads":
			most = countGrowth
		case strings.HasPrefix(name, "table ") || name == "conntrack" || name == "leases" || name == "clients":
			most = tableGrowth*mean + tableEntries
		}
		if most >= 0 && grown > most {
			s.fault("%s is not flat: it grew by %.4g of %.4g", name, grown, mean)
		}
	}
}

// billed judges what the accounting server was told.
func (s *soak) billed() {
	all := map[string][]record{}
	for _, r := range s.acct.records("told", "") {
		id := r.one("Acct-Session-Id")
		if kind := r.one("Acct-Status-Type"); kind != "Accounting-On" && kind != "Accounting-Off" {
			all[id] = append(all[id], r)
		}
	}
	exact := 0
	for id, records := range all {
		once := slices.DeleteFunc(kinds(records), func(kind string) bool { return kind == "Interim-Update" })
		if !slices.Equal(once, []string{"Start", "Stop"}) {
			s.fault("session %s was accounted as %v", id, kinds(records))
			continue
		}
		l := s.lives[id]
		if l == nil {
			s.fault("session %s of %s is accounted, and no client has had it", id, records[0].one("User-Name"))
			continue
		}
		counts := records[len(records)-1].counts()
		switch {
		case counts == l.passed:
			exact++
		case !l.about:
			s.fault("session %s of %s (%s, %s) is billed %+v, and its client has passed %+v", id, l.user, l.left, records[len(records)-1].one("Acct-Terminate-Cause"), counts, l.passed)
		case counts.UpBytes < l.passed.UpBytes || counts.DownBytes < l.passed.DownBytes || counts.UpBytes+counts.DownBytes > l.passed.UpBytes+l.passed.DownBytes+mostUncounted:
			s.fault("session %s of %s (%s) is billed %+v, and its client has passed %+v and some more", id, l.user, l.left, counts, l.passed)
		}
	}
	for id, l := range s.lives {
		if all[id] == nil {
			s.fault("session %s of %s is not accounted", id, l.user)
		}
	}
	fmt.Printf("%d sessions accounted, %d of them to the byte as their clients counted; the others had downloads or refused datagrams besides\n", len(all), exact)
}

// mostUncounted is what a client passes at most that it does not count: some files and refused datagrams.
const mostUncounted = 20 * 2 * fileBytes
