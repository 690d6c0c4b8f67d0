package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// StreamFigures are of the streams of a cell, over blocks: how they began, and how
// evenly they shared the load. Of runs with the lab's own generator only.
type StreamFigures struct {
	// Connect is from making a socket to its connection, FirstByte from then to the
	// first byte of the server's answer.
	ConnectP50us   Estimate `json:"connect_p50_us"`
	ConnectP99us   Estimate `json:"connect_p99_us"`
	FirstByteP50us Estimate `json:"first_byte_p50_us"`
	FirstByteP99us Estimate `json:"first_byte_p99_us"`
	// Jain is the fairness index between streams: 1 when all carried alike. JainEven
	// is the largest it can be where each carries whole bursts.
	Jain          Estimate `json:"jain"`
	JainEven      Estimate `json:"jain_even"`
	CleanJain     Estimate `json:"clean_jain"`
	StreamMinMbps Estimate `json:"stream_min_mbps"` // of the stream that carried least
	StreamMaxMbps Estimate `json:"stream_max_mbps"`
	// Of the short connections beside the streams; absent without any.
	ShortPerSecond      Estimate `json:"short_per_second"` // that had their whole answer
	CleanShortPerSecond Estimate `json:"clean_short_per_second"`
	ShortFailed         Estimate `json:"short_failed"` // a block
	ShortConnectP99us   Estimate `json:"short_connect_p99_us"`
	ShortWholeP50us     Estimate `json:"short_whole_p50_us"`
	ShortWholeP99us     Estimate `json:"short_whole_p99_us"`
}

// streamFigureTable is every figure of StreamFigures.
var streamFigureTable = []struct {
	field  func(*StreamFigures) *Estimate
	of     func(result.Stretch) float64
	within scale
}{
	{func(f *StreamFigures) *Estimate { return &f.ConnectP50us }, func(s result.Stretch) float64 { return positive(s.Connect.P50) }, amounts},
	{func(f *StreamFigures) *Estimate { return &f.ConnectP99us }, func(s result.Stretch) float64 { return positive(s.Connect.P99) }, amounts},
	{func(f *StreamFigures) *Estimate { return &f.FirstByteP50us }, func(s result.Stretch) float64 { return positive(s.FirstByte.P50) }, amounts},
	{func(f *StreamFigures) *Estimate { return &f.FirstByteP99us }, func(s result.Stretch) float64 { return positive(s.FirstByte.P99) }, amounts},
	{func(f *StreamFigures) *Estimate { return &f.Jain }, func(s result.Stretch) float64 { return positive(s.Fairness.Jain) }, shares},
	{func(f *StreamFigures) *Estimate { return &f.JainEven }, func(s result.Stretch) float64 { return positive(s.Fairness.Even) }, shares},
	{func(f *StreamFigures) *Estimate { return &f.CleanJain }, func(s result.Stretch) float64 { return positive(s.CleanFairness.Jain) }, shares},
	{func(f *StreamFigures) *Estimate { return &f.StreamMinMbps }, func(s result.Stretch) float64 {
		if s.Fairness.Streams == 0 {
			return math.NaN()
		}
		return s.Fairness.MinMbps
	}, amounts},
	{func(f *StreamFigures) *Estimate { return &f.StreamMaxMbps }, func(s result.Stretch) float64 { return positive(s.Fairness.MaxMbps) }, amounts},
	{func(f *StreamFigures) *Estimate { return &f.ShortPerSecond }, short(func(s *result.Short) float64 { return s.PerSecond }), amounts},
	{func(f *StreamFigures) *Estimate { return &f.CleanShortPerSecond }, func(s result.Stretch) float64 {
		if s.CleanShort == nil {
			return math.NaN()
		}
		return s.CleanShort.PerSecond
	}, amounts},
	{func(f *StreamFigures) *Estimate { return &f.ShortFailed }, short(func(s *result.Short) float64 { return float64(s.Failed) }), amounts},
	{func(f *StreamFigures) *Estimate { return &f.ShortConnectP99us }, short(func(s *result.Short) float64 { return positive(s.Connect.P99) }), amounts},
	{func(f *StreamFigures) *Estimate { return &f.ShortWholeP50us }, short(func(s *result.Short) float64 { return positive(s.Whole.P50) }), amounts},
	{func(f *StreamFigures) *Estimate { return &f.ShortWholeP99us }, short(func(s *result.Short) float64 { return positive(s.Whole.P99) }), amounts},
}

// short is a figure of the device's short connections, NaN without any.
func short(of func(*result.Short) float64) func(result.Stretch) float64 {
	return func(s result.Stretch) float64 {
		if s.Short == nil {
			return math.NaN()
		}
		return of(s.Short)
	}
}

// streamFigures estimates what the blocks say of a cell's streams.
func streamFigures(cell result.Cell, blocks []result.Block, opts Options) (f StreamFigures) {
	var of []result.Stretch
	for _, b := range blocks {
		if b.AA || (result.NewCell(result.DUT, b.DUT, result.Clients, b.Clients, result.Direction, b.Direction, result.Profile, b.Profile)) != withoutLoad(cell) {
			continue
		}
		for _, s := range b.Stretches {
			if s.OfferedMbps == cell.Number(result.OfferedMbps) {
				of = append(of, s)
			}
		}
	}
	for _, fig := range streamFigureTable {
		values := make([]float64, 0, len(of))
		for _, s := range of {
			values = append(values, fig.of(s))
		}
		*fig.field(&f) = fig.within.estimate(values, opts.Confidence)
	}
	return f
}

// Limit is a number of clients that a device did not take although it took fewer.
type Limit struct {
	DUT     string `json:"dut"`
	Clients int    `json:"clients"`
	Took    int    `json:"took"` // the most it came through with
	How     string `json:"how"`  // how it broke, from its first such block
}

// limits lists what devices broke at, by device; the fewest clients of each.
func limits(blocks []result.Block) []Limit {
	found, took := map[string]Limit{}, map[string]int{}
	for _, b := range blocks {
		switch known, ok := found[b.DUT]; {
		case b.Broke == "" && b.Error == "":
			took[b.DUT] = max(took[b.DUT], b.Clients)
		case b.Broke != "" && (!ok || b.Clients < known.Clients):
			found[b.DUT] = Limit{DUT: b.DUT, Clients: b.Clients, How: b.Broke}
		}
	}
	out := []Limit{}
	for _, l := range found {
		l.Took = took[l.DUT]
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Limit) int { return cmp.Compare(a.DUT, b.DUT) })
	return out
}
