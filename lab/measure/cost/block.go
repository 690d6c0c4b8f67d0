package cost

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// run is the state of the measure in one run.
type run struct {
	noProfile map[result.Cell]bool // cells whose profile failed; it is not tried again in this run
}

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure {
	r := &run{noProfile: map[result.Cell]bool{}}
	return runner.Measure{Block: r.block, Unfinished: r.wantsProfile}
}

// openBlock is a block that is being measured.
type openBlock struct {
	*runner.Session
	experiment.Block
	run  *run
	pair pair
	rec  *result.Block // the block's record
	stay *Stay         // the record's figures
}

// block measures one block and returns its record: it builds both labs with the device in one of them, starts every
// cell's traffic and measures its windows.
//
// When all windows were measured in an earlier sitting, only profiles are missing. An error then costs the profiles
// alone, and the block gets a record only if the earlier sitting did not write it.
func (r *run) block(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	stay := &Stay{}
	b := &openBlock{Session: s, Block: eb, run: r, rec: &result.Block{Figures: stay}, stay: stay}
	profileOnly := s.WindowsDone(eb)
	rec, err := b.carryOut(ctx)
	switch {
	case !profileOnly || ctx.Err() != nil:
		return rec, err
	case err != nil:
		for _, cell := range b.Cells {
			if r.wantsProfile(s, eb, cell) {
				b.noteNoProfile(cell, err)
			}
		}
		return nil, nil
	case s.Complete(eb):
		return nil, nil
	}
	return rec, nil
}

// carryOut builds the block's labs, measures what is missing and removes them.
func (b *openBlock) carryOut(ctx context.Context) (*result.Block, error) {
	s, eb := b.Session, b.Block
	s.Status("%s: building the labs, %s", s.Name(eb), words.Counted(eb.Clients(), "client"))
	empty, err := s.Machine.Load(ctx)
	if err != nil {
		return nil, err
	}
	labs := s.Labs(eb)
	b.pair = pair{e: s.Experiment, sides: labs.Sides, empty: empty.Memory.Taken}
	if s.Experiment.Interleaved() {
		return b.rec, labs.Admitted(ctx, func(lone *bench.Bench) error {
			b.pair.device = &lab{Bench: lone}
			b.admitted()
			return b.measured(ctx)
		})
	}
	return b.rec, labs.Pair(ctx, func(device, clean *bench.Bench) error {
		b.pair.device, b.pair.clean = &lab{Bench: device}, &lab{Bench: clean}
		b.admitted()
		return b.measured(ctx)
	})
}

// admitted fills in the figures of the clients' leases and logins.
func (b *openBlock) admitted() {
	device, stay := b.pair.device, b.stay
	b.rec.SetupSeconds = device.Setup.Seconds()
	stay.LeaseSeconds, stay.LoginSeconds = device.Lease.Seconds(), device.Login.Seconds()
	stay.LoginMs, stay.HousekeepingSeconds = device.LoginMs, device.Traits.Housekeeping.Seconds()
	stay.Addresses, stay.Leased, stay.LoggedIn = device.Addresses(), len(device.Clients), len(device.LoginMs)
	if b.pair.clean != nil {
		stay.CleanAddresses = b.pair.clean.Addresses()
	}
	debug.FreeOSMemory() // thousands of logins leave garbage, which must not be collected during the windows
}

// measured measures every cell of the block that still lacks windows, with guests if the experiment has them.
func (b *openBlock) measured(ctx context.Context) error {
	if !b.WindowsDone(b.Block) {
		if err := b.pair.measureIdle(ctx); err != nil {
			return fmt.Errorf("measuring round-trip times without a load: %w", b.pair.causeOf(err))
		}
	}
	if rate := b.Experiment.Client.Churn; rate > 0 {
		return b.underChurn(ctx, rate)
	}
	return b.cells(ctx)
}

// cells measures the cells one after the other. The device's processes are also metered between the windows (Stretch),
// because a daemon that rarely wakes may work only there.
func (b *openBlock) cells(ctx context.Context) error {
	var seconds float64
	var ns int64
	for _, cell := range b.Cells {
		if todo := b.Todo(b.Block, cell); len(todo) > 0 {
			s, err := b.stretch(ctx, cell, todo)
			if err != nil {
				return err
			}
			b.stay.Stretches = append(b.stay.Stretches, s)
			seconds, ns = seconds+s.Seconds, ns+s.ProcessNs
			b.stay.DaemonCore = float64(ns) / 1e9 / seconds
		}
		if err := b.profileCell(ctx, cell); err != nil {
			return err
		}
	}
	return nil
}

