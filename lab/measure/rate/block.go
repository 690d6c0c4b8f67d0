// Package rate measures how fast TCP is through a tunnel between two gateways: the payload that arrives, the CPU time
// of both gateways, and what limits the rate. The payload is compared with the share of the link's rate that the
// tunnel's headers leave. If packets vanish because they are too long, that is the result (Outcome).
package rate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure { return runner.Measure{Block: carryOut} }

// idleTime is how long round-trip times are measured before the load.
const idleTime = time.Second

// block is a block whose lab is open.
type block struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	mtu  rtt.MTU
	idle result.RTT
}

// carryOut measures all windows of a device in one lab.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	s.Status("%s: building the lab", s.Name(eb))
	return nil, s.Labs(eb).Admitted(ctx, func(lab *bench.Bench) error {
		return (&block{Session: s, Block: eb, Bench: lab}).measure(ctx)
	})
}

// measure first measures round-trip times and the path's MTU without a load. Then it starts the load and measures its
// windows.
func (b *block) measure(ctx context.Context) (err error) {
	cell, e := b.Cells[0], b.Experiment
	b.Status("%s: looking at the path", b.Name(b.Block))
	if err := b.measureIdle(ctx); err != nil {
		return err
	}
	todo := b.Todo(b.Block, cell)
	most := e.Warmup + time.Duration(len(todo)*e.MaxAttempts())*(e.Window+time.Second) + time.Minute
	defer func() { err = errors.Join(err, b.StopTraffic(context.WithoutCancel(ctx))) }()
	if err := b.StartTraffic(ctx, cell.Text(result.Direction), 0, most); err != nil {
		return err
	}
	if err := bench.Sleep(ctx, e.Warmup); err != nil {
		return err
	}
	for _, w := range todo {
		if err := b.window(ctx, cell, w); err != nil {
			return err
		}
	}
	return nil
}

// measureIdle measures round-trip times while nothing else is sent, and the size of the largest packet that comes
// through.
func (b *block) measureIdle(ctx context.Context) (err error) {
	if err := b.StartProbes(ctx); err != nil {
		return err
	}
	if b.mtu, err = b.Hosts[0].PathMTU(ctx, b.TrafficServer()); err != nil {
		return fmt.Errorf("looking for the largest packet of the path: %w", err)
	}
	b.idle, err = b.IdleRTT(ctx, idleTime)
	return err
}

// window measures window w, and again until it is accepted or the attempts are used up.
func (b *block) window(ctx context.Context, cell result.Cell, w int) error {
	b.Status("%s: window %d", b.Name(b.Block), w+1)
	return b.MeasureWindow(b.Block, cell, w, KindRate, func(a runner.Attempt) (result.Record, []string, error) {
		before, after, err := bench.ReadTwice(ctx, b.Experiment.Window, b.Bench)
		if err != nil {
			return nil, nil, err
		}
		t := b.trial(cell, before[0], after[0])
		t.Window = w
		rejects, err := b.judge(ctx, t, before[0], after[0])
		t.Seconds = a.Took().Seconds()
		return t, rejects, err
	})
}
