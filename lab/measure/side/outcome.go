package side

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Millis keeps three digits behind the point: of milliseconds these are whole microseconds.
func Millis(ms float64) float64 { return math.Round(ms*1e3) / 1e3 }

// Reasons counts texts that differ only in their figures as one, the most
// frequent first.
func Reasons(texts []string) []result.Reason {
	var list []result.Reason
	at := map[string]int{}
	for _, text := range texts {
		key := result.WithoutFigures(text)
		i, seen := at[key]
		if !seen {
			i = len(list)
			at[key], list = i, append(list, result.Reason{First: text})
		}
		list[i].Count++
	}
	slices.SortStableFunc(list, func(a, b result.Reason) int { return b.Count - a.Count })
	return list
}

// Rejects are the reasons for which a window is rejected: it measured something else than was
// asked for, so it is kept in the raw data and measured again.
type Rejects []string

// Add adds a reason.
func (r *Rejects) Add(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

// If adds a reason that applies.
func (r *Rejects) If(applies bool, format string, args ...any) {
	if applies {
		r.Add(format, args...)
	}
}

const (
	maxStealPct = 1.0 // of the machine
	stealTicks  = 2   // of the machine's clock, by which that may be off
)

// Ticks are n ticks of the machine's clock, 10 ms each, as a share of so many CPUs over so many seconds.
func Ticks(n, seconds float64, cpus int) float64 {
	return n * 0.01 / (max(seconds, 0.01) * float64(max(cpus, 1)))
}

// Steal rejects a stretch in which other guests took the CPU of a machine with so many CPUs. When
// says which stretch, " during the leases" or nothing.
func (r *Rejects) Steal(m result.Machine, seconds float64, cpus int, when string) {
	limit := max(maxStealPct, 100*Ticks(stealTicks, seconds, cpus))
	r.If(m.Steal > limit, "machine: %.1f %% steal%s, limit %.1f %%: another guest takes the CPU", m.Steal, when, limit)
}
