package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// Lacks reports whether the run wants a profile of a cell that none of its blocks has recorded yet.
func (r *run) Lacks(s *runner.Session, b experiment.Block, cell result.Cell) bool {
	return s.Experiment.ProfileWindow > 0 && !b.AA && !r.unprofiled[cell] && !profile.Recorded(s.Dir, cell)
}

// profileCell records the cell's profile in a window of its own, with the cell's
// traffic started anew, unless there is one. A profile that fails is noted and
// costs nothing else; the only error is the end of ctx.
func (b *openBlock) profileCell(ctx context.Context, cell result.Cell) error {
	if !b.run.Lacks(b.Session, b.Block, cell) {
		return nil
	}
	b.Status("%s: profile at %.0f Mbit/s %s", b.Name(b.Block), cell.Number(result.OfferedMbps), cell.Text(result.Direction))
	err := b.profile(ctx, cell)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		b.run.unprofiled[cell] = true
		note := fmt.Sprintf("No profile of %s at %g Mbit/s %s with %d clients, %s: %v", cell.Text(result.DUT), cell.Number(result.OfferedMbps), cell.Text(result.Direction), cell.Int(result.Clients), cell.Text(result.Profile), err)
		b.Notice("%s", note)
		b.Note(note)
	}
	return nil
}

// recorded is what perf and the meters saw of some sides in one window.
type recorded struct {
	recording     int // of the machine's agent
	labs          []*lab
	before, after []side.Reading
}

func (b *openBlock) profile(ctx context.Context, cell result.Cell) error {
	device, clean := b.pair.device, b.pair.clean
	first, err := device.Router.Sample(ctx)
	if err != nil {
		return err
	}
	var pids []int
	for _, p := range first.Processes {
		pids = append(pids, p.PID)
	}
	p := profile.Profile{
		Cell: cell, Block: b.Index, DUTLab: b.DUTLab, Start: time.Now().UTC(),
		FrequencyHz: profile.FrequencyHz,
	}
	var takes []recorded
	err = b.pair.begin(ctx, cell)
	if err == nil {
		err = b.pair.loaded(ctx, cell, 0, func(labs ...*lab) error {
			takes = append(takes, recorded{labs: labs})
			return b.sample(ctx, pids, &p, &takes[len(takes)-1])
		})
	}
	if err := errors.Join(err, b.pair.end(ctx)); err != nil {
		return err
	}
	for _, t := range takes {
		if err := t.read(ctx, b.Machine, map[*lab]*profile.Side{device: &p.DUT, clean: &p.Clean}); err != nil {
			return err
		}
	}
	if got := p.Clean.DeliveredMbps; got < minProfiled*cell.Number(result.OfferedMbps) {
		return fmt.Errorf("the clean router delivered %.1f of %.0f Mbit/s while perf ran: no profile of this load", got, cell.Number(result.OfferedMbps))
	}
	return profile.Write(b.Dir, p)
}

// sample runs perf over one window of the sides, on the CPUs of the routers, to
// which their threads and devices are bound. Programs are those of the device.
func (b *openBlock) sample(ctx context.Context, programs []int, p *profile.Profile, t *recorded) error {
	perf, err := b.Machine.StartPerf(ctx, agent.Perf{Programs: programs, CPUs: b.Placement.Router, Own: b.Placement.Endpoints})
	if err != nil {
		return err
	}
	t.recording, p.UserStacks, p.Perf = perf.Recording, perf.UserStacks, perf.Version
	t.before, t.after, err = side.ReadTwice(ctx, b.Experiment.ProfileWindow, sides(t.labs)...)
	return errors.Join(err, b.Machine.StopPerf(ctx))
}

// read turns perf's samples into the profile of each side.
func (t recorded) read(ctx context.Context, machine *testbed.Host, into map[*lab]*profile.Side) error {
	recording, err := machine.ReadPerf(ctx, t.recording)
	if err != nil {
		return err
	}
	for i, s := range t.labs {
		*into[s] = recording.Side(s.accounts(t.before[i], t.after[i]))
	}
	return nil
}

// accounts says whose time of the side's router is known exactly, and how much
// it was between two readings.
func (s *lab) accounts(a, b side.Reading) profile.Router {
	m := s.measurement(a, b)
	out := profile.Router{
		FromNs: a.Router.MonotonicNs, ToNs: b.Router.MonotonicNs,
		Seconds: m.Seconds, Packets: m.Packets, DeliveredMbps: m.DeliveredMbps,
		Threads: map[int]string{}, Processes: map[int]string{},
		Ns: map[string]int64{},
	}
	for ifname, t := range b.Router.NAPI {
		name := profile.AccountLAN
		if ifname == s.Lab.Port(testbed.PortWAN) {
			name = profile.AccountWAN
		}
		out.Threads[t.TID] = name
		out.Ns[name] = m.ThreadNs["napi/"+ifname]
	}
	for _, p := range b.Router.Processes {
		out.Processes[p.PID] = p.Name
		out.Ns[p.Name] = m.ThreadNs[p.Name]
	}
	return out
}
