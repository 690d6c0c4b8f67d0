package throughput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/mlrsearch"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure { return runner.Measure{Block: carryOut} }

// openBlock is a block whose lab is open or is being built.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	record  *Search
	rejects bench.Rejects
	bytes   float64 // mean size of a frame, without FCS
	// refuted has, by loss ratio, the lowest load, kframes/s, that lost more in any search, also in those that were begun
	// again.
	refuted map[float64]float64
}

// carryOut makes one search. It builds a new lab for every attempt.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	return nil, s.MeasureWindow(eb, eb.Cells[0], 0, KindSearch, func(runner.Attempt) (result.Record, []string, error) {
		b := &openBlock{Session: s, Block: eb, refuted: map[float64]float64{}, record: &Search{}}
		b.record.SetCell(eb.Cells[0])
		err := b.inLab(ctx)
		return b.record, b.rejects, err
	})
}

// inLab builds a lab, searches in it, and removes it.
func (b *openBlock) inLab(ctx context.Context) error {
	sizes, err := b.Experiment.SizesOf(b.record.FrameSize)
	if err != nil {
		return err
	}
	b.bytes = sizes.MeanBytes()
	b.record.FrameBytes, b.record.WireBytes = b.bytes, frames.WireOverhead
	b.Status("%s: building the lab, %s", b.Name(b.Block), words.Counted(b.record.Clients, "client"))
	start := time.Now()
	labs := b.Labs(b.Block)
	// Routers have priority over other programs: one millisecond without their CPU overflows the ring of a link, and the
	// loss would count for the device. Slowed routers are without their CPU on purpose.
	labs.UrgentRouters = b.Experiment.Router.Speed == 0
	labs.CPUOptional = b.Experiment.DoesWithoutCPU()
	labs.BusyWait = !b.Placement.Shared() // on a shared CPU, a generator that spins would starve the router
	return labs.Admitted(ctx, func(lab *bench.Bench) error {
		b.Bench, b.record.SetupSeconds = lab, time.Since(start).Seconds()
		return b.search(ctx)
	})
}

// search searches the loads of all goals, and judges the search.
func (b *openBlock) search(ctx context.Context) error {
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return err
	}
	b.record.LineMbps, b.record.Closed, b.record.Unmetered = b.LineMbps, b.Router == nil, before.Router.Unmetered
	if err := b.watchRouterCPUs(ctx); err != nil {
		return err
	}
	if err := b.findLimit(ctx); err != nil {
		return err
	}
	report, err := b.searchBelow(ctx)
	if err != nil {
		return err
	}
	for _, r := range report.Results {
		b.record.Goals = append(b.record.Goals, b.goal(r))
	}
	after, err := b.ReadMeters(ctx)
	if err != nil {
		return err
	}
	return b.judge(ctx, b.Window(before, after, " during the search"))
}

// watchRouterCPUs has the router's machine record when a CPU of the lab is away, which means that the CPU works for
// another guest or for the firmware. If the machine cannot record it, the user is told.
func (b *openBlock) watchRouterCPUs(ctx context.Context) error {
	if b.Router == nil {
		return nil
	}
	reason, err := b.Router.WatchCPUs(ctx, b.Placement.InUse())
	if err != nil {
		return err
	}
	if b.record.Watched = reason == ""; !b.record.Watched {
		b.Notice("%s: absences of CPUs are not noticed, and what is lost in one counts: %s", b.Name(b.Block), reason)
	}
	return nil
}

// leastKpps is the least upper limit of a search, kframes/s.
const leastKpps = 0.1

// restarts is how often a search may begin again because the generator cannot send a load.
const restarts = 8

// searchBelow searches up to the highest load that the generator can send. That load depends on what the device
// forwards, because the receiver shares the generator's CPU. If the generator cannot send a load, the search begins
// again with a lower limit.
func (b *openBlock) searchBelow(ctx context.Context) (mlrsearch.Report, error) {
	for restart := 0; ; restart++ {
		s := mlrsearch.Search{Min: b.record.MaxKpps / 1000, Max: b.record.MaxKpps}
		for _, loss := range losses.Value(b.Experiment) {
			// RFC 9971's form for results that repeat: a load is good when half of its trials are.
			e := b.Experiment
			settles := time.Duration(trials.Value(e)) * e.Window
			s.Goals = append(s.Goals, mlrsearch.PDR(loss, e.Window, settles, width.Value(e)))
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
			b.rejects.Add("%v", fast)
			return report, nil
		}
		b.record.MaxKpps = max(fast.sent, leastKpps)
	}
}

// tooFast is the error of a load that the generator cannot send. It has the load and the rate that was sent, kframes/s.
type tooFast struct{ load, sent float64 }

func (e tooFast) Error() string {
	return fmt.Sprintf("the generator sent %.4g of %.4g thousand frames a second, mean of %d trials, less than %g %%: "+
		"see what else runs on the machine", e.sent, e.load, attempts, 100*minOffered)
}

// goal returns the record of one result of the search. Throughput, router CPU and round-trip times are means over the
// trials at the lower bound that are not void. Throughput counts what was offered: a sender that was held up leaves
// pauses.
func (b *openBlock) goal(r mlrsearch.Result) Goal {
	upper := cmp.Or(r.Upper, b.refuted[r.Goal.LossRatio])
	g := Goal{LossRatio: r.Goal.LossRatio, LowerKpps: r.Lower, UpperKpps: upper, Regular: r.Regular}
	var count, share float64
	for _, t := range b.record.Trials {
		if t.Kpps == r.Lower && !t.Void {
			count, share = count+1, share+t.offeredShare()
			g.RouterCorePct += t.RouterCorePct
			g.RTTUs, g.RTTTailUs = g.RTTUs+t.RTTUs, g.RTTTailUs+t.RTTTailUs
		}
	}
	g.ThroughputKpps = r.Throughput * share / max(count, 1)
	g.RouterCorePct /= max(count, 1)
	g.RTTUs, g.RTTTailUs = g.RTTUs/max(count, 1), g.RTTTailUs/max(count, 1)
	return g
}

// speedChecks is the number of trials that find out what the generator can send.
const speedChecks = 2

// findLimit finds the highest load of the search: the one that the experiment sets, or 80 % of what the generator sends
// when it should send that. Frames that the generator could not send must not count as loss.
func (b *openBlock) findLimit(ctx context.Context) error {
	const spare = 0.8
	asked := maxFrameRate.Value(b.Experiment)
	b.record.MaxKpps = 0
	for range speedChecks {
		t, err := b.sendAndCount(ctx, asked, min(time.Second, b.Experiment.Window))
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

// judge rejects a search in which the lab failed. A failure of the device is a result.
func (b *openBlock) judge(ctx context.Context, w bench.Window) (err error) {
	b.record.RouterShare = w.Share
	voids, all := 0, len(b.record.Trials)
	for _, t := range b.record.Trials {
		if t.Void {
			voids++
		}
	}
	b.rejects, err = b.Judge(ctx, bench.RejectFor(b.rejects...), w.Speed, w.Steal, bench.RejectIf(
		float64(voids) > maxVoidShare*float64(all),
		"%d of %d trials say nothing of the device: the generator did not keep up, or frames were lost while a CPU was "+
			"away (another guest of the machine, firmware)", voids, all))
	return err
}
