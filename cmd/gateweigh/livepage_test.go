// Tests of the page that shows a run while it goes on.

package main

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist.

var pagePairs = flag.Int("page-pairs", 8, "pairs of runs, with the live page open and closed")

// BenchmarkWithLivePage measures pairs of runs, one with the live page open in Chromium and one without. It prints the
// ratio of the router's CPU time per bit, open to closed, with its 95 % interval over pairs.
func BenchmarkWithLivePage(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, "small.toml", small)
	for b.Loop() {
		var logs []float64
		for i := range *pagePairs {
			cpu := map[bool]float64{}
			for _, open := range []bool{i%2 == 0, i%2 == 1} { // either goes first in half of the pairs
				cpu[open] = runBesidePage(b, dir, fmt.Sprintf("%d-%v", i, open), open)
			}
			logs = append(logs, math.Log(cpu[true]/cpu[false]))
		}
		s := inference.SampleOf(logs)
		lo, hi := s.Interval(0.95)
		b.Logf("CPU time per bit, page open to closed: %.3f [%.3f, %.3f], %d pairs", math.Exp(s.Mean), math.Exp(lo),
			math.Exp(hi), *pagePairs)
		b.ReportMetric(math.Exp(s.Mean), "open/closed")
	}
}

// runBesidePage measures a run, with the live page open or not, and returns the router's CPU time per bit.
func runBesidePage(b *testing.B, dir, name string, open bool) float64 {
	if open {
		server := command(b, dir, "serve", ".", "--listen", "127.0.0.1:0")
		out, err := server.StdoutPipe()
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		defer func() { server.Process.Kill(); server.Wait() }()
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		browser := exec.Command(browsertest.Program(b), "--headless=new", "--no-sandbox", "--disable-gpu",
			"--user-data-dir="+b.TempDir(), "--remote-debugging-port=0", strings.TrimSpace(address))
		browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts others
		if err := browser.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { syscall.Kill(-browser.Process.Pid, syscall.SIGKILL); browser.Wait() }()
	}
	e := finish(b, command(b, dir, "run", "small.toml", "--out", name, "--set", "redo=10"))
	if e.code != 0 && e.code != exitRejected {
		b.Fatalf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
	run, err := measure.ReadRun(filepath.Join(dir, name))
	if err != nil {
		b.Fatal(err)
	}
	var logs, cells float64
	for _, c := range measure.Summarise(run, analysis.Options{}).Cells {
		logs, cells = logs+math.Log(float64(c.Device(cost.PerBit).Mean)), cells+1
	}
	return math.Exp(logs / cells)
}
