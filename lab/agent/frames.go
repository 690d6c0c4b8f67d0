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

// Frames is a host's part of a load of Ethernet frames that are planned, sent and accounted for one by one. The host
// sends one stream of frames for each client, and receives the streams of the host at the other end.
type Frames struct {
	Link    string        `json:"link"`              // interface that sends and receives
	Streams []send.Stream `json:"streams,omitempty"` // that this host sends; none: it only receives
	// Opening sends only one frame of each stream, before the measured load. A gateway that tracks connections then knows
	// the streams before the other host sends.
	Opening bool `json:"opens,omitempty"`
	// Length is the time in which frames are due. With Count it is the longest time in which they may be sent.
	Length   time.Duration `json:"for"`
	Count    int64         `json:"count,omitempty"` // frames to send; 0: all that are due within Length
	Expected int           `json:"expected"`        // number of streams that this host receives
	// ShiftNs is the difference between this host's clock and the other host's, ns: see receive.Config.
	ShiftNs int64         `json:"shift_ns,omitempty"`
	Sizes   frames.Source `json:"sizes"`
	Gaps    string        `json:"gaps"` // times between frames: traffic.GapsConstant, GapsPoisson, …
	Seed    uint64        `json:"seed,omitempty"`
	GapSeed uint64        `json:"gap_seed,omitempty"` // differs between the two labs of a pair
	Burst   int           `json:"burst"`              // frames sent back to back
	// BusyWait lets the sender wait for due times without sleeping, which the faster engine needs. It takes the whole CPU
	// of the host; only threads of real-time priority still run there.
	BusyWait bool `json:"spins,omitempty"`
}

// FrameStats are counts of a host's frames beside those in TrafficStats.Datagrams.
type FrameStats struct {
	Intended   int64 `json:"intended"` // frames that were due; Datagrams.Sent counts those that the link took
	Duplicates int64 `json:"duplicates"`
	Refused    int64 `json:"refused"` // frames among those sent that are lost, because the link had no room
	Done       bool  `json:"over"`    // the host has sent all its frames, or has none to send
	// Engine is the way of sending; empty for a host that sends nothing.
	Engine    send.Engine `json:"engine,omitempty"`
	SentForNs int64       `json:"last_ns"` // from the first frame sent to the last
	// The next three fields are of the frames since the last call of TrafficStats.
	Late     traffic.Delays `json:"late_us"`   // from a frame's due time until it left this host
	Delay    traffic.Delays `json:"delay_us"`  // from the other host to this one
	JitterUs float64        `json:"jitter_us"` // of received frames (RFC 3550), mean of the streams
}

// frameLoad is a host's end of a load of frames. A nil frameLoad, of a host without one, does nothing.
type frameLoad struct {
	sender   *send.Sender
	receiver *receive.Receiver
	last     struct { // counts at the last call of read
		sent     send.Sent
		received receive.Received
	}
	marked []uint64 // bytes received of each stream before MarkTraffic; nil before that call
}

// openingRate is how many frames a second an opening load sends (Frames.Opening), one a stream.
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

// startFrames begins to send. It also begins to receive, unless serveFrames did so before. An opening load is sent when
// it returns.
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
	// The sender goes on after the request, until its plan ends.
	sender, err := send.Start(context.WithoutCancel(ctx), send.Config{Link: t.Frames.Link, Streams: t.Frames.Streams,
		Plan: plan, MaxFor: t.Frames.Length, Rests: !t.Frames.BusyWait, Loses: true, Favoured: true})
	if err != nil {
		return err
	}
	if !t.Frames.Opening {
		s.frames.sender = sender
		return nil
	}
	return sender.Wait()
}

// directionMbps is the offered load in each direction, Mbit/s.
func (t Traffic) directionMbps() float64 { return t.OfferedMbps / float64(len(t.directions())) }

