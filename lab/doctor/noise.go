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

// keyAA is the key of the check of two clean routers (A/A).
const keyAA = "noise.aa"

// noise runs the fixed loop and a short duet of two clean routers. During the duet it compares tick accounting with
// exact time. It leaves the duet out when the lab does not work on this machine, and both when another run measures.
func (x examination) noise(ctx context.Context, labWorks bool) (checks []Check, ticks Check) {
	var gap accountingGap
	checks, err := x.loops(ctx)
	aa := checkOf(keyAA, "A/A pair", "not measured: the lab does not work here", "", "see the lines that are missing")
	if err == nil && labWorks {
		var summary analysis.Summary
		watch, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { gap = x.watchAccounts(watch) })
		summary, err = x.duet(ctx)
		stop()
		wg.Wait()
		if err == nil {
			aa = aaCheck(summary)
		}
	}
	if err != nil {
		aa.Found, aa.Remedy = reason(err), "try again: gateweigh doctor; gateweigh run says more"
		if errors.Is(err, runner.ErrBusy) {
			aa.Remedy = waitForRun
		}
	}
	return append(checks, aa), gap.check(x.placement.Router)
}

// loops runs the fixed loop on each CPU of the lab.
func (x examination) loops(ctx context.Context) (checks []Check, err error) {
	unlock, err := runner.LockMachine("gateweigh doctor")
	if err != nil {
		return nil, err
	}
	defer unlock()
	x.opts.Status("running a fixed loop on each CPU")
	list, err := x.host.RunLoops(ctx, x.placement.InUse(), loopTime)
	for _, l := range list {
		checks = append(checks, loopCheck(l))
	}
	return checks, err
}

// duet measures two clean routers (aa.toml), with its records in the examination's scratch folder.
func (x examination) duet(ctx context.Context) (summary analysis.Summary, err error) {
	exp, err := measure.Catalogue().Parse("aa.toml", aaFile)
	if err != nil {
		return summary, err
	}
	dir := filepath.Join(x.scratch, "aa")
	outcome, err := runner.Run(ctx, runner.Config{
		Measure:    measure.All().Of(exp).Run(),
		Experiment: exp, Dir: dir, Version: x.opts.Version, Command: "gateweigh doctor",
		Status: func(p runner.Progress) { x.opts.Status("two clean routers: " + p.Text) },
	})
	if err != nil {
		return summary, err
	}
	for _, f := range outcome.Failed {
		return summary, errors.New(f.Reason)
	}
	run, err := measure.ReadRun(dir)
	if err != nil {
		return summary, err
	}
	return measure.Summarise(run, analysis.Options{}), nil
}

// resolutionBlocks is the number of blocks for which the resolution is computed: the default of an experiment.
const resolutionBlocks = 6

// resolution returns the smallest relative difference that resolutionBlocks blocks can show: the half width of their
// 95 % interval. sd is the standard deviation of the log ratio over n blocks. Because n is small, resolution uses the
// upper end of sd's one-sided 80 % interval (chi squared with n - 1 degrees of freedom).
func resolution(sd float64, n int) float64 {
	free := float64(n - 1)
	sd *= math.Sqrt(free / distuv.ChiSquared{K: free}.Quantile(0.2))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: resolutionBlocks - 1}.Quantile(0.975)
	return math.Expm1(t * sd / math.Sqrt(resolutionBlocks))
}

const (
	goodResolution = 0.05 // differences within 5 % are called equivalent
	goodAA         = 0.05 // largest difference of two clean routers that is no warning
)

