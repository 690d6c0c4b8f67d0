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
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

type run struct{}

var _ runner.Measure = run{}

// Run returns what measures the blocks of one run.
func (Measure) Run() runner.Measure { return run{} }

// Lacks is false: a cell has nothing besides its steps.
func (run) Lacks(*runner.Session, experiment.Block, result.Cell) bool { return false }

// Fits is nil: probes take every tunnel.
func (run) Fits(*experiment.Experiment, string, dut.Traits) error { return nil }

// openBlock is a block whose lab stands.
type openBlock struct {
	*runner.Session
	experiment.Block
	*lab
	setup time.Duration
	busy  bool // the gateways have other work
	lossy bool // the last step lost too many probes
	left  []result.Cell
}

// Block measures all loads in one lab.
func (run) Block(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	s.Status("%s: building the lab", s.Name(eb))
	start := time.Now()
	opened, err := s.Labs(eb).OpenAdmitted(ctx)
	if err != nil {
		return nil, err
	}
	b := &openBlock{Session: s, Block: eb}
	b.lab, err = prepare(ctx, opened, s.Experiment)
	if err == nil {
		b.setup = time.Since(start)
		for _, c := range b.courses() {
			if c.unknown != "" {
				s.Notice("%s: times at the taps inside the tunnel are not known: %s", s.Name(eb), c.unknown)
			}
		}
		err = b.measure(ctx)
	}
	err = bench.CauseOf(err, opened)
	if err = bench.End(ctx, err, func(left error) { s.Left(eb, left) }, opened); err == nil && b.left == nil {
		return nil, nil
	}
	return &result.Block{SetupSeconds: b.setup.Seconds(), LeftOut: b.left}, err
}

