package doctor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

//go:embed aa.toml
var aaFile []byte

const keyAA = "noise.aa"

// noise runs the fixed loop and a short duet of two clean routers, during which
// tick accounting is compared with exact time. able says whether the lab works
// here at all. While another run measures nothing is done that would disturb it.
func (x examination) noise(ctx context.Context, able bool) (lines []Check, ticks Check) {
	var g accountingGap
	lines, err := x.loops(ctx)
	aa := checkOf(keyAA, "A/A pair", "not measured: the lab does not work here", "", "see the lines that are missing")
	if err == nil && able {
		var summary analysis.Summary
		watch, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { g = x.watchAccounts(watch) })
		summary, err = x.duet(ctx)
		stop()
		wg.Wait()
		if err == nil {
			aa = aaLine(summary)
		}
	}
	if err != nil {
		aa.Found, aa.Do = reason(err), "try again: gateweigh doctor; gateweigh run says more"
		if errors.Is(err, runner.ErrBusy) {
			aa.Do = waitForRun
		}
	}
	return append(lines, aa), g.line(x.placement.Router)
}

// loops runs the fixed loop on each CPU of the lab.
func (x examination) loops(ctx context.Context) (lines []Check, err error) {
	unlock, err := runner.LockMachine("gateweigh doctor")
	if err != nil {
		return nil, err
	}
	defer unlock()
	x.opts.Status("running a fixed loop on each CPU")
	list, err := x.asked.RunLoops(ctx, x.placement.InUse(), loopTime)
	for _, l := range list {
		lines = append(lines, loopLine(l))
	}
	return lines, err
}

// duet measures two clean routers in a folder of its own.
func (x examination) duet(ctx context.Context) (s analysis.Summary, err error) {
	exp, err := measure.Catalogue().Parse("aa.toml", aaFile)
	if err != nil {
		return s, err
	}
	dir := filepath.Join(x.scratch, "aa")
	outcome, err := runner.Run(ctx, runner.Config{
		Measure:    measure.All().Of(exp).Run(),
		Experiment: exp, Dir: dir, Version: x.opts.Version, Command: "gateweigh doctor",
		Status: func(p runner.Progress) { x.opts.Status("two clean routers: " + p.Text) },
	})
	if err != nil {
		return s, err
	}
	for _, f := range outcome.Failed {
		return s, errors.New(f.Reason)
	}
	run, err := measure.ReadRun(dir)
	if err != nil {
		return s, err
	}
	return measure.Summarise(run, analysis.Options{}), nil
}

// resolutionBlocks is the number of blocks the resolution is stated for: the
// default of an experiment.
const resolutionBlocks = 6

// resolution is the half width of a 95 % interval over resolutionBlocks blocks,
// as a relative difference: smaller ones cannot be seen. The spread of
// the log ratio is known from n blocks only, so the upper end of its one-sided
// 80 % interval is taken (chi squared with n - 1 degrees of freedom).
func resolution(sd float64, n int) float64 {
	free := float64(n - 1)
	sd *= math.Sqrt(free / distuv.ChiSquared{K: free}.Quantile(0.2))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: resolutionBlocks - 1}.Quantile(0.975)
	return math.Expm1(t * sd / math.Sqrt(resolutionBlocks))
}

const (
	goodResolution = 0.05 // differences within 5 % are called equivalent
	goodAA         = 0.05 // two clean routers should not differ by more
)

// aaLine judges the noise floor.
func aaLine(s analysis.Summary) Check {
	if !s.AA.Ratio.HasInterval() || !s.AA.SDLog.Known() {
		found := fmt.Sprintf("only %d of %s passed the self-tests", s.Trials.Accepted, words.Counted(s.Trials.Accepted+
			s.Trials.Rejected, "trial"))
		if len(s.AA.Rejects) > 0 {
			found += ": " + s.AA.Rejects[0].Text
		}
		return checkOf(keyAA, "A/A pair", found, "", "end other programs and try again")
	}
	ratio, sd := s.AA.Ratio, float64(s.AA.SDLog)
	least := resolution(sd, s.AA.Blocks)
	found := fmt.Sprintf("ratio of two clean routers %.3f [%.3f, %.3f], sd %.1f %% over %s; %s rejected",
		float64(ratio.Mean), float64(ratio.Lo), float64(ratio.Hi), 100*sd, words.Counted(s.AA.Blocks, "block"),
		words.Counted(s.AA.Rejected, "trial"))
	verdict, do := fmt.Sprintf(
		"differences under about %.1f %% cannot be told apart with %d blocks here", 100*least, resolutionBlocks), ""
	switch off := math.Abs(math.Log(float64(ratio.Mean))); {
	case least > goodResolution:
		do = verdict + ": quiet the machine, or more blocks (--set blocks=12)"
	case off > goodAA:
		do = "the labs differ by themselves: see other programs and the fixed loop, then try again"
	}
	l := checkOf(keyAA, "A/A pair", found, verdict, do)
	l.Figures = map[string]analysis.Number{
		"ratio": ratio.Mean, "ratio_lo": ratio.Lo, "ratio_hi": ratio.Hi, "sd_log": s.AA.SDLog,
		"resolution_pct": analysis.Number(100 * least),
	}
	return l
}

// loopTime is how long the fixed loop runs.
const loopTime = 2 * time.Second

// What a machine shows that is left alone. Virtual CPUs without neighbours'
// load had tails of 1.2 to 1.4 and lost 2 to 4 %; the A/A pair beside it then
// resolved 1 to 3 %.
const (
	goodTail  = 1.50 // 99th percentile of the pieces over their median
	goodLost  = 0.05 // of the wall time lost against the median piece
	goodShare = 0.97 // of the wall time with the CPU: less is other programs' doing
)

// loopLine judges what the loop saw.
func loopLine(c machine.Loop) Check {
	key, what := fmt.Sprintf("noise.canary.cpu%d", c.CPU), fmt.Sprintf("fixed loop, CPU %d", c.CPU)
	if len(c.Pieces) == 0 {
		return checkOf(key, what, "the loop did not run once", "", "end what keeps the machine busy")
	}
	sorted := slices.Sorted(slices.Values(c.Pieces))
	at := func(share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] } // the lower one between two
	median, worst := at(0.5), sorted[len(sorted)-1]
	// Pieces faster than the median are no loss that could be made up for.
	lost := max(0, 1-median*float64(len(sorted))/floats.Sum(sorted))
	tail, others, do := at(0.99)/median, 100*max(0, 1-c.CPUShare), ""
	if tail > goodTail || lost > goodLost {
		do = "steal or a shifting clock: use a quieter host or dedicated CPUs; until then trust ratios, not single values"
		if c.CPUShare < goodShare {
			do = "end the busiest programs (see other programs); until then trust ratios, not single values"
		}
	}
	l := checkOf(key, what,
		fmt.Sprintf("median %.3f ms, p99 %.2f × that, worst %.1f ×; %.1f %% of the time lost, %.1f %% to other programs",
			median, tail, worst/median, 100*lost, others),
		fmt.Sprintf("good is p99 up to %.1f × the median and less than %.0f %% lost", goodTail, 100*goodLost), do)
	l.Figures = map[string]analysis.Number{
		"median_ms": analysis.Number(median), "p99_ratio": analysis.Number(tail),
		"worst_ratio": analysis.Number(worst / median),
		"lost_pct":    analysis.Number(100 * lost), "others_pct": analysis.Number(others),
	}
	return l
}
