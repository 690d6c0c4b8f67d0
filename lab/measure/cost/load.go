package cost

import (
	"context"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// lab is one of a pair, with what is known of the load that runs on it or ran last.
type lab struct {
	*side.Side
	connect, firstByte result.Delays
	marked             int64 // when its shares were marked by the server's clock, ns; zero: not
	fairness           result.Fairness
	memory             result.Memory
	pssMiB             float64       // of the device's programs when the cell began
	shorts             []short.Stats // by client host, of all loads of the cell
}

// load starts the load of a cell, for at most so many seconds.
func (s *lab) load(ctx context.Context, cell result.Cell, seconds int) error {
	s.marked, s.fairness = 0, result.Fairness{}
	if err := s.StartTraffic(ctx, cell.Text(result.Direction), cell.Number(result.OfferedMbps), seconds); err != nil {
		return err
	}
	return s.readDelays(ctx)
}

// readDelays asks the generators how long their streams took to begin.
func (s *lab) readDelays(ctx context.Context) error {
	all := make([]agent.TrafficStats, len(s.Hosts))
	err := s.EachHost(func(i int, h side.ClientHost) (err error) { all[i], err = h.TrafficStats(ctx); return err })
	var connect, firstByte traffic.Delays
	for _, stats := range all {
		connect, firstByte = connect.Worst(stats.Connect), firstByte.Worst(stats.FirstByte)
	}
	s.connect, s.firstByte = result.Delays(connect), result.Delays(firstByte)
	return err
}

// mark has the streams count what they carry each from now on.
func (s *lab) mark(ctx context.Context) error {
	if !traffic.KindOf(s.Load.Kind).Counts {
		return nil
	}
	stats, err := s.Server.TrafficStats(ctx)
	if err == nil {
		err = testbed.Together(
			func() error { return s.EachHost(func(_ int, h side.ClientHost) error { return h.MarkTraffic(ctx) }) },
			func() error { return s.Server.MarkTraffic(ctx) },
		)
	}
	s.marked = stats.MonotonicNs
	return err
}

// readFairness reads what the streams carried each since they were marked.
func (s *lab) readFairness(ctx context.Context) error {
	if s.marked == 0 {
		return nil
	}
	stats, err := s.Server.TrafficStats(ctx)
	if err != nil {
		return err
	}
	clients := make([]agent.TrafficStats, len(s.Hosts))
	if err := s.EachHost(func(i int, h side.ClientHost) (err error) { clients[i], err = h.TrafficStats(ctx); return err }); err != nil {
		return err
	}
	shares := stats.Shares
	for _, c := range clients {
		shares = shares.With(c.Shares)
	}
	seconds := float64(stats.MonotonicNs-s.marked) / 1e9
	broken := 0
	for _, c := range clients {
		broken += c.Broken
	}
	s.fairness = result.Fairness{
		Streams: shares.Streams, Broken: max(broken, stats.Broken), // both ends count the same streams
		Jain: shares.Jain(), Even: shares.Even(s.Load.BurstSegments * traffic.SegmentBytes(client.KindOf(s.Has.Client).MTU, s.Load.UDP)),
		MinMbps: side.Mbps(shares.Min, seconds), MaxMbps: side.Mbps(shares.Max, seconds),
	}
	s.marked = 0
	return nil
}
