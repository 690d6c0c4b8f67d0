package cost

import (
	"context"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// Names of the metrics of delay without a load, which is measured once a block. Records of windows have the first two
// under the same names.
const (
	IdleP50Us  = "rtt_idle_p50_us"
	IdleP99Us  = "rtt_idle_p99_us"
	AddedP50Us = "rtt_added_p50_us"
	AddedP99Us = "rtt_added_p99_us"
)

// delayMetrics compare round-trip times with a load and without one.
var delayMetrics = []analysis.Metric{
	{Name: IdleP50Us, Unit: "µs", Text: "round-trip time without a load, before the block's first", Better: analysis.Less,
		Against: analysis.AsDifference, Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts,
		With: "metrics." + IdleP50Us, Value: analysis.PositiveField("metrics." + IdleP50Us)},
	{Name: IdleP99Us, Unit: "µs", Text: "round-trip time without a load, before the block's first", Better: analysis.Less,
		Against: analysis.AsDifference, Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts,
		With: "metrics." + IdleP50Us, Value: analysis.PositiveField("metrics." + IdleP99Us)},
	{Name: AddedP50Us, Unit: "µs", Text: "round-trip time that the load adds: its median under load less that without",
		Better: analysis.Less, Against: analysis.AsDifference, Per: analysis.PerWindow, Both: true, Median: true,
		Range: analysis.Changes, With: "metrics." + IdleP50Us, Value: addedRTT("p50", IdleP50Us)},
	{Name: AddedP99Us, Unit: "µs", Text: "the same of the 99th percentiles",
		Better: analysis.Less, Against: analysis.AsDifference, Per: analysis.PerWindow, Both: true, Median: true,
		Range: analysis.Changes, With: "metrics." + IdleP50Us, Value: addedRTT("p99", IdleP99Us)},
}

// addedRTT returns the metric of a percentile of round-trip times under load, less that of the idle lab. It is negative
// where the load keeps CPUs awake that sleep in the idle lab and take time to wake.
func addedRTT(percentile, idle string) func(input) float64 {
	return func(r input) float64 {
		return analysis.Positive(r.Get("rtt_us."+percentile)) - analysis.Positive(r.Get("metrics."+idle))
	}
}

// longestIdle bounds how long round-trip times of idle labs are measured. At 100 probes a second the 99th percentile is
// then the second largest.
const longestIdle = time.Second

// idleTime is how long round-trip times of an experiment's idle labs are measured: at most half a window.
func idleTime(e *experiment.Experiment) time.Duration { return min(e.Window/2, longestIdle) }

// measureIdle measures round-trip times in all open labs before their first load.
func (p pair) measureIdle(ctx context.Context) error {
	return p.onBothLabs(func(l *lab) (err error) {
		l.idle, err = l.IdleRTT(ctx, idleTime(p.e))
		return err
	})
}

// idleFigures returns the round-trip times of the idle lab, as figures of a window; none if no probe came back.
func (s *lab) idleFigures() map[string]float64 {
	if s.idle.P50 <= 0 {
		return map[string]float64{}
	}
	return map[string]float64{IdleP50Us: s.idle.P50, IdleP99Us: s.idle.P99}
}
