package meter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Stat is one line of /proc/stat: how many ticks of 10 ms CPUs spent in each state. The kernel samples the state at
// each tick, and mpstat prints these figures.
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

// BusyNs is the time in which this machine's CPUs ran something, nanoseconds.
func (s Stat) BusyNs() int64 { return (s.Total() - s.Idle - s.IOWait - s.Steal) * tick }

// ParseProcStat reads the text of /proc/stat. all is the line of all CPUs together, cpus has the line of each CPU by
// its number.
func ParseProcStat(text string) (all Stat, cpus map[int]Stat, err error) {
	cpus = map[int]Stat{}
	found := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		v, err := numbers("/proc/stat: "+f[0], f[1:9])
		if err != nil {
			return Stat{}, nil, err
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
	if !found {
		return Stat{}, nil, errors.New("/proc/stat: no cpu line")
	}
	return all, cpus, nil
}
