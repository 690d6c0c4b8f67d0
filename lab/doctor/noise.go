package doctor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
)

//go:embed aa.toml
var aaFile []byte

const keyAA = "noise.aa"

// noise runs the fixed loop and a short duet of two clean routers, during which
// tick accounting is compared with exact time. able says whether the lab works
// here at all. While another run measures nothing is done that would disturb it.
func (x examination) noise(ctx context.Context, able bool) (lines []Line, ticks Line) {
	aa := Line{Key: keyAA, State: Warn, What: "A/A pair"}
	unlock, err := runner.LockMachine("gateweigh doctor")
	if err != nil {
		aa.Found, aa.Do = reason(err, nil), "wait for the other run, then: gateweigh doctor"
		return []Line{aa}, gap{}.line(x.placement.Router)
	}
	x.opts.Status("running a fixed loop on each CPU")
	loops, err := x.asked.RunLoops(ctx, x.placement.All(), loopTime)
	unlock()
	if err != nil {
		aa.Found, aa.Do = reason(err, nil), "try again: gateweigh doctor"
		return []Line{aa}, gap{}.line(x.placement.Router)
	}
	for _, l := range loops {
		lines = append(lines, loopLine(l))
	}
	if !able {
		aa.Found, aa.Do = "not measured: the lab does not work here", "see the lines that are missing"
		return append(lines, aa), gap{}.line(x.placement.Router)
	}
	watch, stop := context.WithCancel(ctx)
	seen := x.watchAccounts(watch)
	summary, err := x.duet(ctx)
	stop()
	g := seen()
	if err != nil {
		aa.Found, aa.Do = reason(err, nil), "gateweigh run says more"
		if errors.Is(err, runner.ErrBusy) {
			aa.Do = "wait for the other run, then: gateweigh doctor"
		}
		return append(lines, aa), g.line(x.placement.Router)
	}
	return append(lines, aaLine(summary)), g.line(x.placement.Router)
}

// duet measures two clean routers in a folder of its own.
func (x examination) duet(ctx context.Context) (analysis.Summary, error) {
	exp, err := measure.Catalogue().Parse("aa.toml", aaFile)
	if err != nil {
		return analysis.Summary{}, err
	}
	dir := filepath.Join(x.scratch, "aa")
	outcome, err := runner.Run(ctx, runner.Config{
		Measure:    measure.All().Of(exp).Run(),
		Experiment: exp, Dir: dir, Version: x.opts.Version, Command: "gateweigh doctor",
		Status: func(p runner.Progress) { x.opts.Status("two clean routers: " + p.Text) },
	})
	if err != nil {
		return analysis.Summary{}, err
	}
	for _, f := range outcome.Failed {
		return analysis.Summary{}, errors.New(f.Reason)
	}
	run, err := measure.ReadRun(dir)
	if err != nil {
		return analysis.Summary{}, err
	}
	return measure.Summarise(run, analysis.Options{}), nil
}

// resolutionBlocks is the number of blocks the resolution is stated for: the
// default of an experiment.
const resolutionBlocks = 6

// resolution is the half width of a 95 % interval over resolutionBlocks blocks,
// as a relative difference: smaller ones are not told from none. The spread of
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
func aaLine(s analysis.Summary) Line {
	l := Line{Key: keyAA, State: OK, What: "A/A pair"}
	if !s.AA.Ratio.HasInterval() || !s.AA.SDLog.Known() {
		l.State, l.Found = Warn, fmt.Sprintf("only %d of %d trials passed the self-tests", s.Trials.Accepted, s.Trials.Accepted+s.Trials.Rejected)
		l.Do = "end other programs and try again"
		if len(s.AA.Rejects) > 0 {
			l.Found += ": " + s.AA.Rejects[0].Text
		}
		return l
	}
	ratio, sd := s.AA.Ratio, float64(s.AA.SDLog)
	least := resolution(sd, s.AA.Blocks)
	l.Found = fmt.Sprintf("ratio of two clean routers %.3f [%.3f, %.3f], sd %.1f %% over %d blocks; %d trials rejected",
		float64(ratio.Mean), float64(ratio.Lo), float64(ratio.Hi), 100*sd, s.AA.Blocks, s.AA.Rejected)
	verdict := fmt.Sprintf("differences under about %.1f %% cannot be told apart with %d blocks here", 100*least, resolutionBlocks)
	l.Means = verdict
	l.Figures = map[string]analysis.Number{
		"ratio": ratio.Mean, "ratio_lo": ratio.Lo, "ratio_hi": ratio.Hi, "sd_log": s.AA.SDLog, "resolution_pct": analysis.Number(100 * least),
	}
	switch off := math.Abs(math.Log(float64(ratio.Mean))); {
	case least > goodResolution:
		l.State, l.Means = Warn, ""
		l.Do = verdict + ": quiet the machine, or more blocks (--set blocks=12)"
	case off > goodAA:
		l.State, l.Means = Warn, ""
		l.Do = "the labs differ by themselves: see other programs and the fixed loop, then try again"
	}
	return l
}
