package cost

import (
	"cmp"
	"context"
	"slices"

	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// readShort adds what became of the load's short connections to what is known of those
// of the cell's loads before it, by client host.
func (s *lab) readShort(ctx context.Context) error {
	if s.Load.ShortPerSecond == 0 {
		return nil
	}
	if s.shorts == nil {
		s.shorts = make([]short.Stats, len(s.Hosts))
	}
	return s.EachHost(func(i int, h side.ClientHost) error {
		st, err := h.ShortStats(ctx)
		s.shorts[i] = addShort(s.shorts[i], st)
		return err
	})
}

// addShort is what became of the short connections of two loads, one after the other.
func addShort(a, b short.Stats) short.Stats {
	return short.Stats{
		Seconds: a.Seconds + b.Seconds, Done: a.Done + b.Done, Failed: a.Failed + b.Failed, Missed: a.Missed + b.Missed,
		FirstError:  cmp.Or(a.FirstError, b.FirstError),
		ConnectUs:   slices.Concat(a.ConnectUs, b.ConnectUs),
		FirstByteUs: slices.Concat(a.FirstByteUs, b.FirstByteUs),
		WholeUs:     slices.Concat(a.WholeUs, b.WholeUs),
	}
}

// shortOf is what became of the short connections of all client hosts together; nil
// without any.
func shortOf(hosts []short.Stats) *result.Short {
	if hosts == nil {
		return nil
	}
	var all result.Short
	var connect, first, whole []float64
	for _, st := range hosts {
		all.Done, all.Failed, all.Missed = all.Done+st.Done, all.Failed+st.Failed, all.Missed+st.Missed
		all.FirstError = cmp.Or(all.FirstError, st.FirstError)
		if st.Seconds > 0 {
			all.PerSecond += float64(st.Done) / st.Seconds
		}
		connect, first, whole = append(connect, st.ConnectUs...), append(first, st.FirstByteUs...), append(whole, st.WholeUs...)
	}
	all.Connect, all.FirstByte, all.Whole = delaysOf(connect), delaysOf(first), delaysOf(whole)
	return &all
}

// delaysOf sums values up; it sorts them.
func delaysOf(us []float64) (d result.Delays) {
	if len(us) == 0 {
		return d
	}
	slices.Sort(us)
	return result.Delays{P50: side.Millis(result.Quantile(us, 0.5)), P99: side.Millis(result.Quantile(us, 0.99)), Max: us[len(us)-1]}
}
