package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// plan sets the lab's load: mbps in a direction, for at most the time most.
func (s *Bench) plan(direction string, mbps float64, most time.Duration) {
	t := s.Side.Traffic
	s.Load = agent.Traffic{
		Kind: t.Kind, UDP: t.Protocol == experiment.ProtocolUDP, Paced: t.Pacing == experiment.PacingPaced,
		Direction: direction,
		Clients:   s.Side.Clients, MostClients: s.maxClients, ClientHosts: len(s.Hosts), Server: s.TrafficServer(),
		OfferedMbps:   mbps,
		MTU:           s.mtu,
		BurstSegments: t.BurstSegments, MaxSeconds: int(math.Ceil(most.Seconds())), ShortPerSecond: t.ShortPerSecond,
		ShortBytes: t.ShortBytes,
	}
	for _, h := range s.Lab.Hosts { // both ends have as many
		s.Load.Workers = max(s.Load.Workers, agent.ProcessesFor(s.Load.Streams(), h.Files))
	}
}

// TrafficServer returns the addresses of the server that the clients of the lab's family send to.
func (s *Bench) TrafficServer() agent.Server {
	return agent.ServerFor(s.Side.Family, s.Env.ServerIP, s.Env.ServerIP6)
}

// StartProbes starts the round-trip probes and what answers them, without a load.
func (s *Bench) StartProbes(ctx context.Context) error {
	if err := s.Server.ServeEcho(ctx, s.TrafficServer()); err != nil {
		return fmt.Errorf("starting the server of round-trip probes in lab %s: %w", s.Lab.Name, err)
	}
	if err := s.Hosts[0].StartRTT(ctx, s.TrafficServer()); err != nil {
		return fmt.Errorf("starting round-trip probes in lab %s: %w", s.Lab.Name, err)
	}
	return nil
}

// firstAnswer bounds the wait for the first round-trip probe that comes back from an idle lab.
const firstAnswer = 2 * time.Second

// IdleRTT measures round-trip times for length while the lab carries no load. The probes go on. It begins with the
// first answer, so what a device does once for a new flow is not in it. A lab from which none comes has a zero P50.
func (s *Bench) IdleRTT(ctx context.Context, length time.Duration) (result.RTT, error) {
	if err := s.StartProbes(ctx); err != nil {
		return result.RTT{}, err
	}
	take := func() (result.RTT, error) {
		times, err := s.Hosts[0].TakeRTT(ctx)
		return result.RTT(times), err
	}
	for end := time.Now().Add(firstAnswer); time.Now().Before(end); {
		if r, err := take(); err != nil || r.P50 > 0 {
			break
		}
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return result.RTT{}, err
		}
	}
	if err := Sleep(ctx, length); err != nil {
		return result.RTT{}, err
	}
	return take()
}

// StartTraffic starts a load of mbps Mbit/s that ends by itself, frames after exactly that time; 0 has TCP send as fast
// as it can. It returns when all streams are connected and the round-trip probes run.
func (s *Bench) StartTraffic(ctx context.Context, direction string, mbps float64, most time.Duration) error {
	t, clients := s.Side.Traffic, s.Side.Clients
	s.plan(direction, mbps, most)
	patience := trafficTimeout(s.Load.Streams())
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf(
		"no connection after %s: does the device forward what its clients send, once they are admitted?",
		patience.Round(time.Second)))
	defer cancel()
	frames := traffic.KindOf(t.Kind).Frames
	if frames {
		if err := s.addressFrames(ctx); err != nil {
			return fmt.Errorf("addressing the frames of lab %s: %w", s.Lab.Name, err)
		}
		if err := s.readClocks(ctx); err != nil {
			return fmt.Errorf("reading the clocks of lab %s: %w", s.Lab.Name, err)
		}
		s.Load.Frames = s.farFrames(most)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"the traffic's server", func() error { return s.Server.ServeTraffic(ctx, s.Load) }},
		{"the traffic", func() error {
			return s.EachHost(func(i int, h ClientHost) error { return h.StartTraffic(ctx, s.shareOf(i)) })
		}},
		{"the server's frames", func() error {
			if !frames {
				return nil // what else the server sends is asked for by the clients
			}
			return s.Server.StartTraffic(ctx, s.Load)
		}},
		{"the traffic", func() error { return s.awaitOpen(ctx, clients) }},
		// A few clients probe for all, and so does the first host.
		{"round-trip probes", func() error { return s.Hosts[0].StartRTT(ctx, s.TrafficServer()) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("starting %s in lab %s: %w", step.what, s.Lab.Name, s.withEndedPrograms(ctx, err))
		}
	}
	return nil
}

// shareOf is host i's part of the load that is to run.
func (s *Bench) shareOf(i int) agent.Traffic {
	share, part := s.Load, float64(s.Hosts[i].count)/float64(s.Load.Clients)
	share.Clients = s.Hosts[i].count
	share.OfferedMbps *= part
	share.ShortPerSecond *= part
	share.ShortAfter = StartOffset(i, s.Load.ShortPerSecond)
	if share.Frames != nil {
		share.Frames = s.nearFrames(i, s.Load.Frames.Length)
	}
	return share
}

// awaitOpen waits until the congestion windows of all streams are open. It waits only if there are
// so many streams that a warm-up is too short for this.
func (s *Bench) awaitOpen(ctx context.Context, clients int) error {
	if !traffic.KindOf(s.Load.Kind).Counts || clients <= agent.WindowsAtOnce {
		return nil
	}
	for {
		open, err := Each(s.ends(), func(_ int, h *backend.Host) (bool, error) {
			stats, err := h.TrafficStats(ctx)
			return stats.Open, err
		})
		if err != nil || !slices.Contains(open, false) {
			return err
		}
		if err := Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// trafficTimeout bounds starting and stopping the load of a number of clients: a traffic
// tool that hangs costs a cell, not the run.
func trafficTimeout(clients int) time.Duration {
	return 15*time.Second + 4*time.Duration(clients)*time.Millisecond
}

// StopTraffic ends the load on all hosts.
func (s *Bench) StopTraffic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trafficTimeout(s.Load.Streams()))
	defer cancel()
	// The clients first: a server that vanishes would look like broken streams.
	clients := s.EachHost(func(_ int, h ClientHost) error { return h.StopTraffic(ctx) })
	return errors.Join(clients, s.Server.StopTraffic(ctx))
}
