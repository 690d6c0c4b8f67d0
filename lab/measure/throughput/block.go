package throughput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/mlrsearch"
)

type run struct{}

var _ runner.Measure = run{}

// Run returns what measures the blocks of one run.
func (Measure) Run() runner.Measure { return run{} }

// Lacks is false: a cell has nothing besides its searches.
func (run) Lacks(*runner.Session, experiment.Block, result.Cell) bool { return false }

// Fits is nil: every device that runs forwards something.
func (run) Fits(*experiment.Experiment, string, dut.Traits) error { return nil }

// openBlock is a block whose lab stands.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	record  *Search
	rejects bench.Rejects
	bytes   float64 // of a frame, mean
	// refuted are the lowest loads, by loss ratio, that lost more in searches that began anew.
	refuted map[float64]float64
}

// Block makes one search. Every attempt has a lab of its own.
func (run) Block(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	return nil, s.Settle(eb, eb.Cells[0], 0, func(a runner.Attempt) (func(*result.Writer) error, []string, error) {
		b := &openBlock{Session: s, Block: eb, refuted: map[float64]float64{}, record: &Search{
			Head: a.Head(eb), DUT: eb.DUT(), Clients: eb.Clients(), Direction: eb.Cell.Text(result.Direction),
			Profile: eb.Cell.Text(result.Profile), FrameSize: eb.Cell.Text(result.FrameSize),
		}}
		err := b.search(ctx)
		b.record.Seconds = time.Since(a.Start).Seconds()
		return func(w *result.Writer) error { return w.Append(KindSearch, b.record) }, b.record.Rejects, err
	})
}

// search builds a lab, searches, and removes the lab.
func (b *openBlock) search(ctx context.Context) error {
	sizes, err := b.Experiment.SizesOf(b.record.FrameSize)
	if err != nil {
		return err
	}
	b.bytes = sizes.MeanBytes()
	b.record.FrameBytes = b.bytes
	b.Status("%s: building the lab, %s", b.Name(b.Block), words.Counted(b.record.Clients, "client"))
	start := time.Now()
	labs := b.Labs(b.Block)
	// A millisecond in which another program had the router's CPU overflows the ring of a link, and would be taken for
	// what the device loses. Slowed routers are to be without their CPU at times.
	labs.UrgentRouters = b.Experiment.Router.Speed == 0
	labs.Spins = !b.Placement.Shared() // else the router would starve
	if b.Bench, err = labs.OpenAdmitted(ctx); err != nil {
		return err
	}
	b.record.SetupSeconds = time.Since(start).Seconds()
	return bench.End(ctx, b.run(ctx), func(left error) { b.Left(b.Block, left) }, b.Bench)
}

// run carries out the search.
func (b *openBlock) run(ctx context.Context) error {
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return err
	}
	cpus := slices.Concat(b.Placement.Router, b.Placement.Endpoints)
	slices.Sort(cpus)
	why, err := b.Router.WatchCPUs(ctx, slices.Compact(cpus))
	if err != nil {
		return err
	}
	if b.record.Watched = why == ""; !b.record.Watched {
		b.Notice("%s: absences of CPUs are not noticed, and what is lost in one counts: %s", b.Name(b.Block), why)
	}
	if err := b.limit(ctx); err != nil {
		return bench.CauseOf(err, b.Bench)
	}
	report, err := b.searchBelow(ctx)
	if err != nil {
		return bench.CauseOf(err, b.Bench)
	}
	for _, r := range report.Results {
		b.record.Goals = append(b.record.Goals, b.goal(r))
	}
	after, err := b.ReadMeters(ctx)
	if err != nil {
		return err
	}
	return b.judge(ctx, before, after)
}

// leastKpps is the least that a search goes up to.
const leastKpps = 0.1

// restarts is how often a search may find that its generator sends less than was thought.
const restarts = 8

