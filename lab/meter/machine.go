package meter

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Stat is one line of /proc/stat in ticks of 10 ms: the machine's own,
// sampled view of where its CPUs were (what mpstat prints).
type Stat struct {
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal int64
}

// Sub returns the ticks between two readings.
func (s Stat) Sub(t Stat) Stat {
	return Stat{s.User - t.User, s.Nice - t.Nice, s.System - t.System, s.Idle - t.Idle,
		s.IOWait - t.IOWait, s.IRQ - t.IRQ, s.SoftIRQ - t.SoftIRQ, s.Steal - t.Steal}
}

// Total is the sum of all states, ticks.
func (s Stat) Total() int64 {
	return s.User + s.Nice + s.System + s.Idle + s.IOWait + s.IRQ + s.SoftIRQ + s.Steal
}

// ParseProcStat returns the line of all CPUs together and those of each CPU.
func ParseProcStat(r io.Reader) (all Stat, cpus map[int]Stat, err error) {
	cpus = map[int]Stat{}
	found := false
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20) // the intr line grows with the number of interrupts
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		var v [8]int64
		for i := range v {
			if v[i], err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
				return Stat{}, nil, fmt.Errorf("/proc/stat: %s: %w", f[0], err)
			}
		}
		st := Stat{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}
		if f[0] == "cpu" {
			all, found = st, true
			continue
		}
		n, err := strconv.Atoi(f[0][3:])
		if err != nil {
			return Stat{}, nil, fmt.Errorf("/proc/stat: %q: %w", f[0], err)
		}
		cpus[n] = st
	}
	if err := sc.Err(); err != nil {
		return Stat{}, nil, fmt.Errorf("/proc/stat: %w", err)
	}
	if !found {
		return Stat{}, nil, fmt.Errorf("/proc/stat: no cpu line")
	}
	return all, cpus, nil
}
