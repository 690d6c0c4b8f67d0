package cost

import (
	"maps"
	"slices"
	"strings"

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
	names := map[string]int{}
	for _, g := range all {
		maps.Copy(names, g.Before.Counts)
		maps.Copy(names, g.After.Counts)
	}
	for name := range names {
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
func CountNames(c analysis.Cell) (names []string) {
	for name := range c.Metrics {
		if own, ok := strings.CutPrefix(name, CountBefore); ok {
			names = append(names, own)
		}
	}
	slices.Sort(names)
	return names
}

// Counts and texts of how far the clients of a cell came, all at once: of several
// blocks the one that came least far. Cells without a whole block have none.
const (
	ClientBlocks     = "client_blocks"
	Leased           = "leased"    // clients with an address
	LoggedIn         = "logged_in" // 0 where none has to
	Connected        = "connected" // streams open together, from before the warm-up until after the last window
	CleanConnected   = "clean_connected"
	AddressesFrom    = "addresses" // where clients have theirs from: constants of package result
	CleanAddressFrom = "clean_addresses"
)

// addCrowd says how far the clients of a cell came.
func addCrowd(c *analysis.Cell, blocks []result.Block) {
	for _, b := range blocks {
		if b.AA || b.Leased == 0 || b.Cell() != c.Without(result.OfferedMbps) {
			continue
		}
		for _, s := range b.Stretches {
			if s.OfferedMbps != c.Number(result.OfferedMbps) {
				continue
			}
			far := map[string]int{
				Leased: b.Leased, LoggedIn: b.LoggedIn,
				Connected: s.Fairness.Streams - s.Fairness.Broken, CleanConnected: s.CleanFairness.Streams - s.CleanFairness.Broken,
			}
			for name, n := range far {
				if c.Counts[ClientBlocks] > 0 {
					n = min(n, c.Counts[name])
				}
				c.Counts[name] = n
			}
			c.Counts[ClientBlocks]++
			c.Texts[AddressesFrom], c.Texts[CleanAddressFrom] = b.Addresses, b.CleanAddresses
		}
	}
}
