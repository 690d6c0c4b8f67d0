// Package cost measures what a device costs a router: CPU per delivered bit. Clients in two labs
// offer the same load, over a router with the device and over a clean one, and both routers' CPU
// time is read around windows of it. Short connections, and guests that come and go, can be part of
// the load.
package cost

import (
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// FlagShortfall marks a cell whose sampled bandwidth is more than 10 % below
// the limit, so that normalised CPU includes CPU that the router never used.
const FlagShortfall = "bandwidth-shortfall"

// Summarise computes the summary of a run that measured costs.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials, clean := levelDaemons(TrialsOf(run.Trials), run.Blocks), []analysis.Trial(nil)
	if run.Environment.Mode == result.ModeInterleaved {
		trials, clean = analysis.Pair(trials, run.Blocks)
	}
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "trial", Metrics: Metrics, Primary: PerBit,
		Trials: trials, Controls: clean,
		Samples: samples(run.Blocks), Load: []result.Dimension{result.OfferedMbps},
		Compare: analysis.CompareCells(run), Laws: &namedMetrics, ByFamily: []string{NsPerPacket},
		Bias: bias, Rise: noiseRise,
		Describe: func(c *analysis.Cell) { describe(c, run.Blocks, opts) },
		Warn: func(s analysis.Summary) []string {
			return slices.Concat(
				s.Remark("Sampled bandwidth is more than 10 % below the limit, so normalised CPU is an extrapolation",
					func(c analysis.Cell) bool { return c.Flagged(FlagShortfall) }),
				s.Remark("No guest came in any block, so nothing is known of guests (client.churn): more guests a second or "+
					"longer loads bring some",
					func(c analysis.Cell) bool { return c.Counts[GuestBlocks] > 0 && c.Counts[GuestsCame] == 0 }),
				housekeepingWarnings(run.Blocks))
		},
	}
	return analysis.Summarise(in, opts)
}

// describe adds flags, counts, texts and tallies to a cell.
func describe(c *analysis.Cell, blocks []result.Block, opts analysis.Options) {
	c.Counts, c.Texts, c.Tallies = map[string]int{}, map[string]string{}, map[string][]analysis.Tally{}
	if analysis.Over(float64(c.Device(Link).Mean), c.Number(result.OfferedMbps)) < analysis.EnoughBandwidth {
		c.Flags = append(c.Flags, analysis.Tally{Text: FlagShortfall, Count: c.Pairs})
	}
	addTotals(c, blocks)
	addGuests(c, blocks, opts)
}

// samples are the records of loads and blocks, without A/A blocks.
func samples(blocks []result.Block) []analysis.Sample {
	var out []analysis.Sample
	for _, b := range blocks {
		if b.AA {
			continue
		}
		stay := StayOf(b)
		if b.Error == "" && b.Broke == "" {
			device := result.ValuesOf(b)
			maps.Copy(device, result.ValuesOf(stay))
			device["login_ms.p50"], device["login_ms.p99"] = quantiles(stay.LoginMs)
			out = append(out, analysis.Sample{Per: analysis.PerBlock, Cell: b.Cell(), Device: device})
		}
		if stay.Churn != nil {
			out = append(out, analysis.Sample{Per: perGuests, Cell: b.Cell(), Device: result.ValuesOf(stay.Churn)})
		}
		for _, s := range stay.Stretches {
			all := result.ValuesOf(s)
			load := analysis.Sample{Per: analysis.PerLoad, Cell: b.Cell().With(result.OfferedMbps, s.OfferedMbps), Device: all,
				Clean: all.WithPrefix("clean_")}
			out = append(out, load)
			if stay.Leased > 0 {
				load.Per = perClients
				out = append(out, load)
			}
		}
	}
	return out
}

func quantiles(ms []float64) (p50, p99 float64) {
	sorted := slices.Sorted(slices.Values(ms))
	return result.Quantile(sorted, 0.5), result.Quantile(sorted, 0.99)
}

// Counts of guests over the blocks of a cell, whatever the load; none without guests.
const (
	GuestBlocks   = "guest_blocks"
	GuestsSettled = "guest_blocks_settled" // blocks after which the device knew as many clients as before
	GuestsCounted = "guest_blocks_counted" // blocks in which the device said how many it knows
	GuestsCame    = "guests_came"
	GuestsIn      = "guests_in"   // leased and logged in
	GuestsGone    = "guests_gone" // logged out, found themselves out, and released their lease
	GuestsMissed  = "guests_missed"
	GuestFailures = "guest_failures" // a tally: why guests did not get in or out
)

// addGuests sums up the guests of a cell's blocks.
func addGuests(c *analysis.Cell, blocks []result.Block, opts analysis.Options) {
	var all []*Churn
	var failures analysis.Tallies
	for _, b := range blocks {
		g := StayOf(b).Churn
		if b.AA || g == nil || b.Cell() != c.Without(result.OfferedMbps) {
			continue
		}
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

// Prefixes of the metrics of a device's own counts (sessions, leases …), before the first guest came and after the last
// had left. A count that the device reports at one of these moments only is 0 at the other.
const (
	CountBefore = "count_before."
	CountAfter  = "count_after."
)

// CountNames lists the names of the device's own counts that a cell has, sorted.
func CountNames(c analysis.Cell) (names []string) {
	for name := range c.Metrics {
		if own, ok := strings.CutPrefix(name, CountBefore); ok {
			names = append(names, own)
		}
	}
	slices.Sort(names)
	return names
}

// Counts and texts of a cell's client totals. Each number is the smallest of all blocks. Cells without a completed
// block have none.
const (
	ClientBlocks     = "client_blocks"
	Leased           = "leased"    // clients with an address
	LoggedIn         = "logged_in" // 0 where no client has to log in
	Connected        = "connected" // streams open together, from before the warm-up until after the last window
	CleanConnected   = "clean_connected"
	AddressesFrom    = "addresses" // who gives clients their addresses: constants of package result
	CleanAddressFrom = "clean_addresses"
)

// addTotals adds the client totals of a cell.
func addTotals(c *analysis.Cell, blocks []result.Block) {
	for _, b := range blocks {
		stay := StayOf(b)
		if b.AA || stay.Leased == 0 || b.Cell() != c.Without(result.OfferedMbps) {
			continue
		}
		for _, s := range stay.Stretches {
			if s.OfferedMbps != c.Number(result.OfferedMbps) {
				continue
			}
			totals := map[string]int{
				Leased: stay.Leased, LoggedIn: stay.LoggedIn,
				Connected: s.Fairness.Streams - s.Fairness.Broken, CleanConnected: s.CleanFairness.Streams - s.CleanFairness.Broken,
			}
			for name, n := range totals {
				if c.Counts[ClientBlocks] > 0 {
					n = min(n, c.Counts[name])
				}
				c.Counts[name] = n
			}
			c.Counts[ClientBlocks]++
			c.Texts[AddressesFrom], c.Texts[CleanAddressFrom] = stay.Addresses, stay.CleanAddresses
		}
	}
}
