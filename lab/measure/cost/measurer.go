package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// measurer offers a cell's traffic to a pair of labs and measures windows of
// it. begin comes first, end last, also after a failed begin.
type measurer interface {
	begin(ctx context.Context, cell result.Cell) error
	// measure returns one window of the device and one of the clean router. n
	// counts the windows of the cell: where the sides take turns it says who is first.
	measure(ctx context.Context, cell result.Cell, n int) (device, clean result.Measurement, err error)
	// loaded calls fn with the sides that carry the cell's load at that moment:
	// once with both, or with each in turn.
	loaded(ctx context.Context, cell result.Cell, fn func(labs ...*lab) error) error
	// ended is an error when a program of either lab has ended by itself.
	ended(ctx context.Context) error
	end(ctx context.Context) error
}

func newMeasurer(p pair) measurer {
	if p.e.Mode == result.ModeSolo {
		return &solo{p}
	}
	return &duet{p}
}

type pair struct {
	e             *experiment.Experiment
	device, clean *lab
	empty         int64 // memory of the machine that was taken before the labs were built, KiB
}

func (p pair) ended(ctx context.Context) error {
	device, err := p.device.Ended(ctx)
	clean, err2 := p.clean.Ended(ctx)
	return errors.Join(err, err2, device.Err(), clean.Err())
}

// seconds bounds the load of one cell: all its windows with redos or the window
// of its profile, whichever is longer, and some.
func (p pair) seconds(cell result.Cell) int {
	windows := time.Duration(p.e.Windows*(p.e.Redo+1)) * (p.e.Window + time.Second)
	return int((p.warmup(cell)+max(windows, p.e.ProfileWindow))/time.Second) + 60
}

// warmup is how long a load runs before its first window.
func (p pair) warmup(cell result.Cell) time.Duration {
	return p.e.WarmupOf(cell.Number(result.OfferedMbps), cell.Text(result.Direction), p.device.Config.Has, p.clean.Config.Has)
}

func (p pair) start(ctx context.Context, s *lab, cell result.Cell) error {
	return s.load(ctx, cell, p.seconds(cell))
}

func (p pair) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the next cell needs the ports; each stop is bounded in time
	return testbed.Together(func() error { return p.device.StopTraffic(ctx) }, func() error { return p.clean.StopTraffic(ctx) })
}

// duet measures both sides in the same stretch of time: what disturbs the
// machine disturbs both alike.
type duet struct{ pair }

func (d *duet) begin(ctx context.Context, cell result.Cell) error {
	err := testbed.Together(func() error { return d.start(ctx, d.device, cell) }, func() error { return d.start(ctx, d.clean, cell) })
	if err != nil {
		return err
	}
	// A turn that takes so long is what the streams are compared by: a window is a small
	// part of the next one.
	warmup := d.warmup(cell)
	if warmup > d.e.Warmup {
		if err := d.mark(ctx); err != nil {
			return err
		}
	}
	if err := side.Sleep(ctx, warmup); err != nil {
		return err
	}
	now, err := d.device.Lab.Router.Load(ctx)
	if err != nil {
		return err
	}
	d.device.memory = result.Memory{MiB: float64(now.Memory.Taken-d.empty) / 1024, Clients: d.device.Config.Has.Clients + d.clean.Config.Has.Clients}
	if warmup > d.e.Warmup {
		return nil
	}
	return d.mark(ctx)
}

// mark has the streams of both sides count what they carry each from now on.
func (d *duet) mark(ctx context.Context) error {
	return testbed.Together(func() error { return d.device.mark(ctx) }, func() error { return d.clean.mark(ctx) })
}

func (d *duet) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	read := testbed.Together(
		func() error { return errors.Join(d.device.readFairness(ctx), d.device.readShort(ctx)) },
		func() error { return errors.Join(d.clean.readFairness(ctx), d.clean.readShort(ctx)) })
	return errors.Join(read, d.pair.end(ctx))
}

func (d *duet) measure(ctx context.Context, _ result.Cell, _ int) (device, clean result.Measurement, err error) {
	list, err := window(ctx, d.e.Window, d.device, d.clean)
	if err != nil {
		return device, clean, err
	}
	return list[0], list[1], nil
}

func (d *duet) loaded(_ context.Context, _ result.Cell, fn func(...*lab) error) error {
	return fn(d.device, d.clean)
}

// solo loads one side at a time, in turns, so that neither disturbs the other.
type solo struct{ pair }

func (*solo) begin(context.Context, result.Cell) error { return nil }

func (s *solo) measure(ctx context.Context, cell result.Cell, n int) (device, clean result.Measurement, err error) {
	turns := []struct {
		lab  *lab
		into *result.Measurement
	}{{s.device, &device}, {s.clean, &clean}}
	if n%2 == 1 {
		turns[0], turns[1] = turns[1], turns[0]
	}
	for _, t := range turns {
		if *t.into, err = s.turn(ctx, t.lab, cell); err != nil {
			return device, clean, fmt.Errorf("solo window of lab %s: %w", t.lab.Lab.Name, err)
		}
	}
	return device, clean, nil
}

func (s *solo) turn(ctx context.Context, l *lab, cell result.Cell) (m result.Measurement, err error) {
	err = s.load(ctx, l, cell, func() error {
		list, err := window(ctx, s.e.Window, l)
		if err != nil {
			return err
		}
		m = list[0]
		return l.readShort(ctx)
	})
	return m, err
}

func (s *solo) loaded(ctx context.Context, cell result.Cell, fn func(...*lab) error) error {
	for _, l := range []*lab{s.device, s.clean} {
		if err := s.load(ctx, l, cell, func() error { return fn(l) }); err != nil {
			return err
		}
	}
	return nil
}

// load calls fn while one side carries the cell's load.
func (s *solo) load(ctx context.Context, l *lab, cell result.Cell, fn func() error) (err error) {
	defer func() { err = errors.Join(err, l.StopTraffic(context.WithoutCancel(ctx))) }()
	if err := s.start(ctx, l, cell); err != nil {
		return err
	}
	if err := side.Sleep(ctx, s.warmup(cell)); err != nil {
		return err
	}
	return fn()
}
