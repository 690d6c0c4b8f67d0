package side

import (
	"context"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// Reading is everything a side's meters say at one moment.
type Reading struct {
	Router  meter.Sample
	Clients []Endpoint // by client host
	Server  Endpoint
	RTT     rtt.Times // since the reading before; under traffic only
}

// Endpoint is what an end of the traffic says of itself.
type Endpoint struct {
	Meter meter.Sample
	Load  agent.TrafficStats // under traffic only
}

// ReadMeters samples the meters of all hosts at the same moment. Each host divides by its own
// clock, so a few milliseconds between them do not matter.
func (s *Side) ReadMeters(ctx context.Context) (Reading, error) { return s.read(ctx, false) }

// Read is ReadMeters with what the traffic and its round-trip probes say.
func (s *Side) Read(ctx context.Context) (Reading, error) { return s.read(ctx, true) }

func (s *Side) read(ctx context.Context, underTraffic bool) (r Reading, err error) {
	r.Clients = make([]Endpoint, len(s.Hosts))
	meters := []func() error{func() (err error) { r.Router, err = s.Router.Sample(ctx); return err }}
	var loads []func() error
	ask := func(h *testbed.Host, e *Endpoint) {
		meters = append(meters, func() (err error) { e.Meter, err = h.Sample(ctx); return err })
		loads = append(loads, func() (err error) { e.Load, err = h.TrafficStats(ctx); return err })
	}
	for i, h := range s.Hosts {
		ask(h.Host, &r.Clients[i])
	}
	ask(s.Server, &r.Server)
	if underTraffic {
		loads = append(loads, func() (err error) { r.RTT, err = s.Hosts[0].TakeRTT(ctx); return err })
		meters = append(meters, loads...)
	}
	if err := testbed.Together(meters...); err != nil {
		return r, fmt.Errorf("reading the meters of lab %s: %w", s.Lab.Name, err)
	}
	return r, nil
}

// ReadTwice reads all of the sides at once, and again when length has passed.
func ReadTwice(ctx context.Context, length time.Duration, sides ...*Side) (before, after []Reading, err error) {
	take := func() ([]Reading, error) {
		return Each(sides, func(_ int, s *Side) (Reading, error) { return s.Read(ctx) })
	}
	// All meters are asked at once, and each host divides by its own clock: one
	// that takes longer (a hundred programs on the client host) lengthens no window.
	start := time.Now()
	if before, err = take(); err != nil {
		return nil, nil, err
	}
	if err := Sleep(ctx, time.Until(start.Add(length))); err != nil {
		return nil, nil, err
	}
	after, err = take()
	return before, after, err
}
