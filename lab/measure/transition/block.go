package transition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure { return runner.Measure{Block: carryOut} }

// openBlock is a block whose lab is open or is being built.
type openBlock struct {
	*runner.Session
	experiment.Block
	*lab
	setup time.Duration
	busy  bool          // background work takes a part of the gateways' CPUs
	lossy bool          // the last step lost too many probes
	left  []result.Cell // cells that the block left out
}

// carryOut measures all loads of a block in one lab. It returns a block record only if the block failed or if it left
// out loads.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	s.Status("%s: building the lab", s.Name(eb))
	b, start := &openBlock{Session: s, Block: eb}, time.Now()
	err := s.Labs(eb).Admitted(ctx, func(opened *bench.Bench) (err error) {
		if b.lab, err = openTaps(ctx, opened, s.Experiment); err != nil {
			return err
		}
		b.setup = time.Since(start)
		return b.measure(ctx)
	})
	if err == nil && b.left == nil {
		return nil, nil
	}
	return &result.Block{SetupSeconds: b.setup.Seconds(), LeftOut: b.left}, err
}

// measure starts the gateways' background work, if the block has any, and measures all cells. If a load loses too many
// probes, it leaves out higher loads.
func (b *openBlock) measure(ctx context.Context) error {
	for _, c := range b.probePaths() {
		if c.unknown != "" {
			b.Notice("%s: times at the taps inside the tunnel are not known: %s", b.Name(b.Block), c.unknown)
		}
	}
	if pct := b.Cell.Number(result.BackgroundPct); pct > 0 {
		how := burn.Program
		if b.Cell.Text(BackgroundKind) == BusyRealTime {
			how = burn.RealTime
		}
		// Both gateways have these CPUs.
		slow := agent.Slow{CPUs: b.Router.CPUs, Speed: 1 - pct/100, OwnCPUs: b.Placement.Beside(), How: how}
		if err := b.Router.Slow(ctx, slow); err != nil {
			return err
		}
		b.busy = true
	}
	limit := math.Inf(1) // the load at which too many probes were lost
	for _, cell := range b.Cells {
		mbps := cell.Number(result.OfferedMbps)
		if mbps > limit {
			b.left = append(b.left, cell)
			b.LeaveOut(b.Block, cell)
			continue
		}
		if err := b.cell(ctx, cell); err != nil {
			return fmt.Errorf("at %g Mbit/s: %w", mbps, err)
		}
		if b.lossy && b.Refused(b.Block, cell) {
			limit = mbps
		}
	}
	return nil
}

// cell measures the windows that a load still needs, under its background traffic.
func (b *openBlock) cell(ctx context.Context, cell result.Cell) error {
	todo := b.Todo(b.Block, cell)
	if len(todo) == 0 {
		return nil
	}
	mbps, e := cell.Number(result.OfferedMbps), b.Experiment
	if mbps > 0 {
		warmup := e.WarmupOf(mbps, result.Up, b.Side)
		most := warmup + time.Duration(len(todo)*e.MaxAttempts())*longestStep(e)
		if err := b.StartTraffic(ctx, result.Up, mbps, most); err != nil {
			return errors.Join(err, b.StopTraffic(ctx))
		}
		if err := bench.Sleep(ctx, warmup); err != nil {
			return err
		}
	}
	var err error
	for _, w := range todo {
		if err == nil {
			b.Status("%s: at %g Mbit/s, window %d", b.Name(b.Block), mbps, w+1)
			err = b.window(ctx, cell, w)
		}
	}
	if mbps > 0 && ctx.Err() == nil {
		err = errors.Join(err, b.StopTraffic(ctx))
	}
	return err
}

// longestStep returns the longest time that a step should take, also if its probes get lost.
func longestStep(e *experiment.Experiment) time.Duration {
	return 3*time.Duration(probes.Value(e)*probeGap.Value(e))*time.Microsecond + 15*time.Second
}

// window measures window w of a load, and again until a step is accepted or the attempts are used up.
func (b *openBlock) window(ctx context.Context, cell result.Cell, w int) error {
	return b.MeasureWindow(b.Block, cell, w, KindStep, func(a runner.Attempt) (result.Record, []string, error) {
		s := &Step{Cell: cell, Window: w, SetupSeconds: b.setup.Seconds()}
		rejects, err := b.step(ctx, s)
		s.Seconds = a.Took().Seconds()
		return s, rejects, err
	})
}

// snapshot has the values of all meters at one moment.
type snapshot struct {
	bench.Snapshot
	received agent.TrafficStats // of the server, if the load has background traffic
	burned   []burn.CPUTime     // CPU time of the gateways' background work
}

// read reads all meters. loaded means that the server receives background traffic.
func (b *openBlock) read(ctx context.Context, loaded bool) (r snapshot, err error) {
	if r.Snapshot, err = b.ReadMeters(ctx); err != nil {
		return r, err
	}
	if loaded {
		r.received, err = b.Server.TrafficStats(ctx)
	}
	if err == nil && b.busy {
		r.burned, err = b.Router.ReadSlow(ctx)
	}
	return r, err
}