// aaCheck judges the noise floor.
func aaCheck(summary analysis.Summary) Check {
	if !summary.AA.Ratio.HasInterval() || !summary.AA.SDLog.Known() {
		found := fmt.Sprintf("only %d of %s passed the self-tests", summary.Trials.Accepted,
			words.Counted(summary.Trials.Accepted+
				summary.Trials.Rejected, "trial"))
		if len(summary.AA.Rejects) > 0 {
			found += ": " + summary.AA.Rejects[0].Text
		}
		return checkOf(keyAA, "A/A pair", found, "", "end other programs and try again")
	}
	ratio, sd := summary.AA.Ratio, float64(summary.AA.SDLog)
	least := resolution(sd, summary.AA.Blocks)
	found := fmt.Sprintf("ratio of two clean routers %.3f [%.3f, %.3f], sd %.1f %% over %s; %s rejected",
		float64(ratio.Mean), float64(ratio.Lo), float64(ratio.Hi), 100*sd, words.Counted(summary.AA.Blocks, "block"),
		words.Counted(summary.AA.Rejected, "trial"))
	verdict, do := fmt.Sprintf(
		"differences under about %.1f %% cannot be told apart with %d blocks here", 100*least, resolutionBlocks), ""
	switch off := math.Abs(math.Log(float64(ratio.Mean))); {
	case least > goodResolution:
		do = verdict + ": quiet the machine, or more blocks (--set blocks=12)"
	case off > goodAA:
		do = "the labs differ by themselves: see other programs and the fixed loop, then try again"
	}
	check := checkOf(keyAA, "A/A pair", found, verdict, do)
	check.Figures = map[string]analysis.Number{
		"ratio": ratio.Mean, "ratio_lo": ratio.Lo, "ratio_hi": ratio.Hi, "sd_log": summary.AA.SDLog,
		"resolution_pct": analysis.Number(100 * least),
	}
	return check
}

// loopTime is the time that the fixed loop runs on each CPU.
const loopTime = 2 * time.Second

// Bounds for a quiet machine. Quiet VMs had tails of 1.2 to 1.4 and lost 2 to 4 %; the A/A pair then resolved 1 to 3 %.
const (
	goodTail  = 1.50 // 99th percentile of the pieces' times, divided by their median
	goodLost  = 0.05 // share of the time lost compared with a loop whose pieces all take the median
	goodShare = 0.97 // share of the time that the loop had the CPU: below it, other programs had the rest
)

// loopCheck judges the times of the fixed loop on one CPU.
func loopCheck(c machine.Loop) Check {
	key, what := fmt.Sprintf("noise.canary.cpu%d", c.CPU), fmt.Sprintf("fixed loop, CPU %d", c.CPU)
	if len(c.Pieces) == 0 {
		return checkOf(key, what, "the loop did not run once", "", "end what keeps the machine busy")
	}
	sorted := slices.Sorted(slices.Values(c.Pieces))
	quantile := func(share float64) float64 { return sorted[int(share*float64(len(sorted)-1))] } // rounded down
	median, worst := quantile(0.5), sorted[len(sorted)-1]
	// Pieces faster than the median could make the loss negative.
	lost := max(0, 1-median*float64(len(sorted))/floats.Sum(sorted))
	tail, others, do := quantile(0.99)/median, 100*max(0, 1-c.CPUShare), ""
	if tail > goodTail || lost > goodLost {
		do = "steal or a shifting clock: use a quieter host or dedicated CPUs; until then trust ratios, not single values"
		if c.CPUShare < goodShare {
			do = "end the busiest programs (see other programs); until then trust ratios, not single values"
		}
	}
	check := checkOf(key, what,
		fmt.Sprintf("median %.3f ms, p99 %.2f × that, worst %.1f ×; %.1f %% of the time lost, %.1f %% to other programs",
			median, tail, worst/median, 100*lost, others),
		fmt.Sprintf("good is p99 up to %.1f × the median and less than %.0f %% lost", goodTail, 100*goodLost), do)
	check.Figures = map[string]analysis.Number{
		"median_ms": analysis.Number(median), "p99_ratio": analysis.Number(tail),
		"worst_ratio": analysis.Number(worst / median),
		"lost_pct":    analysis.Number(100 * lost), "others_pct": analysis.Number(others),
	}
	return check
}