// searchBelow searches up to what the generator can send. How much that is depends on what the device forwards: the
// receiving end has the generator's CPU. Where a load turns out to be too high, the search begins anew below.
func (b *openBlock) searchBelow(ctx context.Context) (mlrsearch.Report, error) {
	for restart := 0; ; restart++ {
		s := mlrsearch.Search{Min: b.record.MaxKpps / 1000, Max: b.record.MaxKpps}
		for _, loss := range losses.Of(b.Experiment) {
			// RFC 9971's form for results that repeat: a load is good when half of its trials are.
			s.Goals = append(s.Goals, mlrsearch.PDR(loss, b.Experiment.Window, time.Duration(trials.Of(
				b.Experiment))*b.Experiment.Window, width.Of(b.Experiment)))
		}
		report, err := mlrsearch.Run(ctx, s, b.trial)
		var fast tooFast
		if !errors.As(err, &fast) {
			return report, err
		}
		for _, r := range report.Results {
			if known := b.refuted[r.Goal.LossRatio]; r.Upper > 0 && (known == 0 || r.Upper < known) {
				b.refuted[r.Goal.LossRatio] = r.Upper
			}
		}
		if restart == restarts {
			b.rejects.If(true, "%v", fast)
			return report, nil
		}
		b.record.MaxKpps = max(fast.sent, leastKpps)
	}
}

// tooFast is a load that the generator cannot send, and what it sent; kframes/s.
type tooFast struct{ load, sent float64 }

func (e tooFast) Error() string {
	return fmt.Sprintf(
		"the generator sent %.4g of %.4g thousand frames a second, mean of %d trials, less than %g %%: see what else runs "+
			"on the machine",
		e.sent, e.load, attempts, 100*minOffered)
}

// goal is a result of the search. What is forwarded at its load, and the router's CPU, are means of the trials there
// that count: the load had pauses where the sender was held up.
func (b *openBlock) goal(r mlrsearch.Result) Goal {
	g := Goal{LossRatio: r.Goal.LossRatio, LowerKpps: r.Lower, UpperKpps: cmp.Or(r.Upper, b.refuted[r.Goal.LossRatio]),
		Regular: r.Regular}
	var count, share float64
	for _, t := range b.record.Trials {
		if t.Kpps == r.Lower && !t.Void {
			count, share = count+1, share+t.offeredShare()
			g.RouterCorePct += t.RouterCorePct
		}
	}
	g.ThroughputKpps = r.Throughput * share / max(count, 1)
	g.RouterCorePct /= max(count, 1)
	return g
}

// looks is how often the generator is asked what it can send.
const looks = 2

// limit finds the highest load of the search: what is asked for, or else a little less than the
// generator sends when it is asked for that. What it could not send must not look like loss.
func (b *openBlock) limit(ctx context.Context) error {
	const spare = 0.8
	asked := most.Of(b.Experiment)
	b.record.MaxKpps = 0
	for range looks {
		t, err := b.offer(ctx, asked, min(time.Second, b.Experiment.Window))
		if err != nil {
			return err
		}
		share := t.offeredShare()
		if share >= minOffered {
			b.record.MaxKpps = asked
			return nil
		}
		b.record.MaxKpps = max(b.record.MaxKpps, spare*share*asked)
	}
	if b.record.MaxKpps == 0 {
		return errors.New("the generator sent nothing")
	}
	return nil
}

// minOffered is the share of the due frames below which a trial says nothing of the device. A sender that was held up
// sends the rest later and at the same rate: the load had pauses, and what is reported is what was forwarded, pauses
// included.
const minOffered = 0.9

// mostVoid is the share of void trials above which a search is rejected.
const mostVoid = 0.9

// How often a trial is made at most: one in which the generator does not keep up, and one that lost frames while a CPU
// was away. One without loss counts in any case: what was away did not help the device.
const (
	attempts = 5
	patience = 15
)

// A trial that lost frames is void when a CPU was away for longer than links hold frames, half of a veth's ring, and
// longer than interrupts of the kernel take. A device that causes this itself does so in every attempt, and the last
// one counts.
const (
	ring      = 256
	leastAway = 100 * time.Microsecond
)

// void reports whether a trial says more of the machine than of the device.
func void(t Trial) bool {
	holds := time.Duration(ring / 2 / t.Kpps * float64(time.Millisecond))
	return t.LossRatio > 0 && time.Duration(t.AwayUs*float64(time.Microsecond)) > max(leastAway, holds)
}

// trial is mlrsearch's measurer.
func (b *openBlock) trial(ctx context.Context, kpps float64, d time.Duration) (mlrsearch.Outcome, error) {
	b.Status("%s: %.4g thousand frames a second for %s", b.Name(b.Block), kpps, d.Round(10*time.Millisecond))
	slow, sent := 0, 0. // attempts in which the generator did not keep up, and what it sent in them, kframes/s
	for attempt := 1; ; attempt++ {
		t, err := b.offer(ctx, kpps, d)
		if err != nil {
			return mlrsearch.Outcome{}, err
		}
		share := t.offeredShare()
		if share < minOffered {
			slow, sent = slow+1, sent+share*kpps
		}
		t.Void = share < minOffered || attempt < patience && void(t)
		b.record.Trials = append(b.record.Trials, t)
		switch {
		case !t.Void:
			return mlrsearch.Outcome{Loss: t.LossRatio}, nil
		case slow == attempts:
			return mlrsearch.Outcome{}, tooFast{load: kpps, sent: sent / attempts}
		}
	}
}