// measure keeps the gateways busy where that is asked for, and measures all cells.
func (b *openBlock) measure(ctx context.Context) error {
	if pct := b.Cell.Number(result.BackgroundPct); pct > 0 {
		how := burn.Program
		if b.Cell.Text(result.BackgroundKind) == BusyRealTime {
			how = burn.RealTime
		}
		// both gateways have these CPUs
		slow := agent.Slow{CPUs: b.Router.CPUs, Speed: 1 - pct/100, Own: b.Placement.Endpoints, How: how}
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

// cell measures the windows of a load that are not settled.
func (b *openBlock) cell(ctx context.Context, cell result.Cell) error {
	todo := b.Todo(b.Block, cell)
	if len(todo) == 0 {
		return nil
	}
	mbps := cell.Number(result.OfferedMbps)
	if mbps > 0 {
		warmup := b.Experiment.WarmupOf(mbps, result.Up, b.Has)
		most := warmup + time.Duration(len(todo)*b.Experiment.MostAttempts())*longestStep(b.Experiment)
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

// longestStep is the most time that a step should take, with probes that find no way.
func longestStep(e *experiment.Experiment) time.Duration {
	return 3*time.Duration(probes.Of(e)*probeGap.Of(e))*time.Microsecond + 15*time.Second
}

// window measures a load until it is accepted, or was tried often enough.
func (b *openBlock) window(ctx context.Context, cell result.Cell, w int) error {
	return b.Settle(b.Block, cell, w, func(a runner.Attempt) (func(*result.Writer) error, []string, error) {
		s := &Step{Head: a.Head(b.Block), Cell: cell, Window: w, SetupSeconds: b.setup.Seconds()}
		rejects, err := b.step(ctx, s)
		s.Seconds = a.Took().Seconds()
		s.Rejects, s.Accepted = rejects, len(rejects) == 0
		return func(w *result.Writer) error { return w.Append(KindStep, s) }, rejects, err
	})
}

// reading is what the meters say at one moment.
type reading struct {
	gateways []meter.Sample
	senders  meter.SNMP         // of the hosts that send the background, under traffic
	received agent.TrafficStats // of the server, under traffic
	burned   []burn.Reading     // of the gateways' other work
	slow     []burn.Reading     // where the gateways' CPUs are slowed down
}

func (b *openBlock) read(ctx context.Context, traffic bool) (r reading, err error) {
	if r.gateways, err = b.SampleRouters(ctx); err != nil {
		return r, fmt.Errorf("reading the gateways' meters: %w", err)
	}
	if traffic {
		if r.senders, err = b.sent(ctx); err == nil {
			r.received, err = b.Server.TrafficStats(ctx)
		}
	}
	if err == nil && b.busy {
		r.burned, err = b.Router.ReadSlow(ctx)
	}
	if err == nil && b.Experiment.Router.Speed > 0 {
		r.slow, err = b.Machine.ReadSlow(ctx)
	}
	return r, err
}

// sent sums what TCP has sent on the hosts that send the background.
func (b *openBlock) sent(ctx context.Context) (sum meter.SNMP, err error) {
	each, err := bench.Each(b.Hosts, func(_ int, h bench.ClientHost) (meter.Sample, error) { return h.Sample(ctx) })
	for _, s := range each {
		sum = sum.Add(s.SNMP)
	}
	return sum, err
}

// step sends both runs of probes, one after the other, and reads the meters around them.
func (b *openBlock) step(ctx context.Context, s *Step) (rejects bench.Rejects, err error) {
	loaded := s.Cell.Number(result.OfferedMbps) > 0
	before, err := b.read(ctx, loaded)
	if err != nil {
		return nil, err
	}
	b.lossy = false
	for _, at := range []struct {
		course *course
		ends   *Ends
	}{{b.hosts, &s.Hosts}, {b.gateways, &s.Gateways}} {
		o, err := b.run(ctx, at.course)
		switch {
		case errors.Is(err, errProbes):
			rejects.Add("%v", err)
			b.lossy = true
			continue
		case err != nil:
			return nil, err
		}
		rejects.If(o.sent.ClockStepNs != 0, "machine: its clock was set by %s meanwhile", time.Duration(o.sent.ClockStepNs))
		*at.ends = at.course.ends(o, at.course == b.gateways)
		b.lossy = few(&rejects, at.ends.Counts) || b.lossy
	}
	after, err := b.read(ctx, loaded)
	if err != nil {
		return nil, err
	}
	ended, err := b.Ended(ctx)
	if err == nil {
		err = ended.Err()
	}
	if err != nil {
		return nil, err
	}
	s.fill(before, after)
	if loaded && b.Experiment.Traffic.Protocol == experiment.ProtocolTCP {
		s.addBackground(after.senders.Sub(before.senders))
	}
	s.judgeBusy(&rejects)
	if err := rejects.Prove(ctx, b.Bench); err != nil {
		return nil, err
	}
	rejects.Steal(s.Machine, s.LoadSeconds, b.CPUs, "")
	if speed := b.Experiment.Router.Speed; speed > 0 {
		s.RouterShare = bench.RouterShare(bench.Reading{Slow: before.slow}, bench.Reading{Slow: after.slow})
		rejects.Speed(s.RouterShare, speed, "")
	}
	return rejects, nil
}

// leastBusy is the share of what other work is to have of the gateways' CPU, which it and the gateways must have
// together: else a program that is not of the lab had the CPU.
const leastBusy = 0.9

func (s *Step) judgeBusy(r *bench.Rejects) {
	asked := s.Cell.Number(result.BackgroundPct) / 100
	own := float64(s.EnterCPU.NAPINs+s.EnterCPU.ProcessNs+s.LeaveCPU.NAPINs+s.LeaveCPU.ProcessNs) / 1e9 / max(
		s.LoadSeconds, 1e-9)
	r.If(s.Background+own < leastBusy*asked,
		"machine: other work had %.0f %% of the gateways' CPU and the gateways %.0f %%, of %.0f %% that it asks for: "+
			"another program had the rest",
		100*s.Background, 100*own, 100*asked)
}

// leastKept is the share of the probes that must have times.
const leastKept = 0.5

// few rejects runs of which too little is known.
func few(r *bench.Rejects, n transition.Counts) bool {
	kept := n.Sent - n.Resent - n.Lost
	lossy := float64(kept) < leastKept*float64(n.Sent)
	r.If(lossy, "%d of %d probes have times: %d were sent again, %d lost: packets get lost at this load",
		kept, n.Sent, n.Resent, n.Lost)
	return lossy
}

// addBackground adds what TCP has sent on the background's hosts, without the probes that leave from there. The kernel
// does not count what it sends again as segments (tcp_output.c, __tcp_transmit_skb).
func (s *Step) addBackground(sent meter.SNMP) {
	s.Segments = max(0, sent.TCPOutSegs-int64(s.Hosts.Counts.Sent))
	s.Retransmits = max(0, sent.TCPRetrans-int64(s.Hosts.Resent))
}

// fill adds what the meters say.
func (s *Step) fill(before, after reading) {
	s.LoadSeconds = float64(after.gateways[0].MonotonicNs-before.gateways[0].MonotonicNs) / 1e9
	s.Machine = bench.Machine(after.gateways[0].Stat.Sub(before.gateways[0].Stat))
	s.DeliveredMbps = bench.Mbps(after.received.ReceivedBytes-before.received.ReceivedBytes, float64(
		after.received.MonotonicNs-before.received.MonotonicNs)/1e9)
	used := bench.UsageOfEach(before.gateways[:], after.gateways[:])
	for i, cpu := range []*CPU{&s.EnterCPU, &s.LeaveCPU} {
		a, b, u := before.gateways[i], after.gateways[i], used[i]
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
