package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// wantsProfile reports whether the run wants a profile of a cell that none of its blocks has recorded yet.
func (r *run) wantsProfile(s *runner.Session, b experiment.Block, cell result.Cell) bool {
	return s.Experiment.ProfileWindow > 0 && !b.AA && !r.noProfile[cell] && !profile.Recorded(s.Dir, cell)
}

// NoProfile begins a note of a run on a device whose cell has no profile; the device's name and the reason follow.
const NoProfile = "No profile of "

// profileCell records the cell's profile in a window of its own, with the cell's traffic started anew. It does nothing
// if the run has that profile already. A profile that fails is noted, and the block goes on; the only error is the end
// of ctx.
func (b *openBlock) profileCell(ctx context.Context, cell result.Cell) error {
	if !b.run.wantsProfile(b.Session, b.Block, cell) {
		return nil
	}
	b.Status("%s: profile at %.0f Mbit/s %s", b.Name(b.Block), cell.Number(result.OfferedMbps),
		cell.Text(result.Direction))
	err := b.profile(ctx, cell)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		b.noteNoProfile(cell, err)
	} else {
		b.Unnote(noProfileOf(cell))
	}
	return nil
}

// noteNoProfile notes why there is no profile of a cell, in place of what earlier sittings noted.
func (b *openBlock) noteNoProfile(cell result.Cell, err error) {
	b.run.noProfile[cell] = true
	beginning := noProfileOf(cell)
	b.Unnote(beginning)
	b.Notice("%s%v", beginning, err)
	b.Note(beginning + err.Error())
}

// noProfileOf begins the note of a cell without a profile.
func noProfileOf(cell result.Cell) string {
	return fmt.Sprintf(NoProfile+"%s at %g Mbit/s %s with %s, %s: ", cell.Text(result.DUT), cell.Number(
		result.OfferedMbps), cell.Text(result.Direction),
		words.Counted(cell.Int(result.Clients), "client"), cell.Text(result.Profile))
}

// profile runs perf over one window of both sides, on the routers' CPUs: their threads and devices are bound to these.
// perf's samples are read when no load runs any more.
func (b *openBlock) profile(ctx context.Context, cell result.Cell) error {
	ask, err := b.perf(ctx)
	if err != nil {
		return err
	}
	p := profile.Profile{
		Cell: cell, Block: b.Index, DUTLab: b.DUTLab, Start: time.Now().UTC(), FrequencyHz: profile.FrequencyHz}
	into := map[*lab]*profile.Side{b.pair.device: &p.DUT, b.pair.clean: &p.Clean}
	var reads []func() error
	var recordings []*profile.Recording
	var shares []func()
	window := func(labs ...*lab) error {
		perf, err := b.Machine.StartPerf(ctx, ask)
		if err != nil {
			return err
		}
		p.UserStacks, p.Perf = perf.UserStacks, perf.Version
		before, after, err := bench.ReadTwice(ctx, b.Experiment.ProfileWindow, benchesOf(labs)...)
		reads = append(reads, func() error {
			recording, err := b.Machine.ReadPerf(ctx, perf.Recording)
			recordings = append(recordings, recording)
			shares = append(shares, func() {
				for i, l := range labs {
					*into[l] = recording.Side(l.accounts(before[i], after[i]))
				}
			})
			return err
		})
		return errors.Join(err, b.Machine.StopPerf(ctx))
	}
	if err = b.pair.begin(ctx, cell); err == nil {
		err = b.pair.whileLoaded(ctx, cell, 0, window)
	}
	err = errors.Join(err, b.pair.end(ctx))
	for _, read := range reads {
		if err == nil {
			err = read()
		}
	}
	if err != nil {
		return err
	}
	profile.Distinguish(recordings...)
	for _, share := range shares {
		share()
	}
	return b.writeProfile(p)
}

// perf returns what perf has to record: the routers' CPUs, and the device's programs.
func (b *openBlock) perf(ctx context.Context) (agent.Perf, error) {
	ask := agent.Perf{CPUs: b.Placement.Router, OwnCPUs: b.Placement.Beside()}
	first, err := b.pair.device.Router.Sample(ctx)
	for _, p := range first.Processes {
		ask.Programs = append(ask.Programs, p.PID)
	}
	return ask, err
}

// writeProfile writes a profile. It returns an error if the profile has no use, or if the clean router delivered too
// little while perf ran.
func (b *openBlock) writeProfile(p profile.Profile) error {
	if err := p.Useless(); err != nil {
		return err
	}
	offered := p.Cell.Number(result.OfferedMbps)
	if got := p.Clean.DeliveredMbps; got < minProfiled*offered {
		return fmt.Errorf(
			"the clean router delivered %.1f of %.0f Mbit/s while perf ran: no profile of this load", got, offered)
	}
	return profile.Write(b.Dir, p)
}

// accounts returns the exact CPU time of the router's threads and processes between two snapshots.
func (s *lab) accounts(a, b bench.Snapshot) profile.Router {
	m := s.measurement(a, b)
	out := profile.Router{
		FromNs: a.Router.MonotonicNs, ToNs: b.Router.MonotonicNs, Seconds: m.Seconds, Packets: m.Packets,
		DeliveredMbps: m.DeliveredMbps,
		Threads:       map[int]string{}, Processes: map[int]string{}, Ns: map[string]int64{},
	}
	for ifname, t := range b.Router.NAPI {
		name := profile.AccountLAN
		if ifname == s.Lab.Port(topology.PortWAN) {
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