// stretch measures a cell, and the CPU time of the device's processes over the whole load. In the block's first load
// that time begins with the first window, because during the warm-up the processes still work on the logins.
func (b *openBlock) stretch(ctx context.Context, cell result.Cell, todo []int) (s Stretch, err error) {
	device, clean := b.pair.device, &lab{}
	if b.pair.clean != nil {
		clean = b.pair.clean
	}
	before, err := device.SampleRouters(ctx)
	if err != nil {
		return s, err
	}
	b.NotePolling(before)
	warm := func() (err error) {
		if len(b.stay.Stretches) == 0 {
			before, err = device.SampleRouters(ctx)
		}
		return err
	}
	if err := b.cell(ctx, cell, todo, warm); err != nil {
		return s, fmt.Errorf("at %.0f Mbit/s: %w", cell.Number(result.OfferedMbps), err)
	}
	after, err := device.SampleRouters(ctx)
	if err != nil {
		return s, err
	}
	first, last := bench.Sum(before), bench.Sum(after)
	return Stretch{
		OfferedMbps: cell.Number(result.OfferedMbps), ProcessNs: bench.UsageOf(first, last).ProcessNs,
		Seconds:       float64(last.MonotonicNs-first.MonotonicNs) / 1e9,
		WarmupSeconds: b.pair.warmup(cell).Seconds(),
		Connect:       device.connect, FirstByte: device.firstByte, CleanConnect: clean.connect,
		CleanFirstByte: clean.firstByte,
		Fairness:       device.fairness, CleanFairness: clean.fairness, Memory: device.memory, Short: shortOf(device.shorts),
		CleanShort: shortOf(clean.shorts),
	}, nil
}

// cell starts the cell's traffic, warms up, calls warm, measures the windows that todo numbers and ends the traffic.
func (b *openBlock) cell(ctx context.Context, cell result.Cell, todo []int, warm func() error) error {
	device := b.pair.device
	text := fmt.Sprintf(
		"%s: %.0f Mbit/s %s", b.Name(b.Block), cell.Number(result.OfferedMbps), cell.Text(result.Direction))
	if warmup := b.pair.warmup(cell); warmup > b.Experiment.Warmup {
		text += fmt.Sprintf(", %s until each stream has sent a burst", warmup)
	}
	b.Status("%s", text)
	for _, l := range b.pair.labs() {
		l.shorts = nil
	}
	err := b.pair.begin(ctx, cell)
	if err == nil {
		device.pssMiB, err = device.PSSMiB(ctx)
	}
	if err == nil {
		err = warm()
	}
	for _, w := range todo {
		if err != nil {
			break
		}
		if err = b.trial(ctx, cell, w); err != nil {
			return fmt.Errorf("window %d: %w", w+1, b.pair.causeOf(errors.Join(err, b.pair.end(ctx))))
		}
	}
	return errors.Join(err, b.pair.end(ctx))
}

// conditions returns the conditions under which the block's windows are judged.
func (b *openBlock) conditions() conditions {
	e, labs := b.Experiment, b.pair.labs()
	return conditions{
		window: e.Window, sent: labs[len(labs)-1].Side.Traffic, aggregates: b.pair.device.Traits.Aggregates,
		routers: len(b.pair.device.Router.CPUs),
		speed:   e.Router.Speed, solo: b.pair.solo(), precedes: b.Precedes, failedProof: b.pair.device.failedProof,
	}
}

// trial measures window w, repeats it while it is rejected, and records every attempt.
func (b *openBlock) trial(ctx context.Context, cell result.Cell, w int) error {
	return b.MeasureQuietWindow(b.Block, cell, w, func(a runner.Attempt) (m runner.Measured, err error) {
		t := attempt{Trial: result.Trial{
			Cell: cell, AA: b.AA, Block: b.Index, Window: w, Attempt: a.Number, Sitting: a.Sitting, DUTLab: b.DUTLab,
			Start: a.Start, Elapsed: a.Elapsed,
		}}
		if t.DUT, t.Clean, err = b.pair.measure(ctx, cell, w+a.Number); err == nil {
			err = b.pair.running(ctx)
		}
		t.DUT.PSSMiB = b.pair.device.pssMiB
		if b.Experiment.Interleaved() {
			judgeAlone(&t, b.conditions(), b.DUT() == experiment.Clean)
		} else {
			judge(&t, b.conditions())
		}
		course := b.pair.courseOf(t.Trial)
		m.Write, m.Rejects = func(w *result.Writer) error {
			return errors.Join(w.AppendCourse(course), w.AppendTrial(t.record()))
		}, t.Rejects
		m.Noise = noiseOf(t).BeyondQuiet(t.DUT.Seconds, b.CPUs)
		return m, err
	})
}