// step sends both runs of probes, one after the other, and reads the meters before and after them. It fills the record,
// and returns the reasons to reject it.
func (b *openBlock) step(ctx context.Context, s *Step) (bench.Rejects, error) {
	loaded := s.Cell.Number(result.OfferedMbps) > 0
	before, err := b.read(ctx, loaded)
	if err != nil {
		return nil, err
	}
	faults, err := b.probe(ctx, s)
	if err != nil {
		return nil, err
	}
	after, err := b.read(ctx, loaded)
	if err != nil {
		return nil, err
	}
	w := b.Window(before.Snapshot, after.Snapshot, "")
	s.LoadSeconds, s.Machine, s.RouterShare = w.Seconds, w.Machine, w.Share
	s.fill(before, after)
	if loaded && b.Experiment.Traffic.Protocol == experiment.ProtocolTCP {
		s.addBackground(before.Snapshot, after.Snapshot)
	}
	return b.Judge(ctx, bench.RejectFor(faults...), s.judgeBusy(), b.Proof(ctx), w.Steal, w.Speed)
}

// probe sends the probes of both paths, and returns the reasons to reject the step. It sets lossy.
func (b *openBlock) probe(ctx context.Context, s *Step) (rejects bench.Rejects, err error) {
	b.lossy = false
	for _, p := range []struct {
		path *probePath
		ends *Ends
	}{{b.hosts, &s.Hosts}, {b.gateways, &s.Gateways}} {
		o, err := b.run(ctx, p.path)
		switch {
		case errors.Is(err, errProbes):
			rejects.Add("%v", err)
			b.lossy = true
			continue
		case err != nil:
			return nil, err
		}
		step := time.Duration(o.sent.ClockStepNs)
		rejects.AddIf(step != 0, "machine: its clock was set by %s meanwhile", step)
		*p.ends = p.path.endsRecord(o, p.path == b.gateways)
		b.lossy = rejectIncomplete(&rejects, p.ends.Counts) || b.lossy
	}
	return rejects, nil
}

// leastBusy is a share of the CPU that background work asks for. That work and the gateways together must have used at
// least so much: if they used less, a program outside the lab had the CPU.
const leastBusy = 0.9

// judgeBusy returns the rule that rejects a step in which a program outside the lab had the gateways' CPU.
func (s *Step) judgeBusy() bench.Rule {
	asked := s.Cell.Number(result.BackgroundPct) / 100
	ns := s.EnterCPU.NAPINs + s.EnterCPU.ProcessNs + s.LeaveCPU.NAPINs + s.LeaveCPU.ProcessNs
	gateways := float64(ns) / 1e9 / max(s.LoadSeconds, 1e-9)
	return bench.RejectIf(s.Background+gateways < leastBusy*asked,
		"machine: other work had %.0f %% of the gateways' CPU and the gateways %.0f %%, of %.0f %% that it asks for: "+
			"another program had the rest", 100*s.Background, 100*gateways, 100*asked)
}

// leastKept is the least share of the probes that must have times.
const leastKept = 0.5

// rejectIncomplete rejects a run of probes if too few of them have times, and reports whether it did.
func rejectIncomplete(r *bench.Rejects, n transition.Counts) bool {
	kept := n.Sent - n.Resent - n.Lost
	lossy := float64(kept) < leastKept*float64(n.Sent)
	r.AddIf(lossy, "%d of %d probes have times: %d were sent again, %d lost: packets get lost at this load",
		kept, n.Sent, n.Resent, n.Lost)
	return lossy
}

// addBackground adds the TCP segments that the background's hosts sent, without the probes, which leave from the same
// hosts. The kernel does not count a segment that it sends again (tcp_output.c, __tcp_transmit_skb).
func (s *Step) addBackground(before, after bench.Snapshot) {
	var sent meter.SNMP
	for i, c := range after.Clients {
		sent = sent.Add(c.Meter.SNMP.Sub(before.Clients[i].Meter.SNMP))
	}
	s.Segments = max(0, sent.TCPOutSegs-int64(s.Hosts.Counts.Sent))
	s.Retransmits = max(0, sent.TCPRetrans-int64(s.Hosts.Resent))
}

// fill adds the background that arrived, the gateways' CPU times and waits, and the CPU of the background work.
func (s *Step) fill(before, after snapshot) {
	a, b := before.received, after.received
	s.DeliveredMbps = bench.Mbps(b.ReceivedBytes-a.ReceivedBytes, float64(b.MonotonicNs-a.MonotonicNs)/1e9)
	used := bench.UsageOfEach(before.Routers, after.Routers)
	for i, cpu := range []*CPU{&s.EnterCPU, &s.LeaveCPU} {
		a, b, u := before.Routers[i], after.Routers[i], used[i]
		cpu.NAPINs, cpu.ProcessNs = u.NAPINs, u.ProcessNs
		for name, now := range b.NAPI {
			cpu.NAPIWaitNs += now.WaitNs - a.NAPI[name].WaitNs
		}
		cpu.ProcessWaitNs = u.WaitNs - cpu.NAPIWaitNs
	}
	for i := range after.burned {
		s.Background += burn.Share(before.burned[i], after.burned[i])
	}
	s.Background /= max(1, float64(len(after.burned)))
}