// offer sends frames for a time and counts what arrives.
func (b *openBlock) offer(ctx context.Context, kpps float64, d time.Duration) (t Trial, err error) {
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return t, err
	}
	if _, err := b.Router.Away(ctx); err != nil { // what was before counts for nothing
		return t, err
	}
	defer func() { err = errors.Join(err, b.StopTraffic(context.WithoutCancel(ctx))) }()
	if err = b.StartTraffic(ctx, b.record.Direction, kpps*b.bytes*8/1000, d); err != nil {
		return t, err
	}
	r, err := b.settle(ctx, d)
	if err == nil {
		err = b.rejects.Prove(ctx, b.Bench) // while the router still knows the streams
	}
	if err != nil {
		return t, err
	}
	away, err := b.Router.Away(ctx)
	if err != nil {
		return t, err
	}
	t = Trial{Kpps: kpps, Seconds: d.Seconds(), AwayUs: float64(away) / float64(time.Microsecond)}
	for _, e := range append(r.Clients, r.Server) {
		t.Intended += e.Load.Frames.Intended
		b.record.Engine = cmp.Or(string(e.Load.Frames.Engine), b.record.Engine)
		t.Offered += e.Load.Datagrams.Sent
		t.Forwarded += e.Load.Datagrams.Received
		t.Reordered += e.Load.Datagrams.Reordered
		t.SentSeconds = max(t.SentSeconds, float64(e.Load.Frames.LastNs)/1e9)
	}
	t.LossRatio = max(0, 1-float64(t.Forwarded)/float64(max(t.Offered, 1)))
	usage := bench.UsageOf(before.Router, r.Router)
	t.RouterCorePct = float64(usage.NAPINs+usage.ProcessNs) / 1e7 / max(d.Seconds(), t.SentSeconds)
	return t, nil
}

const (
	// settleEvery is how long nothing must have arrived for a trial to be over: longer than any queue of a
	// lab holds a frame.
	settleEvery = 100 * time.Millisecond
	settleMost  = 10 * time.Second
)

// settle waits until all frames are sent, and nothing arrives any more.
func (b *openBlock) settle(ctx context.Context, d time.Duration) (r bench.Reading, err error) {
	if err := bench.Sleep(ctx, d); err != nil {
		return r, err
	}
	var was int64 = -1
	for end := time.Now().Add(settleMost); ; {
		if r, err = b.Read(ctx); err != nil {
			return r, err
		}
		var came int64
		over := true
		for _, e := range append(r.Clients, r.Server) {
			came += e.Load.Datagrams.Received
			over = over && e.Load.Frames.Over
		}
		if over && came == was {
			return r, nil
		}
		if time.Now().After(end) {
			return r, fmt.Errorf("frames still left or arrived %s after the trial's end", settleMost)
		}
		was = came
		if err := bench.Sleep(ctx, settleEvery); err != nil {
			return r, err
		}
	}
}

// judge rejects searches in which the lab failed, and not the device.
func (b *openBlock) judge(ctx context.Context, before, after bench.Reading) error {
	ended, err := b.Ended(ctx)
	if err = cmp.Or(err, ended.Err()); err != nil {
		return err
	}
	seconds := float64(after.Router.MonotonicNs-before.Router.MonotonicNs) / 1e9
	if speed := b.Experiment.Router.Speed; speed > 0 {
		b.record.RouterShare = bench.RouterShare(before, after)
		b.rejects.Speed(b.record.RouterShare, speed, " during the search")
	}
	b.rejects.Steal(bench.Machine(after.Router.Stat.Sub(before.Router.Stat)), seconds, b.CPUs, " during the search")
	voids := 0
	for _, t := range b.record.Trials {
		if t.Void {
			voids++
		}
	}
	b.rejects.If(float64(voids) > mostVoid*float64(len(b.record.Trials)),
		"%d of %d trials say nothing of the device: the generator did not keep up, or frames were lost while a CPU was "+
			"away (another guest of the machine, firmware)",
		voids, len(b.record.Trials))
	b.record.Rejects, b.record.Accepted = b.rejects, len(b.rejects) == 0
	return nil
}
