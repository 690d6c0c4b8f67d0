// Package cost measures what a device costs a router: CPU per delivered bit. Clients in two labs
// offer the same load, over a router with the device and over a clean one, and both routers' CPU
// time is read around windows of it. Short connections, and guests that come and go, can be part of
// the load.
package cost

import (
	"cmp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// FlagShortfall marks a cell whose sampled bandwidth is more than 10 % below
// the limit, so that normalised CPU is CPU the router never spent.
const FlagShortfall = "bandwidth-shortfall"

// enoughBandwidth is the share of the limit below which normalised CPU is flagged.
const enoughBandwidth = 0.9

// Summarise computes the summary of a run that measured costs.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	in := analysis.Input{
		Run: run, Measure: Name, Noun: "trial", Metrics: Metrics, Primary: PerBit, Trials: levelDaemons(trialsOf(run), run.Blocks),
		Samples: samples(run.Blocks), Load: []result.Dimension{result.OfferedMbps}, Compare: compareCells, Laws: &laws,
		Describe: func(c *analysis.Cell) { describe(c, run.Blocks, opts) },
		Warn: func(s analysis.Summary) []string {
			return append(s.Remark("Sampled bandwidth is more than 10 % below the limit, so normalised CPU is an extrapolation",
				func(c analysis.Cell) bool { return c.Flagged(FlagShortfall) }), housekeepingWarnings(run.Blocks)...)
		},
	}
	return analysis.Summarise(in, opts)
}

// compareCells orders cells as a reader looks for them: profile, direction
// (upload first), device, then the sweep.
func compareCells(a, b result.Cell) int {
	return cmp.Or(
		result.CompareCells(a, b, result.Profile),
		-result.CompareCells(a, b, result.Direction),
		result.CompareCells(a, b, result.DUT, result.Clients, result.OfferedMbps),
	)
}

func trialsOf(run result.Run) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(run.Trials))
	for _, t := range run.Trials {
		out = append(out, analysis.Trial{Trial: t, Device: result.ValuesOf(t.DUT), Clean: result.ValuesOf(t.Clean)})
	}
	return out
}

// describe adds to a cell what is flagged and counted and not estimated.
func describe(c *analysis.Cell, blocks []result.Block, opts analysis.Options) {
	c.Counts, c.Texts, c.Tallies = map[string]int{}, map[string]string{}, map[string][]analysis.Tally{}
	if analysis.Over(float64(c.Device(Link).Mean), c.Number(result.OfferedMbps)) < enoughBandwidth {
		c.Flags = append(c.Flags, analysis.Tally{Text: FlagShortfall, Count: c.Pairs})
	}
	addCrowd(c, blocks)
	addGuests(c, blocks, opts)
}

// samples are the records beside the windows, those of A/A blocks left out.
func samples(blocks []result.Block) []analysis.Sample {
	var out []analysis.Sample
	for _, b := range blocks {
		if b.AA {
			continue
		}
		if b.Error == "" && b.Broke == "" {
			device := result.ValuesOf(b)
			device["login_ms.p50"], device["login_ms.p99"] = quantiles(b.LoginMs)
			out = append(out, analysis.Sample{Per: analysis.PerBlock, Cell: b.Cell(), Device: device})
		}
		if b.Churn != nil {
			out = append(out, analysis.Sample{Per: perGuests, Cell: b.Cell(), Device: result.ValuesOf(b.Churn)})
		}
		for _, s := range b.Stretches {
			all := result.ValuesOf(s)
			load := analysis.Sample{Per: analysis.PerLoad, Cell: b.Cell().With(result.OfferedMbps, s.OfferedMbps), Device: all, Clean: all.Part("clean_")}
			out = append(out, load)
			if b.Leased > 0 {
				load.Per = perCrowd
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
