package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

var builtProgram = flag.String(
	"program", "", "bin/gateweigh, which has gatewayd beside it; default: this test, which has none")

// BenchmarkQuickOverSSH measures the experiment quick twice: on three machines reached by ssh, in rounds of one lab at
// a time, and in namespaces, with two labs at a time. It prints the ratios of both. It also prints how long rounds
// would take to get intervals as narrow as those of namespaces: the time grows with the square of the ratio of their
// widths.
func BenchmarkQuickOverSSH(b *testing.B) {
	dir := b.TempDir()
	_, quick, found := strings.Cut(finish(b, command(b, dir, "list", "quick")).stdout, "\nname = ")
	if !found {
		b.Fatal("the command list has no file of quick")
	}
	quick = "name = " + quick
	m := sshtest.New(b)
	if *builtProgram != "" { // gatewayd must be on the router's PATH; other machines do not see this folder
		m.Run(b, "router",
			"mount -t tmpfs none /usr/local/sbin; cp "+filepath.Dir(*builtProgram)+"/gatewayd /usr/local/sbin/")
	}
	write(b, dir, "here.toml", quick)
	write(b, dir, "ssh.toml", strings.Replace(quick, "\nhosts = 1\n", "\n", 1)+m.Tables(1, ""))
	for b.Loop() {
		here, took := runQuick(b, dir, "here")
		far, tookFar := runQuick(b, dir, "ssh", "mode=interleaved")
		if len(far.Cells) != len(here.Cells) {
			b.Fatalf("left out over ssh: %+v", far.Skipped)
		}
		var text strings.Builder
		var logs float64
		for i, cell := range here.Cells {
			own, other := cell.Change(cost.PerBit), far.Cells[i].Change(cost.PerBit)
			logs += math.Log(logWidth(other)/logWidth(own)) / float64(len(here.Cells))
			fmt.Fprintf(&text, "\n%-13s %5g Mbit/s  namespaces %s  ssh %s  %s", cell.DUT(), cell.Number("offered_mbps"),
				interval(own), interval(other), agreement(own, other))
		}
		fmt.Fprintf(&text, "\ntwo clean routers          namespaces %s  ssh %s", interval(here.AA.Ratio),
			interval(far.AA.Ratio))
		b.Log(text.String())
		width := math.Exp(logs)
		b.ReportMetric(took.Seconds(), "s-namespaces")
		b.ReportMetric(tookFar.Seconds(), "s-ssh")
		b.ReportMetric(width, "widths")
		b.ReportMetric(windowError(b, filepath.Join(dir, "here"), quickWindow), "%-window-error-namespaces")
		b.ReportMetric(windowError(b, filepath.Join(dir, "ssh"), quickWindow), "%-window-error-ssh")
		b.ReportMetric(tookFar.Seconds()/took.Seconds()*width*width, "times-for-one-width")
	}
}

// quickWindow is the length of a window that runQuick asks for.
const quickWindow = 300 * time.Millisecond

// windowError returns the median difference between the length of a run's windows and the length that was asked for, in
// per cent. The router's own clock reads both ends of a window, so only the difference between the two requests' delays
// counts.
func windowError(t testing.TB, folder string, asked time.Duration) float64 {
	t.Helper()
	run, err := measure.ReadRun(folder)
	if err != nil {
		t.Fatal(err)
	}
	var errors []float64
	for _, trial := range run.Trials {
		sides := cost.SidesOf(trial)
		seconds := cmp.Or(sides.DUT.Seconds, sides.Clean.Seconds) // in rounds a trial is of one router
		if seconds <= 0 {
			if trial.Accepted {
				t.Errorf("%s: a window of %v s", folder, seconds)
			}
			continue
		}
		errors = append(errors, 100*math.Abs(seconds/asked.Seconds()-1))
	}
	if len(errors) == 0 {
		return math.NaN()
	}
	slices.Sort(errors)
	return errors[len(errors)/2]
}

// runQuick runs the experiment in dir/NAME.toml for 6 blocks, with more keys set. It returns the summary and the
// duration.
func runQuick(b *testing.B, dir, name string, more ...string) (analysis.Summary, time.Duration) {
	args := []string{"run", name + ".toml", "--out", name}
	for _, s := range append(
		[]string{"duts=allowlist,opennds,gateway-ebpf", "blocks=6", "aa_blocks=6", "window=" + quickWindow.String()},
		more...) {
		args = append(args, "--set", s)
	}
	cmd := command(b, dir, args...)
	if *builtProgram != "" {
		cmd.Path = *builtProgram
	}
	began := time.Now()
	if e := finish(b, cmd); e.code != 0 {
		b.Fatalf("%s: exit %d\n%s%s", name, e.code, e.stdout, e.stderr)
	}
	took := time.Since(began)
	read, err := measure.ReadRun(filepath.Join(dir, name))
	if err != nil {
		b.Fatal(err)
	}
	return measure.Summarise(read, analysis.Options{}), took
}

// logWidth returns the width of an interval of ratios in logarithms.
func logWidth(e analysis.Estimate) float64 { return math.Log(float64(e.Hi) / float64(e.Lo)) }

// interval formats an estimate with its confidence interval.
func interval(e analysis.Estimate) string {
	return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Mean, e.Lo, e.Hi)
}

// agreement returns whether two ratios differ by no more than their intervals together allow, in words.
func agreement(a, b analysis.Estimate) string {
	if math.Abs(math.Log(float64(a.Mean)/float64(b.Mean))) <= math.Hypot(logWidth(a), logWidth(b))/2 {
		return "agree"
	}
	return "differ"
}
