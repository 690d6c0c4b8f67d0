package main

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

var builtProgram = flag.String(
	"program", "", "bin/gateweigh, which has gatewayd beside it; default: this test, which has none")

// BenchmarkQuickOverSSH measures the experiment quick on three machines that ssh reaches, in rounds of one lab at a
// time, and beside it in namespaces, with two labs at a time. It prints the ratios of both, and the time that the
// rounds need for intervals as narrow as those of namespaces: by the square of the ratio of their widths.
func BenchmarkQuickOverSSH(b *testing.B) {
	dir := b.TempDir()
	_, quick, found := strings.Cut(finish(b, command(b, dir, "list", "quick")).stdout, "\nname = ")
	if !found {
		b.Fatal("the command list has no file of quick")
	}
	quick = "name = " + quick
	m := sshtest.New(b)
	write(b, dir, "here.toml", quick)
	write(b, dir, "ssh.toml", strings.Replace(quick, "\nhosts = 1\n", "\n", 1)+m.Tables(1, ""))
	for b.Loop() {
		here, took := runQuick(b, dir, "here")
		far, tookFar := runQuick(b, dir, "ssh", "mode=interleaved")
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
		b.ReportMetric(tookFar.Seconds()/took.Seconds()*width*width, "times-for-one-width")
	}
}

// runQuick runs the experiment in dir/NAME.toml for 6 blocks, with more keys set, and returns how long that took.
func runQuick(b *testing.B, dir, name string, more ...string) (analysis.Summary, time.Duration) {
	args := []string{"run", name + ".toml", "--out", name}
	for _, s := range append([]string{"duts=allowlist,opennds,gateway-ebpf", "blocks=6", "aa_blocks=6"}, more...) {
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

func logWidth(e analysis.Estimate) float64 { return math.Log(float64(e.Hi) / float64(e.Lo)) }

func interval(e analysis.Estimate) string {
	return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Mean, e.Lo, e.Hi)
}

// agreement says whether two ratios differ by no more than their intervals allow together.
func agreement(a, b analysis.Estimate) string {
	if math.Abs(math.Log(float64(a.Mean)/float64(b.Mean))) <= math.Hypot(logWidth(a), logWidth(b))/2 {
		return "agree"
	}
	return "differ"
}
