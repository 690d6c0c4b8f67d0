package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// block runs one block of the plan: both labs are built, the device goes into
// one of them, every cell's traffic is started and its windows are measured.
// Trials are on the disk as soon as they are judged; the block's own record
// follows at the end, also when the block failed.
func (r *run) block(ctx context.Context, b experiment.Block) error {
	start := time.Now()
	measures := r.unsettled(b) > 0 // otherwise the labs are built for a profile alone
	rec := result.Block{
		DUT: b.DUT, AA: b.AA, Clients: b.Clients, Direction: b.Direction, Profile: b.Profile,
		Block: b.Index, Sitting: r.sitting, DUTLab: b.DUTLab, Start: start.UTC(),
	}
	r.status("%s: building the labs, %d clients", blockName(b), b.Clients)
	empty, err := meter.ReadMemory()
	if err != nil {
		return err
	}
	device, clean, err := r.openPair(ctx, b)
	if err == nil {
		admitted(&rec, device, clean, empty)
		err = r.measured(ctx, b, device, clean, &rec)
		if ctx.Err() == nil { // after Ctrl-C nobody waits for politeness: the hosts just end
			// What goes wrong now costs no trial: it is noted and the block stands. After a
			// block that failed it says nothing new.
			if left := testbed.Together(func() error { return device.leave(ctx) }, func() error { return clean.leave(ctx) }); left != nil && err == nil {
				rec.Error = left.Error()
				r.notice("%s: %v", blockName(b), left)
			}
		}
		err = errors.Join(err, testbed.Together(device.close, clean.close))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // an interrupted block is measured again by a resume: no record
	}
	if !measures && err == nil {
		return nil
	}
	rec.Seconds = time.Since(start).Seconds()
	broke, isLimit := r.limitOf(b, err)
	switch {
	case isLimit:
		rec.Broke, err = broke, nil
		r.broke[b.DUT] = b.Clients
		r.notice("%s, %d clients: it takes fewer: %s", b.DUT, b.Clients, broke)
	case err != nil:
		rec.Error = err.Error()
	default:
		r.took[b.DUT] = max(r.took[b.DUT], b.Clients)
	}
	if werr := r.writer.AppendBlock(rec); werr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errStorage, werr))
	}
	return err
}

// admitted records how the sides' clients came in. Empty is the machine's memory before.
func admitted(rec *result.Block, device, clean *side, empty meter.Memory) {
	device.empty = empty.Taken
	rec.SetupSeconds, rec.LeaseSeconds, rec.LoginSeconds = device.setup.Seconds(), device.lease.Seconds(), device.login.Seconds()
	rec.LoginMs, rec.HousekeepingSeconds = device.loginMs, device.traits.Housekeeping.Seconds()
	rec.Addresses, rec.CleanAddresses, rec.Leased, rec.LoggedIn = device.addresses(), clean.addresses(), len(device.clients), device.loggedIn
	debug.FreeOSMemory() // of thousands of log-ins; not while their traffic is measured
}

func blockName(b experiment.Block) string {
	name := b.DUT
	if b.AA {
		name = "clean against clean"
	}
	if b.Direction == "" { // a storm: nothing else of the plan tells one from another
		name += fmt.Sprintf(", %d clients", b.Clients)
	}
	return fmt.Sprintf("%s, block %d", name, b.Index+1)
}

// openPair builds both sides of the block at once.
func (r *run) openPair(ctx context.Context, b experiment.Block) (device, clean *side, err error) {
	more := r.cfg.Experiment.Client.Guests()
	d, err := dut.New(b.DUT, b.Clients+more, r.cfg.Experiment)
	if err != nil {
		return nil, nil, err
	}
	shared := d.Traits() // its link settings hold on both sides of the pair
	with, without := r.cfg.Experiment.Sides(b)
	most := max(with.Clients, without.Clients)
	room := most + more // networks and queues are alike, whoever is in them
	told := tellsRouter(with, without)
	open := func(lab string, d dut.DUT, has experiment.Side, into **side) func() error {
		return func() (err error) {
			*into, err = openSide(ctx, sideConfig{
				backend: r.backend, lab: lab, device: d, has: has, guests: more, most: most, told: told, static: hasStatic(has, told, d.Traits()),
				topology: testbed.Spec{
					Aggregate: b.Profile == result.Bulk, LAN: d.Traits().LAN, Clients: room, ClientHosts: r.cfg.Experiment.Client.Hosts,
					NoAggregation: shared.NoAggregation, NoTxChecksum: shared.NoTxChecksum,
				}.Topology(),
			})
			return err
		}
	}
	other := map[string]string{"a": "b", "b": "a"}[b.DUTLab]
	err = testbed.Together(open(b.DUTLab, d, with, &device), open(other, dut.NewClean(), without, &clean))
	if err == nil {
		return device, clean, nil
	}
	for _, s := range []*side{device, clean} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return nil, nil, err
}

// measured measures the block, with guests where the experiment has them.
func (r *run) measured(ctx context.Context, b experiment.Block, device, clean *side, rec *result.Block) error {
	cells := func() error { return r.cells(ctx, b, device, clean, rec) }
	if rate := r.cfg.Experiment.Client.Churn; rate > 0 {
		return underChurn(ctx, rate, device, clean, rec, cells)
	}
	return cells()
}

