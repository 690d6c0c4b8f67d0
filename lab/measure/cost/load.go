package cost

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// lab is one lab of a pair, with the state of its present or last load.
type lab struct {
	*bench.Bench
	connect, firstByte Delays
	marked             int64 // when mark was called, by the server's clock, ns; 0: not since the load's beginning
	fairness           Fairness
	memory             Memory
	idle               result.RTT        // before the block's first load
	course             result.SideCourse // of the last window
	pssMiB             float64           // memory of the device's programs when the cell began
	shorts             [][]short.Stats   // short connections of the cell, by load and client host
	failedProof        bench.Rejects     // of the last window
}

// checkProof sets failedProof by the device's proof. The device must carry load.
func (s *lab) checkProof(ctx context.Context) error {
	s.failedProof = nil
	return s.failedProof.Prove(ctx, s.Bench)
}

// load starts the load of a cell, bounded in seconds.
func (s *lab) load(ctx context.Context, cell result.Cell, seconds int) error {
	s.marked, s.fairness = 0, Fairness{}
	if err := s.StartTraffic(
		ctx, cell.Text(result.Direction), cell.Number(result.OfferedMbps), time.Duration(seconds)*time.Second); err != nil {
		return err
	}
	all, err := s.stats(ctx)
	var connect, firstByte traffic.Delays // how long streams took to begin
	for _, stats := range all {
		connect, firstByte = connect.Worst(stats.Connect), firstByte.Worst(stats.FirstByte)
	}
	s.connect, s.firstByte = Delays(connect), Delays(firstByte)
	return err
}

// stats reads the counters of the traffic generators of all client hosts.
func (s *lab) stats(ctx context.Context) ([]agent.TrafficStats, error) {
	return bench.Each(s.Hosts, func(_ int, h bench.ClientHost) (agent.TrafficStats, error) { return h.TrafficStats(ctx) })
}

// mark makes each stream count its payload from now on.
func (s *lab) mark(ctx context.Context) error {
	if !traffic.KindOf(s.Load.Kind).Counts {
		return nil
	}
	stats, err := s.Server.TrafficStats(ctx)
	if err == nil {
		err = backend.Together(
			func() error { return s.EachHost(func(_ int, h bench.ClientHost) error { return h.MarkTraffic(ctx) }) },
			func() error { return s.Server.MarkTraffic(ctx) },
		)
	}
	s.marked = stats.MonotonicNs
	return err
}

// readFairness reads the payload of each stream since mark.
func (s *lab) readFairness(ctx context.Context) error {
	if s.marked == 0 {
		return nil
	}
	stats, err := s.Server.TrafficStats(ctx)
	if err != nil {
		return err
	}
	clients, err := s.stats(ctx)
	if err != nil {
		return err
	}
	shares, broken := stats.Shares, 0
	for _, c := range clients {
		shares, broken = shares.With(c.Shares), broken+c.Broken
	}
	seconds := float64(stats.MonotonicNs-s.marked) / 1e9
	s.fairness = Fairness{
		Streams: shares.Streams, Broken: max(broken, stats.Broken), // both ends count the same streams
		Jain: shares.Jain(),
		Even: shares.Even(s.Load.BurstSegments * traffic.SegmentBytes(
			s.Side.Family.PacketMTU(client.KindOf(s.Side.Client).MTU), s.Load.UDP)),
		MinMbps: bench.Mbps(shares.Min, seconds), MaxMbps: bench.Mbps(shares.Max, seconds),
	}
	s.marked = 0
	return nil
}

// readShort reads the results of the load's short connections.
func (s *lab) readShort(ctx context.Context) error {
	if s.Load.ShortPerSecond == 0 {
		return nil
	}
	hosts, err := bench.Each(s.Hosts, func(_ int, h bench.ClientHost) (short.Stats, error) { return h.ShortStats(ctx) })
	s.shorts = append(s.shorts, hosts)
	return err
}

// shortOf sums up the short connections of a cell, which are listed by load and client host. It returns nil without
// loads. A host's rate is over the time of all its loads; the rates of the hosts add up.
func shortOf(loads [][]short.Stats) *Short {
	if loads == nil {
		return nil
	}
	var all Short
	var connect, first, whole []float64
	done, seconds := make([]float64, len(loads[0])), make([]float64, len(loads[0]))
	for _, hosts := range loads {
		for i, st := range hosts {
			all.Done, all.Failed, all.Missed = all.Done+st.Done, all.Failed+st.Failed, all.Missed+st.Missed
			all.FirstError = cmp.Or(all.FirstError, st.FirstError)
			done[i], seconds[i] = done[i]+float64(st.Done), seconds[i]+st.Seconds
			connect, first, whole = append(connect, st.ConnectUs...), append(first, st.FirstByteUs...),
				append(whole, st.WholeUs...)
		}
	}
	for i := range done {
		if seconds[i] > 0 {
			all.PerSecond += done[i] / seconds[i]
		}
	}
	all.Connect, all.FirstByte, all.Whole = delaysOf(connect), delaysOf(first), delaysOf(whole)
	return &all
}

// delaysOf summarises delays in µs by their quantiles. It sorts us.
func delaysOf(us []float64) (d Delays) {
	if len(us) == 0 {
		return d
	}
	slices.Sort(us)
	return Delays{
		P50: bench.Millis(result.Quantile(us, 0.5)), P99: bench.Millis(result.Quantile(us, 0.99)), Max: us[len(us)-1]}
}
