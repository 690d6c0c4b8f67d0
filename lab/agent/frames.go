package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/receive"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// Frames is a host's part of a load of frames: those that it sends, one stream a client, and those that come
// back between the same ends.
type Frames struct {
	Link    string        `json:"link"`
	Streams []send.Stream `json:"streams,omitempty"` // as this host sends them; none: it only receives
	// Opens is that only one frame of each stream is sent, before the other host sends: gateways that track
	// connections know them then.
	Opens    bool          `json:"opens,omitempty"`
	For      time.Duration `json:"for"`             // frames are due in this time; with Count, the most time they have
	Count    int64         `json:"count,omitempty"` // frames; 0: as many as are due
	Expected int           `json:"expected"`        // streams that come here
	// ShiftNs is of the clock of this host to that of the host that sends to it: see receive.Config.
	ShiftNs int64         `json:"shift_ns,omitempty"`
	Sizes   frames.Source `json:"sizes"`
	Gaps    string        `json:"gaps"` // traffic.GapsConstant or its like
	Seed    uint64        `json:"seed,omitempty"`
	GapSeed uint64        `json:"gap_seed,omitempty"` // another one in each lab of a pair
	Burst   int           `json:"burst"`
	// Spins has the sender never rest, so that the faster engine can send: the host's CPU is taken whole, but for what
	// has real-time priority.
	Spins bool `json:"spins,omitempty"`
}

// FrameStats are the counts of a host's frames, those that Datagrams has no place for.
type FrameStats struct {
	Intended   int64 `json:"intended"` // were due; Datagrams.Sent is what the link took
	Duplicates int64 `json:"duplicates"`
	Refused    int64 `json:"refused"` // of those sent: the link had no room, and they are lost
	Over       bool  `json:"over"`    // nothing is sent any more
	// Engine is the way of sending; empty of a host that sends nothing.
	Engine send.Engine `json:"engine,omitempty"`
	LastNs int64       `json:"last_ns"` // from the first frame sent to the last
	// Of the frames since the last stats: how long after their due times they left here, how long
	// others took to here, and their jitter (RFC 3550), mean of the streams.
	Late     traffic.Delays `json:"late_us"`
	Delay    traffic.Delays `json:"delay_us"`
	JitterUs float64        `json:"jitter_us"`
}

// frameLoad is a host's end of a load of frames; nil: it has none.
type frameLoad struct {
	sender   *send.Sender
	receiver *receive.Receiver
	last     struct { // at the last stats
		sent     send.Sent
		received receive.Received
	}
	marked []uint64 // bytes of each stream that came before MarkTraffic; nil: not marked
}

// openingRate is how many streams a second are made known to gateways that track connections.
const openingRate = 10_000

// serveFrames prepares a host to receive.
func (a *Agent) serveFrames(_ context.Context, t Traffic) error {
	if a.traffic.frames != nil {
		return errTraffic
	}
	most, err := t.mostFrames()
	if err != nil {
		return err
	}
	f := &frameLoad{}
	f.receiver, err = receive.Open(
		receive.Config{Interface: t.Frames.Link, Streams: t.Frames.Expected, FramesPerStream: most,
			ShiftNs: t.Frames.ShiftNs})
	if err == nil {
		a.traffic.frames = f
	}
	return err
}

// startFrames begins to send. A host that was not asked to serve receives from now on.
func (a *Agent) startFrames(ctx context.Context, t Traffic, _ *client.Pool) (err error) {
	s := &a.traffic
	if s.frames == nil {
		if err := a.serveFrames(ctx, t); err != nil {
			return err
		}
	}
	if len(t.Frames.Streams) == 0 {
		return nil
	}
	plan, err := t.plan()
	if err != nil {
		return err
	}
	// Frames outlive the request, and end with their plan.
	sender, err := send.Start(context.WithoutCancel(ctx), send.Config{Link: t.Frames.Link, Streams: t.Frames.Streams,
		Plan: plan, MaxFor: t.Frames.For, Rests: !t.Frames.Spins, Loses: true, Favoured: true})
	if err != nil {
		return err
	}
	if !t.Frames.Opens {
		s.frames.sender = sender
		return nil
	}
	return sender.Wait()
}

// eachMbps is a load one way, Mbit/s.
func (t Traffic) eachMbps() float64 { return t.OfferedMbps / float64(len(t.directions())) }

// plan is when the host sends which frames.
func (t Traffic) plan() (*frames.Plan, error) {
	sizes, trace, err := t.Frames.Sizes.Open()
	if err != nil {
		return nil, err
	}
	cfg := frames.Config{
		Sizes: sizes, Streams: len(t.Frames.Streams), For: t.Frames.For, Count: t.Frames.Count, Seed: t.Frames.Seed,
		GapSeed: t.Frames.GapSeed,
		Burst:   t.Frames.Burst, Scatter: t.Frames.Gaps == traffic.GapsScattered,
		Schedule: frames.Schedule{Mbps: t.eachMbps(), Poisson: t.Frames.Gaps == traffic.GapsPoisson},
	}
	if t.Frames.Gaps == traffic.GapsCaptured && !t.Frames.Opens {
		speed, err := t.speed(sizes, trace)
		if err != nil {
			return nil, err
		}
		cfg.Burst, cfg.Schedule = 0, frames.Schedule{Gaps: trace, Speed: speed}
	}
	if cfg.Count > 0 && !t.Frames.Opens {
		cfg.For = 0 // the sender's own limit ends it
	}
	if t.Frames.Opens {
		cfg.Count, cfg.Burst, cfg.Scatter, cfg.Schedule = int64(cfg.Streams), 0, false,
			frames.Schedule{PacketsPerSecond: openingRate}
	}
	return frames.NewPlan(cfg)
}

