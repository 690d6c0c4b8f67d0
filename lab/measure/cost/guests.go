package cost

import (
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Counts of guests over the blocks of a cell, whatever the load; none without guests.
const (
	GuestBlocks   = "guest_blocks"
	GuestsSettled = "guest_blocks_settled" // blocks after which the device knew as many clients as before
	GuestsCounted = "guest_blocks_counted" // blocks in which the device said how many it knows
	GuestsCame    = "guests_came"
	GuestsIn      = "guests_in"   // leased and logged in
	GuestsGone    = "guests_gone" // of those: logged out, seen to be out, released
	GuestsMissed  = "guests_missed"
	GuestFailures = "guest_failures" // a tally: why guests did not get in or out
)

// addGuests sums up the guests of a cell's blocks.
func addGuests(c *analysis.Cell, blocks []result.Block, opts analysis.Options) {
	var all []*result.Churn
	var failures analysis.Tallies
	for _, b := range blocks {
		if b.AA || b.Churn == nil || b.Cell() != c.Without(result.OfferedMbps) {
			continue
		}
		g := b.Churn
		all = append(all, g)
		c.Counts[GuestBlocks]++
		c.Counts[GuestsCame] += g.Came
		c.Counts[GuestsIn] += g.In
		c.Counts[GuestsGone] += g.Gone
		c.Counts[GuestsMissed] += g.Missed
		if g.Settled() {
			c.Counts[GuestsSettled]++
		}
		if len(g.Before.Counts)+len(g.After.Counts) > 0 {
			c.Counts[GuestsCounted]++
		}
		failures.AddReasons(g.Failures)
	}
	if len(all) == 0 {
		return
	}
	c.Tallies[GuestFailures] = failures.Sorted()
	for _, name := range countNames(all) {
		var before, after []float64
		for _, g := range all {
			before, after = append(before, float64(g.Before.Counts[name])), append(after, float64(g.After.Counts[name]))
		}
		c.Metrics[CountBefore+name] = analysis.Figure{Device: analysis.EstimateOf(before, opts)}
		c.Metrics[CountAfter+name] = analysis.Figure{Device: analysis.EstimateOf(after, opts)}
	}
}

// Prefixes of metrics of a device's own numbers (sessions, leases …), before the first
// guest came and after the last had left. What it names at one moment only, it has
// none of at the other.
const (
	CountBefore = "count_before."
	CountAfter  = "count_after."
)

// CountNames are the device's own numbers that a cell has, by name.
func CountNames(c analysis.Cell) []string {
	var names []string
	for name := range c.Metrics {
		if len(name) > len(CountBefore) && name[:len(CountBefore)] == CountBefore {
			names = append(names, name[len(CountBefore):])
		}
	}
	slices.Sort(names)
	return names
}

func countNames(all []*result.Churn) []string {
	names := map[string]bool{}
	for _, g := range all {
		for _, counts := range []map[string]int{g.Before.Counts, g.After.Counts} {
			for name := range counts {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
