package analysis

import (
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// ChurnFigures are what became of guests in the blocks of a cell, whatever the load,
// and whether the DUT was then as before. All zero without guests.
type ChurnFigures struct {
	PerSecond Number `json:"per_second"` // guests that were to come
	Blocks    int    `json:"blocks"`
	// Settled are blocks after which the DUT knew as many clients as before; none of a
	// DUT that tells no numbers.
	Settled int `json:"settled"`
	Came    int `json:"came"` // of all blocks, as are the three below
	In      int `json:"in"`
	Gone    int `json:"gone"`
	Missed  int `json:"missed"`

	Told int `json:"told"` // blocks in which the DUT told its numbers

	LeaseP99ms     Estimate `json:"lease_p99_ms"`
	LoginP50ms     Estimate `json:"login_p50_ms"`
	LoginP99ms     Estimate `json:"login_p99_ms"`
	SettledSeconds Estimate `json:"settled_seconds"`
	// Memory of the DUT's processes and lines of the router's rules.
	PSSBeforeMiB    Estimate `json:"pss_before_mib"`
	PSSAfterMiB     Estimate `json:"pss_after_mib"`
	RuleLinesBefore Estimate `json:"rule_lines_before"`
	RuleLinesAfter  Estimate `json:"rule_lines_after"`
	// Connections that the router's kernel tracks, the clients' own among them.
	FlowsBefore Estimate `json:"flows_before"`
	FlowsAfter  Estimate `json:"flows_after"`
	// Counts are the DUT's own numbers, by name; none when it tells none.
	Counts []CountChange `json:"counts"`

	Failures []Tally `json:"failures"` // why guests did not get in or out
}

// CountChange is one of a DUT's own numbers before the first guest came and after the
// last had left, over blocks.
type CountChange struct {
	Name   string   `json:"name"` // sessions, clients, leases …
	Before Estimate `json:"before"`
	After  Estimate `json:"after"`
}

// churnFigureTable is every estimate of ChurnFigures.
var churnFigureTable = []struct {
	field func(*ChurnFigures) *Estimate
	of    func(*result.Churn) float64
}{
	{func(f *ChurnFigures) *Estimate { return &f.LeaseP99ms }, func(c *result.Churn) float64 { return positive(c.LeaseP99Ms) }},
	{func(f *ChurnFigures) *Estimate { return &f.LoginP50ms }, func(c *result.Churn) float64 { return positive(c.LoginP50Ms) }},
	{func(f *ChurnFigures) *Estimate { return &f.LoginP99ms }, func(c *result.Churn) float64 { return positive(c.LoginP99Ms) }},
	{func(f *ChurnFigures) *Estimate { return &f.SettledSeconds }, func(c *result.Churn) float64 { return c.SettledSeconds }},
	{func(f *ChurnFigures) *Estimate { return &f.PSSBeforeMiB }, func(c *result.Churn) float64 { return c.Before.PSSMiB }},
	{func(f *ChurnFigures) *Estimate { return &f.PSSAfterMiB }, func(c *result.Churn) float64 { return c.After.PSSMiB }},
	{func(f *ChurnFigures) *Estimate { return &f.RuleLinesBefore }, func(c *result.Churn) float64 { return float64(c.Before.RuleLines) }},
	{func(f *ChurnFigures) *Estimate { return &f.RuleLinesAfter }, func(c *result.Churn) float64 { return float64(c.After.RuleLines) }},
	{func(f *ChurnFigures) *Estimate { return &f.FlowsBefore }, func(c *result.Churn) float64 { return float64(c.Before.Flows) }},
	{func(f *ChurnFigures) *Estimate { return &f.FlowsAfter }, func(c *result.Churn) float64 { return float64(c.After.Flows) }},
}

// churnFigures sums up the guests of a cell's blocks.
func churnFigures(cell result.Cell, blocks []result.Block, opts Options) ChurnFigures {
	f := ChurnFigures{Failures: []Tally{}, Counts: []CountChange{}}
	var all []*result.Churn
	failures := tally{}
	for _, b := range blocks {
		if b.AA || b.Churn == nil || (result.NewCell(result.DUT, b.DUT, result.Clients, b.Clients, result.Direction, b.Direction, result.Profile, b.Profile)) != withoutLoad(cell) {
			continue
		}
		c := b.Churn
		all = append(all, c)
		f.PerSecond = Number(c.PerSecond)
		f.Came, f.In, f.Gone, f.Missed = f.Came+c.Came, f.In+c.In, f.Gone+c.Gone, f.Missed+c.Missed
		if f.Blocks++; c.Settled() {
			f.Settled++
		}
		if len(c.Before.Counts)+len(c.After.Counts) > 0 {
			f.Told++
		}
		for _, r := range c.Failures {
			for range r.Count {
				failures.add(result.WithoutFigures(r.First), r.First)
			}
		}
	}
	f.Failures, f.Counts = failures.sorted(), countChanges(all, opts)
	for _, fig := range churnFigureTable {
		values := make([]float64, 0, len(all))
		for _, c := range all {
			values = append(values, fig.of(c))
		}
		*fig.field(&f) = amounts.estimate(values, opts.Confidence)
	}
	return f
}

// countChanges are a DUT's own numbers by name. What it names at one moment only, it
// has none of at the other.
func countChanges(all []*result.Churn, opts Options) []CountChange {
	names := map[string]bool{}
	for _, c := range all {
		for name := range c.Before.Counts {
			names[name] = true
		}
		for name := range c.After.Counts {
			names[name] = true
		}
	}
	out := []CountChange{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var before, after []float64
		for _, c := range all {
			before, after = append(before, float64(c.Before.Counts[name])), append(after, float64(c.After.Counts[name]))
		}
		out = append(out, CountChange{name, amounts.estimate(before, opts.Confidence), amounts.estimate(after, opts.Confidence)})
	}
	return out
}