// plan computes which frames the host sends, and when.
func (t Traffic) plan() (*frames.Plan, error) {
	sizes, trace, err := t.Frames.Sizes.Open()
	if err != nil {
		return nil, err
	}
	cfg := frames.Config{
		Sizes: sizes, Streams: len(t.Frames.Streams), For: t.Frames.Length, Count: t.Frames.Count, Seed: t.Frames.Seed,
		GapSeed: t.Frames.GapSeed,
		Burst:   t.Frames.Burst, Scatter: t.Frames.Gaps == traffic.GapsScattered,
		Schedule: frames.Schedule{Mbps: t.directionMbps(), Poisson: t.Frames.Gaps == traffic.GapsPoisson},
	}
	if t.Frames.Gaps == traffic.GapsCaptured && !t.Frames.Opening {
		speed, err := t.speed(sizes, trace)
		if err != nil {
			return nil, err
		}
		cfg.Burst, cfg.Schedule = 0, frames.Schedule{Gaps: trace, Speed: speed}
	}
	if cfg.Count > 0 && !t.Frames.Opening {
		cfg.For = 0 // send.Config.MaxFor bounds the time
	}
	if t.Frames.Opening {
		cfg.Count, cfg.Burst, cfg.Scatter, cfg.Schedule = int64(cfg.Streams), 0, false,
			frames.Schedule{PacketsPerSecond: openingRate}
	}
	return frames.NewPlan(cfg)
}

// speed is how many times faster than captured a trace must be sent to offer the load. Without a trace it is an error.
func (t Traffic) speed(sizes frames.Sizes, trace *frames.Trace) (float64, error) {
	if trace == nil {
		return 0, fmt.Errorf("gaps of %s: it is no capture", sizes.Name)
	}
	return trace.Speed(t.directionMbps() * 1e6 / 8 / sizes.MeanBytes())
}

// mostFrames is the largest number of frames that one stream of the load can have.
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
		return trace.Most(t.Frames.Length.Seconds(), speed)/int64(max(t.Frames.Expected, 1)) + 64, nil
	}
	all := t.directionMbps() * 1e6 / 8 / sizes.MeanBytes() * t.Frames.Length.Seconds()
	const slack = 1.2 // random gaps can be shorter than their mean
	return int64(math.Ceil(slack*all/float64(max(t.Frames.Expected, 1)))) + int64(t.Frames.Burst) + 64, nil
}

// stop ends sending and receiving.
func (f *frameLoad) stop() (err error) {
	if f == nil {
		return nil
	}
	if f.sender != nil {
		err = f.sender.Stop()
	}
	return errors.Join(err, f.receiver.Close())
}

// read adds the sender's and the receiver's counts to out.
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
	stats := FrameStats{Duplicates: int64(got.Duplicates), Done: f.sender == nil}
	since := got.Delay.Since(f.last.received.Delay)
	stats.Delay = traffic.Delays{
		P50: since.QuantileNs(0.5) / 1e3, P99: since.QuantileNs(0.99) / 1e3, Max: since.QuantileNs(1) / 1e3}
	var withJitter int // a stream has jitter from its second frame on
	for _, s := range got.Streams {
		if s.Distinct() > 1 {
			withJitter++
			stats.JitterUs += s.JitterNs / 1e3
		}
	}
	stats.JitterUs /= float64(max(withJitter, 1))
	out.Shares = f.shares(got)
	f.last.received = got
	if f.sender != nil {
		f.readSender(&stats, out)
	}
	out.Frames = stats
	return nil
}

// readSender adds the sender's counts to both.
func (f *frameLoad) readSender(stats *FrameStats, out *TrafficStats) {
	sent := f.sender.Stats()
	out.Datagrams.Sent += sent.Offered
	stats.Intended, stats.Refused, stats.SentForNs, stats.Engine = sent.Intended, sent.Refused, int64(sent.Last),
		sent.Engine
	late := sent.Late.Since(f.last.sent.Late)
	stats.Late = traffic.Delays{
		P50: microseconds(late.Quantile(0.5)), P99: microseconds(late.Quantile(0.99)), Max: microseconds(late.Quantile(1))}
	out.ThreadNs["frames"] = sent.ThreadNs
	f.last.sent = sent
	select {
	case <-f.sender.Done():
		stats.Done = true
		if err := f.sender.Wait(); err != nil {
			out.Broken, out.FirstError = len(f.last.received.Streams), err.Error()
		}
	default:
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// mark makes shares count from now on.
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

// shares sums up how many bytes each stream has brought since mark. It is empty before mark, and while nothing has
// come.
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

// LinkAddresses returns the hardware (MAC) addresses of the host's interfaces, by name.
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