// cells measures every cell of the block that still lacks windows. The device's
// processes are metered over each cell's whole stretch as well: daemons that
// wake rarely are seen there and not in the windows.
func (r *run) cells(ctx context.Context, b experiment.Block, device, clean *side, rec *result.Block) error {
	var seconds float64
	var ns int64
	for _, cell := range b.Cells {
		if todo := r.todo(b, cell); len(todo) > 0 {
			s, err := r.stretch(ctx, b, cell, todo, device, clean)
			if err != nil {
				return err
			}
			rec.Stretches = append(rec.Stretches, s)
			seconds, ns = seconds+s.Seconds, ns+s.ProcessNs
			rec.DaemonCore = float64(ns) / 1e9 / seconds
		}
		if err := r.profileCell(ctx, b, cell, device, clean); err != nil {
			return err
		}
	}
	return nil
}

// todo lists the windows of a block's cell that are not settled.
func (r *run) todo(b experiment.Block, cell result.Cell) (windows []int) {
	for w := range r.cfg.Experiment.Windows {
		if !r.done[windowKey{cell: cell, aa: b.AA, block: b.Index, window: w}] {
			windows = append(windows, w)
		}
	}
	return windows
}

// stretch measures a cell and what the device's processes used meanwhile.
func (r *run) stretch(ctx context.Context, b experiment.Block, cell result.Cell, todo []int, device, clean *side) (s result.Stretch, err error) {
	first, err := device.lab.Router.Sample(ctx)
	if err != nil {
		return s, err
	}
	if err := r.cell(ctx, b, cell, todo, device, clean); err != nil {
		return s, fmt.Errorf("at %.0f Mbit/s: %w", cell.OfferedMbps, err)
	}
	last, err := device.lab.Router.Sample(ctx)
	if err != nil {
		return s, err
	}
	m := builder{Measurement: result.Measurement{ThreadNs: map[string]int64{}}}
	m.addProcesses(first, last)
	return result.Stretch{
		OfferedMbps: cell.OfferedMbps, ProcessNs: m.ProcessNs,
		Seconds:       float64(last.MonotonicNs-first.MonotonicNs) / 1e9,
		WarmupSeconds: r.cfg.Experiment.WarmupOf(cell.OfferedMbps, cell.Direction, device.has, clean.has).Seconds(),
		Connect:       device.connect, FirstByte: device.firstByte, CleanConnect: clean.connect, CleanFirstByte: clean.firstByte,
		Fairness: device.fairness, CleanFairness: clean.fairness, Memory: device.memory, Short: shortOf(device.shorts), CleanShort: shortOf(clean.shorts),
	}, nil
}

// cell starts the cell's traffic, warms up and measures the windows in todo.
func (r *run) cell(ctx context.Context, b experiment.Block, cell result.Cell, todo []int, device, clean *side) error {
	e := r.cfg.Experiment
	text := fmt.Sprintf("%s: %.0f Mbit/s %s", blockName(b), cell.OfferedMbps, cell.Direction)
	if warmup := e.WarmupOf(cell.OfferedMbps, cell.Direction, device.has, clean.has); warmup > e.Warmup {
		text += fmt.Sprintf(", %s until each stream has sent a burst", warmup)
	}
	r.status("%s", text)
	device.shorts, clean.shorts = nil, nil
	m := newMeasurer(e, device, clean)
	if err := m.begin(ctx, cell); err != nil {
		return errors.Join(err, m.end(ctx))
	}
	var err error
	if device.pssMiB, err = device.lab.Router.PSSMiB(ctx); err != nil {
		return errors.Join(err, m.end(ctx))
	}
	for _, w := range todo {
		if err := r.trial(ctx, b, cell, w, m, device); err != nil {
			return fmt.Errorf("window %d: %w", w+1, causeOf(errors.Join(err, m.end(ctx)), device, clean))
		}
	}
	return m.end(ctx)
}

// trial measures window w, again when it is rejected, and records every attempt.
// Attempts of earlier sittings count: the redos are the window's, not the sitting's.
func (r *run) trial(ctx context.Context, b experiment.Block, cell result.Cell, w int, m measurer, device *side) error {
	e := r.cfg.Experiment
	_, clean := e.Sides(b)
	for attempt := r.tried[windowKey{cell: cell, aa: b.AA, block: b.Index, window: w}]; ; attempt++ {
		t := result.Trial{
			Cell: cell, AA: b.AA, Block: b.Index, Window: w, Attempt: attempt, Sitting: r.sitting,
			DUTLab: b.DUTLab, Start: time.Now().UTC(),
		}
		var err error
		if t.DUT, t.Clean, err = m.measure(ctx, cell, w+attempt); err != nil {
			return err
		}
		if err := m.deaths(ctx); err != nil {
			return err
		}
		t.DUT.PSSMiB = device.pssMiB
		judge(&t, e.Window, clean.Traffic, device.traits.Gathers)
		if err := r.writer.AppendTrial(t); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
		if r.count(trialKey(t), attempt, t.Accepted); t.Accepted || attempt >= e.Redo {
			return nil
		}
		r.status("%s: measuring again: %s", blockName(b), t.Rejects[0])
	}
}
