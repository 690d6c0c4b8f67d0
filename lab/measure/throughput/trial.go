package throughput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
	"github.com/gateweigh/gateweigh/mlrsearch"
)

// minOffered is the least share of the due frames that the generator must send for a trial to count. A generator that
// had no CPU for a while sends the missed frames later, at the same rate. The load then has pauses, which lower the
// reported throughput.
const minOffered = 0.9

// maxVoidShare is the share of void trials above which a search is rejected.
const maxVoidShare = 0.9

// Limits of the attempts for a trial. A trial without loss counts even if a CPU was away (see isVoid).
const (
	attempts = 5  // attempts in which the generator does not keep up
	patience = 15 // attempts that lose frames while a CPU is away; the last one counts
)

// Limits of isVoid.
const (
	ringFrames = 256                    // frames that the ring of a veth holds
	leastAway  = 100 * time.Microsecond // longer than the kernel's own interrupts take
)

// isVoid reports whether a trial lost frames while a CPU was away: it worked for another guest of the machine or for
// the firmware. It must have been away for longer than half of a ring can hold frames at the load, and for longer than
// leastAway. If the device itself causes the absence, it does so in every attempt, and the last attempt counts.
func isVoid(t Trial) bool {
	holds := time.Duration(ringFrames / 2 / t.Kpps * float64(time.Millisecond))
	return t.LossRatio > 0 && time.Duration(t.AwayUs*float64(time.Microsecond)) > max(leastAway, holds)
}

// trial measures the loss at a load for a time, as mlrsearch asks. It repeats void trials. It returns tooFast if the
// generator did not keep up in all attempts.
func (b *openBlock) trial(ctx context.Context, kpps float64, d time.Duration) (mlrsearch.Outcome, error) {
	b.Status("%s: %.4g thousand frames a second for %s", b.Name(b.Block), kpps, d.Round(10*time.Millisecond))
	slow, sent := 0, 0. // attempts in which the generator did not keep up, and what it sent in them, kframes/s
	for attempt := 1; ; attempt++ {
		t, err := b.sendAndCount(ctx, kpps, d)
		if err != nil {
			return mlrsearch.Outcome{}, err
		}
		share := t.offeredShare()
		if share < minOffered {
			slow, sent = slow+1, sent+share*kpps
		}
		t.Void = share < minOffered || attempt < patience && isVoid(t)
		b.record.Trials = append(b.record.Trials, t)
		switch {
		case !t.Void:
			return mlrsearch.Outcome{Loss: t.LossRatio}, nil
		case slow == attempts:
			return mlrsearch.Outcome{}, tooFast{load: kpps, sent: sent / attempts}
		}
	}
}

// sendAndCount sends frames at a load for a time and counts the frames that arrive.
func (b *openBlock) sendAndCount(ctx context.Context, kpps float64, d time.Duration) (t Trial, err error) {
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return t, err
	}
	if _, err := b.away(ctx); err != nil { // absences before the trial do not count
		return t, err
	}
	defer func() { err = errors.Join(err, b.StopTraffic(context.WithoutCancel(ctx))) }()
	if err = b.StartTraffic(ctx, b.record.Direction, kpps*b.bytes*8/1000, d); err != nil {
		return t, err
	}
	r, err := b.awaitQuiet(ctx, d)
	if err == nil {
		err = b.rejects.Prove(ctx, b.Bench) // while the router still knows the streams
	}
	if err != nil {
		return t, err
	}
	away, err := b.away(ctx)
	if err != nil {
		return t, err
	}
	t = Trial{Kpps: kpps, Seconds: d.Seconds(), AwayUs: float64(away) / float64(time.Microsecond)}
	b.count(&t, before, r)
	return t, nil
}

// away returns the longest time for which a CPU of the router's machine was away since the last call; 0 if the router
// has no agent.
func (b *openBlock) away(ctx context.Context) (time.Duration, error) {
	if b.Router == nil {
		return 0, nil
	}
	return b.Router.Away(ctx)
}

// count adds to a trial the frames sent and received, the loss, and the router's CPU between two snapshots.
func (b *openBlock) count(t *Trial, before, after bench.Snapshot) {
	for _, e := range append(after.Clients, after.Server) {
		t.Intended += e.Load.Frames.Intended
		b.record.Engine = cmp.Or(string(e.Load.Frames.Engine), b.record.Engine)
		t.Offered += e.Load.Datagrams.Sent
		t.Forwarded += e.Load.Datagrams.Received
		t.Reordered += e.Load.Datagrams.Reordered
		t.SentSeconds = max(t.SentSeconds, float64(e.Load.Frames.SentForNs)/1e9)
	}
	t.LossRatio = max(0, 1-float64(t.Forwarded)/float64(max(t.Offered, 1)))
	if b.record.withoutCPU() && after.RTT.Probes > after.RTT.Lost {
		t.RTTUs, t.RTTTailUs = after.RTT.P50, after.RTT.P99
	}
	usage := bench.UsageOf(before.Router, after.Router)
	t.RouterCorePct = float64(usage.NAPINs+usage.ProcessNs) / 1e7 / max(t.Seconds, t.SentSeconds)
}

const (
	// A trial is over when no frame has arrived for quietTime. No queue of a lab holds a frame so long.
	quietTime    = 100 * time.Millisecond
	quietTimeout = 10 * time.Second
)

// awaitQuiet waits for d, and then until all frames are sent and no more arrive. It returns an error if frames still
// arrive quietTimeout later.
func (b *openBlock) awaitQuiet(ctx context.Context, d time.Duration) (r bench.Snapshot, err error) {
	if err := bench.Sleep(ctx, d); err != nil {
		return r, err
	}
	var before int64 = -1
	var probed rtt.Times // of the first reading, while frames were sent: each reading resets the times
	for end := time.Now().Add(quietTimeout); ; {
		if r, err = b.Read(ctx); err != nil {
			return r, err
		}
		if before < 0 {
			probed = r.RTT
		}
		r.RTT = probed
		var received int64
		over := true
		for _, e := range append(r.Clients, r.Server) {
			received += e.Load.Datagrams.Received
			over = over && e.Load.Frames.Done
		}
		if over && received == before {
			return r, nil
		}
		if time.Now().After(end) {
			return r, fmt.Errorf("frames still left or arrived %s after the trial's end", quietTimeout)
		}
		before = received
		if err := bench.Sleep(ctx, quietTime); err != nil {
			return r, err
		}
	}
}