// speed is how much faster than it was captured a trace is sent.
func (t Traffic) speed(sizes frames.Sizes, trace *frames.Trace) (float64, error) {
	if trace == nil {
		return 0, fmt.Errorf("gaps of %s: it is no capture", sizes.Name)
	}
	return trace.Speed(t.eachMbps() * 1e6 / 8 / sizes.MeanBytes())
}

// mostFrames is how many frames a stream of the load can have.
func (t Traffic) mostFrames() (int64, error) {
	sizes, trace, err := t.Frames.Sizes.Open()
	if err != nil {
		return 0, err
	}
	if t.Frames.Gaps == traffic.GapsCaptured {
		speed, err := t.speed(sizes, trace)
		if err != nil {
			return 0, err
		}
		return trace.Most(t.Frames.For.Seconds(), speed)/int64(max(t.Frames.Expected, 1)) + 64, nil
	}
	all := t.eachMbps() * 1e6 / 8 / sizes.MeanBytes() * t.Frames.For.Seconds()
	const slack = 1.2 // Poisson gaps come short by chance
	return int64(math.Ceil(slack*all/float64(max(t.Frames.Expected, 1)))) + int64(t.Frames.Burst) + 64, nil
}

// stop ends what is sent and what is received.
func (f *frameLoad) stop() (err error) {
	if f == nil {
		return nil
	}
	if f.sender != nil {
		err = f.sender.Stop()
	}
	return errors.Join(err, f.receiver.Close())
}

// read adds the counts of both ends.
func (f *frameLoad) read(out *TrafficStats) error {
	if f == nil {
		return nil
	}
	got, err := f.receiver.Stats()
	if err != nil {
		return err
	}
	out.ReceivedBytes += int64(got.Bytes)
	in := traffic.Datagrams{Received: int64(got.Distinct()), Lost: int64(got.Missing), Reordered: int64(got.Reordered)}
	out.Datagrams = out.Datagrams.Add(in)
	stats := FrameStats{Duplicates: int64(got.Duplicates), Over: f.sender == nil}
	since := got.Delay.Since(f.last.received.Delay)
	stats.Delay = traffic.Delays{
		P50: since.QuantileNs(0.5) / 1e3, P99: since.QuantileNs(0.99) / 1e3, Max: since.QuantileNs(1) / 1e3}
	var heard int
	for _, s := range got.Streams {
		if s.Distinct() > 1 {
			heard++
			stats.JitterUs += s.JitterNs / 1e3
		}
	}
	stats.JitterUs /= float64(max(heard, 1))
	out.Shares = f.shares(got)
	f.last.received = got
	if f.sender != nil {
		sent := f.sender.Stats()
		out.Datagrams.Sent += sent.Offered
		stats.Intended, stats.Refused, stats.LastNs, stats.Engine = sent.Intended, sent.Refused, int64(sent.Last), sent.Engine
		late := sent.Late.Since(f.last.sent.Late)
		stats.Late = traffic.Delays{
			P50: microseconds(late.Quantile(0.5)), P99: microseconds(late.Quantile(0.99)), Max: microseconds(late.Quantile(1))}
		out.ThreadNs["frames"] = sent.ThreadNs
		f.last.sent = sent
		select {
		case <-f.sender.Done():
			stats.Over = true
			if err := f.sender.Wait(); err != nil {
				out.Broken, out.FirstError = len(got.Streams), err.Error()
			}
		default:
		}
	}
	out.Frames = stats
	return nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// mark has shares counted from now on.
func (f *frameLoad) mark() error {
	if f == nil {
		return nil
	}
	got, err := f.receiver.Stats()
	f.marked = make([]uint64, len(got.Streams))
	for i, s := range got.Streams {
		f.marked[i] = s.Bytes
	}
	return err
}

// shares are the streams' since mark; empty where none are expected, or before.
func (f *frameLoad) shares(got receive.Received) (all traffic.Shares) {
	if f.marked == nil || got.Frames == 0 {
		return all
	}
	for i, s := range got.Streams {
		n := int64(s.Bytes - f.marked[i])
		all = all.With(traffic.Shares{Streams: 1, Sum: float64(n), Squares: float64(n) * float64(n), Min: n, Max: n})
	}
	return all
}

// LinkAddresses are the hardware addresses of the host's interfaces, by name.
func (a *Agent) LinkAddresses(context.Context) (map[string]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	list := map[string]string{}
	for _, i := range all {
		list[i.Name] = i.HardwareAddr.String()
	}
	return list, nil
}
