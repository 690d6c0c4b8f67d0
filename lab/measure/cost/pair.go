package cost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// pair offers a cell's traffic to two labs and measures windows of it: begin comes first, end last, also after a failed
// begin. In duet mode both labs carry the load from begin to end and are measured at the same time: what disturbs the
// machine disturbs both alike. In solo mode they are loaded one at a time, in turns, so that neither disturbs the
// other. In interleaved rounds only one lab is open. It is then the field device, also if it has a clean router, and
// the field clean is nil.
type pair struct {
	e             *experiment.Experiment
	device, clean *lab
	sides         []experiment.Side // clients and traffic of both labs, also when only one is open
	empty         int64             // memory in use on the machine before the labs were built, KiB
}

func (p pair) solo() bool { return p.e.Mode == result.ModeSolo }

// labs lists the labs that are open: one in interleaved rounds, else both.
func (p pair) labs() []*lab {
	if p.clean == nil {
		return []*lab{p.device}
	}
	return []*lab{p.device, p.clean}
}

// onBothLabs calls fn for all open labs at once.
func (p pair) onBothLabs(fn func(*lab) error) error {
	return backend.Each(p.labs(), func(_ int, l *lab) error { return fn(l) })
}

// running returns an error when a program in a lab has ended by itself.
func (p pair) running(ctx context.Context) error { return bench.Running(ctx, benchesOf(p.labs())...) }

// causeOf adds the host or program that ended in a lab to an error, as its cause.
func (p pair) causeOf(err error) error {
	var stand []*topology.Lab
	for _, l := range p.labs() {
		stand = append(stand, l.Lab)
	}
	return bench.CauseOf(err, stand...)
}

// load starts the cell's load in one lab. The load ends by itself after a time that is enough for all windows with
// their repetitions, or for the profile's window, whichever is longer.
func (p pair) load(ctx context.Context, l *lab, cell result.Cell) error {
	windows := time.Duration(p.e.Windows*p.e.MaxAttempts()) * (p.e.Window + time.Second)
	return l.load(ctx, cell, int((p.warmup(cell)+max(windows, p.e.ProfileWindow))/time.Second)+60)
}

// warmup is how long a load runs before its first window.
func (p pair) warmup(cell result.Cell) time.Duration {
	return p.e.WarmupOf(cell.Number(result.OfferedMbps), cell.Text(result.Direction), p.sides...)
}

// begin starts the load in both labs and returns after the warm-up. In solo mode it does nothing.
func (p pair) begin(ctx context.Context, cell result.Cell) error {
	if p.solo() {
		return nil
	}
	if err := p.onBothLabs(func(l *lab) error { return p.load(ctx, l, cell) }); err != nil {
		return err
	}
	// Streams are compared by the payload that they carry from the warm-up's end on. If streams send so rarely that the
	// warm-up was extended until each has sent a burst, they are compared from its beginning on: the windows are too short
	// for all streams to send again.
	mark := func() error { return p.onBothLabs(func(l *lab) error { return l.mark(ctx) }) }
	warmup := p.warmup(cell)
	if warmup > p.e.Warmup {
		if err := mark(); err != nil {
			return err
		}
	}
	if err := bench.Sleep(ctx, warmup); err != nil {
		return err
	}
	now, err := p.device.Router.Load(ctx)
	if err != nil {
		return err
	}
	p.device.memory = Memory{MiB: float64(now.Memory.Taken-p.empty) / 1024}
	for _, l := range p.labs() {
		p.device.memory.Clients += l.Side.Clients
	}
	if warmup > p.e.Warmup {
		return nil
	}
	return mark()
}

// end reads what the loads counted and stops them.
func (p pair) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the next cell needs the ports; each stop is bounded in time
	var read error
	if !p.solo() {
		read = p.onBothLabs(func(l *lab) error { return errors.Join(l.readFairness(ctx), l.readShort(ctx)) })
	}
	return errors.Join(read, p.onBothLabs(func(l *lab) error { return l.StopTraffic(ctx) }))
}

// measure measures one window of the device and one of the clean router. n is the number of the window in its cell; in
// solo mode the device is measured first when it is even, and the clean router when it is odd.
func (p pair) measure(ctx context.Context, cell result.Cell, n int) (device, clean Measurement, err error) {
	got := map[*lab]Measurement{}
	err = p.whileLoaded(ctx, cell, n, func(labs ...*lab) error {
		before, after, courses, err := bench.ReadWithCourse(ctx, p.e.Window, benchesOf(labs)...)
		var used int64 // by the routers of all labs that are measured
		for i, l := range labs {
			if err == nil {
				got[l], l.course = l.measurement(before[i], after[i]), courses[i]
				used += got[l].NAPINs + got[l].ProcessNs
				err = l.checkProof(ctx)
			}
		}
		for i, l := range labs {
			if err == nil {
				got[l].Metrics[WaitedForOthers] = l.WaitedForOthers(before[i], after[i], got[l].WaitNs, used)
				got[l].Metrics[result.OthersShare] = l.OthersShare(before[i], after[i], used)
			}
		}
		return err
	})
	return got[p.device], got[p.clean], err
}

// courseOf returns the course of the last window of each open lab (its figures in steps of time), as a record of trial
// t.
func (p pair) courseOf(t result.Trial) result.Course {
	c := result.CourseOf(t)
	c.StepMs, c.Device = bench.CourseStep.Seconds()*1000, p.device.course
	if p.clean != nil {
		c.Clean = p.clean.course
	}
	return c
}

// whileLoaded calls fn with the labs that carry the cell's load at that moment: once with both, or with
// each in turn.
func (p pair) whileLoaded(ctx context.Context, cell result.Cell, n int, fn func(labs ...*lab) error) error {
	labs := p.labs()
	if !p.solo() {
		return fn(labs...)
	}
	if n%2 == 1 {
		slices.Reverse(labs)
	}
	for _, l := range labs {
		if err := p.whileAlone(ctx, l, cell, fn); err != nil {
			return fmt.Errorf("solo window of lab %s: %w", l.Lab.Name, err)
		}
	}
	return nil
}

// whileAlone calls fn while one lab carries the cell's load.
func (p pair) whileAlone(ctx context.Context, l *lab, cell result.Cell, fn func(...*lab) error) (err error) {
	defer func() { err = errors.Join(err, l.StopTraffic(context.WithoutCancel(ctx))) }()
	if err = p.load(ctx, l, cell); err == nil {
		err = bench.Sleep(ctx, p.warmup(cell))
	}
	if err == nil {
		err = fn(l)
	}
	if err == nil {
		err = l.readShort(ctx)
	}
	return err
}

// benchesOf returns the labs' benches.
func benchesOf(labs []*lab) []*bench.Bench {
	list := make([]*bench.Bench, len(labs))
	for i, l := range labs {
		list[i] = l.Bench
	}
	return list
}
