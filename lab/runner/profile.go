package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// lacksProfile reports whether the run wants a profile of a cell that none of its
// blocks has recorded yet.
func (r *run) lacksProfile(b experiment.Block, cell result.Cell) bool {
	return r.cfg.Experiment.ProfileWindow > 0 && !b.AA && !r.unprofiled[cell] && !profile.Recorded(r.cfg.Dir, cell)
}

// profileCell records the cell's profile in a window of its own, with the cell's
// traffic started anew, unless there is one. A profile that fails is noted and
// costs nothing else; the only error is the end of ctx.
func (r *run) profileCell(ctx context.Context, b experiment.Block, cell result.Cell, device, clean *side) error {
	if !r.lacksProfile(b, cell) {
		return nil
	}
	r.status("%s: profile at %.0f Mbit/s %s", blockName(b), cell.Number(result.OfferedMbps), cell.Text(result.Direction))
	err := r.record(ctx, b, cell, device, clean)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.unprofiled[cell] = true
		note := fmt.Sprintf("No profile of %s at %g Mbit/s %s with %d clients, %s: %v", cell.Text(result.DUT), cell.Number(result.OfferedMbps), cell.Text(result.Direction), cell.Int(result.Clients), cell.Text(result.Profile), err)
		r.notice("%s", note)
		r.env.Notes = append(r.env.Notes, note)
	}
	return nil
}

// recorded is what perf and the meters saw of some sides in one window.
type recorded struct {
	data          string // perf's file
	sides         []*side
	before, after []reading
}

func (r *run) record(ctx context.Context, b experiment.Block, cell result.Cell, device, clean *side) error {
	if err := profile.Available(); err != nil {
		return err
	}
	// perf's data is tens of megabytes and of no use once read. What a killed run
	// left of it goes with the next.
	dir := filepath.Join(r.cfg.Dir, "logs", "perf")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("making a folder for perf's data: %w", err)
	}
	defer os.RemoveAll(dir)
	first, err := device.lab.Router.Sample(ctx)
	if err != nil {
		return err
	}
	var pids []int
	for _, p := range first.Processes {
		pids = append(pids, p.PID)
	}
	p := profile.Profile{
		Cell: cell, Block: b.Index, DUTLab: b.DUTLab, Start: time.Now().UTC(),
		FrequencyHz: profile.FrequencyHz, UserStacks: profile.Unwind(pids), Perf: profile.PerfVersion(ctx),
	}
	var takes []recorded
	m := newMeasurer(r.cfg.Experiment, device, clean)
	err = m.begin(ctx, cell)
	if err == nil {
		err = m.loaded(ctx, cell, func(sides ...*side) error {
			t := recorded{data: filepath.Join(dir, fmt.Sprintf("perf.data.%d", len(takes))), sides: sides}
			takes = append(takes, t)
			return r.sample(ctx, p.UserStacks, &takes[len(takes)-1])
		})
	}
	if err := errors.Join(err, m.end(ctx)); err != nil {
		return err
	}
	for _, t := range takes {
		if err := t.read(ctx, map[*side]*profile.Side{device: &p.DUT, clean: &p.Clean}); err != nil {
			return err
		}
	}
	if got := p.Clean.DeliveredMbps; got < minProfiled*cell.Number(result.OfferedMbps) {
		return fmt.Errorf("the clean router delivered %.1f of %.0f Mbit/s while perf ran: no profile of this load", got, cell.Number(result.OfferedMbps))
	}
	return profile.Write(r.cfg.Dir, p)
}

// sample runs perf over one window of the sides, on the CPUs of the routers, to
// which their threads and devices are bound.
func (r *run) sample(ctx context.Context, unwind string, t *recorded) error {
	placement, err := testbed.DefaultPlacement()
	if err != nil {
		return err
	}
	perf, err := profile.Start(ctx, t.data, unwind, placement.Router, placement.Endpoints)
	if err != nil {
		return err
	}
	t.before, t.after, err = readTwice(ctx, r.cfg.Experiment.ProfileWindow, t.sides)
	return errors.Join(err, perf.Stop(ctx))
}

// read turns perf's data into the profile of each side.
func (t recorded) read(ctx context.Context, into map[*side]*profile.Side) error {
	recording, err := profile.Read(ctx, t.data)
	if err != nil {
		return err
	}
	for i, s := range t.sides {
		*into[s] = recording.Side(s.accounts(t.before[i], t.after[i]))
	}
	return nil
}

// accounts says whose time of the side's router is known exactly, and how much
// it was between two readings.
func (s *side) accounts(a, b reading) profile.Router {
	m := s.measurement(a, b)
	out := profile.Router{
		FromNs: a.router.MonotonicNs, ToNs: b.router.MonotonicNs,
		Seconds: m.Seconds, Packets: m.Packets, DeliveredMbps: m.DeliveredMbps,
		Threads: map[int]string{}, Processes: map[int]string{},
		Ns: map[string]int64{},
	}
	for ifname, t := range b.router.NAPI {
		name := profile.AccountLAN
		if ifname == s.lab.WANIf {
			name = profile.AccountWAN
		}
		out.Threads[t.TID] = name
		out.Ns[name] = m.ThreadNs["napi/"+ifname]
	}
	for _, p := range b.router.Processes {
		out.Processes[p.PID] = p.Name
		out.Ns[p.Name] = m.ThreadNs[p.Name]
	}
	return out
}
