package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// startTraffic starts the load of one cell.
func (s *side) startTraffic(ctx context.Context, direction string, mbps float64, seconds int) error {
	t, clients := s.has.Traffic, s.has.Clients
	s.marked, s.fairness = 0, result.Fairness{}
	s.load = agent.Traffic{
		Kind: t.Kind, UDP: t.Protocol == experiment.ProtocolUDP, Paced: t.Pacing == experiment.PacingPaced, Direction: direction, Clients: clients, MostClients: s.most, ClientHosts: len(s.hosts),
		OfferedMbps: mbps, BurstSegments: t.BurstSegments, MaxSeconds: seconds, Server: s.env.ServerIP,
	}
	s.load.ShortPerSecond, s.load.ShortBytes = t.ShortPerSecond, t.ShortBytes
	s.load.Workers = agent.Workers(s.load.Streams())
	patience := trafficTimeout(s.load.Streams())
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no connection after %s", patience))
	defer cancel()
	if err := s.lab.Server.ServeTraffic(ctx, s.load); err != nil {
		return fmt.Errorf("starting the traffic's server in lab %s: %w", s.lab.Name, err)
	}
	err := s.eachHost(func(i int, h clientHost) error { return h.StartTraffic(ctx, s.shareOf(i)) })
	if err != nil {
		return fmt.Errorf("starting the traffic in lab %s: %w", s.lab.Name, err)
	}
	if err := s.awaitOpen(ctx, clients); err != nil {
		return fmt.Errorf("starting the traffic in lab %s: %w", s.lab.Name, err)
	}
	if err := s.readDelays(ctx); err != nil {
		return err
	}
	// A few clients probe for all, and so does the first host.
	if err := s.hosts[0].StartRTT(ctx, s.env.ServerIP); err != nil {
		return fmt.Errorf("starting round-trip probes in lab %s: %w", s.lab.Name, err)
	}
	return nil
}

// shareOf is host i's part of the load that is to run.
func (s *side) shareOf(i int) agent.Traffic {
	share, part := s.load, float64(s.hosts[i].count)/float64(s.load.Clients)
	share.Clients = s.hosts[i].count
	share.OfferedMbps *= part
	share.ShortPerSecond *= part
	share.ShortAfter = turnOf(i, s.load.ShortPerSecond)
	return share
}

// readDelays asks the generators how long their streams took to begin.
func (s *side) readDelays(ctx context.Context) error {
	all := make([]agent.TrafficStats, len(s.hosts))
	err := s.eachHost(func(i int, h clientHost) (err error) { all[i], err = h.TrafficStats(ctx); return err })
	var connect, firstByte traffic.Delays
	for _, stats := range all {
		connect, firstByte = connect.Worst(stats.Connect), firstByte.Worst(stats.FirstByte)
	}
	s.connect, s.firstByte = result.Delays(connect), result.Delays(firstByte)
	return err
}

// mark has the streams count what they carry each from now on.
func (s *side) mark(ctx context.Context) error {
	if !traffic.KindOf(s.load.Kind).Counts {
		return nil
	}
	stats, err := s.lab.Server.TrafficStats(ctx)
	if err == nil {
		err = testbed.Together(
			func() error { return s.eachHost(func(_ int, h clientHost) error { return h.MarkTraffic(ctx) }) },
			func() error { return s.lab.Server.MarkTraffic(ctx) },
		)
	}
	s.marked = stats.MonotonicNs
	return err
}

// readFairness reads what the streams carried each since they were marked.
func (s *side) readFairness(ctx context.Context) error {
	if s.marked == 0 {
		return nil
	}
	stats, err := s.lab.Server.TrafficStats(ctx)
	if err != nil {
		return err
	}
	clients := make([]agent.TrafficStats, len(s.hosts))
	if err := s.eachHost(func(i int, h clientHost) (err error) { clients[i], err = h.TrafficStats(ctx); return err }); err != nil {
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
		Jain: shares.Jain(), Even: shares.Even(s.load.BurstSegments * traffic.SegmentBytes(client.KindOf(s.has.Client).MTU, s.load.UDP)),
		MinMbps: mbps(shares.Min, seconds), MaxMbps: mbps(shares.Max, seconds),
	}
	s.marked = 0
	return nil
}

// readShort adds what became of the load's short connections to what is known of those
// of the cell's loads before it, by client host.
func (s *side) readShort(ctx context.Context) error {
	if s.load.ShortPerSecond == 0 {
		return nil
	}
	if s.shorts == nil {
		s.shorts = make([]short.Stats, len(s.hosts))
	}
	return s.eachHost(func(i int, h clientHost) error {
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
	return result.Delays{P50: millis(result.Quantile(us, 0.5)), P99: millis(result.Quantile(us, 0.99)), Max: us[len(us)-1]}
}

// awaitOpen waits until all streams have their windows open, where they are too many
// to have it done within any warm-up.
func (s *side) awaitOpen(ctx context.Context, clients int) error {
	if !traffic.KindOf(s.load.Kind).Counts || clients <= agent.WindowsAtOnce {
		return nil
	}
	for {
		open := make([]bool, len(s.hosts)+1)
		ask := func(h *testbed.Host, into *bool) error {
			stats, err := h.TrafficStats(ctx)
			*into = stats.Open
			return err
		}
		err := testbed.Together(
			func() error { return s.eachHost(func(i int, h clientHost) error { return ask(h.Host, &open[i]) }) },
			func() error { return ask(s.lab.Server, &open[len(s.hosts)]) },
		)
		if err != nil || !slices.Contains(open, false) {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// trafficTimeout bounds starting and stopping the load of so many clients: a traffic
// tool that hangs costs a cell, not the run.
func trafficTimeout(clients int) time.Duration {
	return 15*time.Second + 4*time.Duration(clients)*time.Millisecond
}

func (s *side) stopTraffic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trafficTimeout(s.load.Streams()))
	defer cancel()
	// The clients first: a server that vanishes would look like broken streams.
	clients := s.eachHost(func(_ int, h clientHost) error { return h.StopTraffic(ctx) })
	return errors.Join(clients, s.lab.Server.StopTraffic(ctx))
}
