// Tests of gateweigh serve, which shows runs on a web page.

package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist. start runs a command in the
// background, await waits for something that it does, and said returns its standard error so far.

// serving runs gateweigh serve in dir until the test ends. args may name the folder to serve, by default runs. get
// returns the body of a page.
func serving(t *testing.T, dir string, args ...string) (get func(path string) string, server *exec.Cmd) {
	t.Helper()
	server = command(t, dir, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return func(path string) string {
		answer, err := http.Get(strings.TrimSpace(address) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}, server
}

// gated is the experiment small with a device of its own that, once there is a record, becomes ready only when the file
// %[1]s/seen is there. So the run cannot end before a page shows it: the program that serves yields to all others, so
// on a busy machine its pages come later than a run of seconds lasts. A device does not see /tmp.
var gated = strings.Replace(small, "allowlist", "gated", 1) + `[dut.gated]
start = "true"
ready = "test ! -s %[1]s/runs/r/` + result.TrialsFile + ` || test -e %[1]s/seen"
ready_timeout = "10m"
`

// TestServeFollowsARun serves a folder while a run measures into it, until the run has ended. The run is not disturbed.
// Long: it follows one run through all of its states.
func TestServeFollowsARun(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "gateweigh-serve-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, dir, "small.toml", fmt.Sprintf(gated, dir))
	if err := os.Mkdir(filepath.Join(dir, runsFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	get, server := serving(t, dir)
	if !strings.Contains(get(""), "There is no run yet") {
		t.Error("an empty folder has runs")
	}
	run := start(t, dir, command(t, dir, "run", "small.toml", "--out", "runs/r"))
	run.await(t, "the run's progress", func() error {
		p, err := result.ReadProgress(filepath.Join(dir, "runs/r"))
		if err == nil && (p.Blocks != 3 || p.Windows != 12 || p.Doing == "" || p.Left <= 0) {
			err = fmt.Errorf("it is %+v", p)
		}
		return err
	})
	shows := func(path string, words ...string) func() error {
		return func() error {
			page := get(path)
			for _, w := range words {
				if !strings.Contains(page, w) {
					_, body, _ := strings.Cut(page, "<main")
					return fmt.Errorf("the page lacks %s: %.3000s", w, body)
				}
			}
			return nil
		}
	}
	run.await(t, "records on the page", shows("run?run=r", `id="progress"`, "gated, block", "The last "))
	run.await(t, "the metrics of a run that goes on",
		shows("metrics", `gateweigh_run_windows_planned{experiment="small",run="r"} 12`))
	write(t, dir, "seen", "")
	if err := run.cmd.Wait(); err != nil && run.cmd.ProcessState.ExitCode() != exitRejected {
		t.Fatalf("%v: %s", err, run.said(t))
	}
	netnstest.Await(t, "the end of the run on the page", func() error {
		if shows("run?run=r", `id="progress"`)() == nil {
			return errors.New("it says that the run goes on")
		}
		return shows("run?run=r", "What it costs")()
	})
	if _, err := os.Stat(filepath.Join(dir, "runs/r", result.ProgressFile)); err == nil {
		t.Error("a run that has ended says how far it is")
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the end of serve: %v", err)
	}
}

// TestServeRefuses: serve refuses settings that would show runs to strangers, and says what to do.
func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"open": "0123456789abcdef", "short": "0123456789", "two": "0123456789 abcdefgh"} {
		if err := os.Chmod(
			write(t, dir, name, text), map[bool]os.FileMode{true: 0o644, false: 0o600}[name == "open"]); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"give a token (--token-file FILE)":            {".", "--listen", "0.0.0.0:0"},
		"--listen :0 is reached from other machines":  {".", "--listen", ":0"},
		"want an address with its port":               {".", "--listen", "127.0.0.1"},
		"may be read by others: chmod 600 open":       {".", "--token-file", "open"},
		"want one word of 16 characters or more":      {".", "--token-file", "short"},
		"one word of 16 characters or more":           {".", "--token-file", "two"},
		"--token-file nowhere does not exist":         {".", "--token-file", "nowhere"},
		"--tls-cert and --tls-key belong together":    {".", "--tls-cert", "open"},
		"name the folder that runs are in":            {"nowhere"},
		"is not a folder: name the one that runs are": {"open"},
	} {
		if e := finish(t, command(t, dir, append([]string{"serve"}, args...)...)); e.code != exitUsage || e.stdout != "" ||
			!strings.Contains(e.stderr, want) {
			t.Errorf("%v: code %d, %s; want %q", args, e.code, e.stderr, want)
		}
	}
}

// TestTrend: trend takes all runs of an experiment in a folder, or named runs and bundles. It refuses runs that do not
// belong together. Long: each refusal has a line.
func TestTrend(t *testing.T) {
	dir := t.TempDir()
	for name, ratio := range map[string]float64{"a": 2, "b": 2, "c": 3, "other": 2} {
		run := analysistest.Run(analysistest.Spec{
			Seed: 1, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: ratio}}, Clients: []int{20}, Offered: []float64{500},
			Blocks: 3, Windows: 2, AABlocks: 2, BlockSD: 0.01, WindowSD: 0.015})
		run.Environment.Experiment, run.Environment.Measure = "quick", "cost"
		if run.Environment.Start = run.Environment.Start.AddDate(0, 0, int(name[0])); name == "other" {
			run.Environment.Experiment = name
		}
		folder := filepath.Join(dir, runsFolder, name)
		if err := analysistest.Write(folder, run); err != nil {
			t.Fatal(err)
		}
	}
	if e := finish(t, command(t, dir, "bundle", "runs/c", "-o", "c.tar.gz")); e.code != 0 {
		t.Fatalf("%d\n%s", e.code, e.stderr)
	}
	e := finish(t, command(t, dir, "trend", "quick", "--html", "course.html"))
	if e.code != 0 || !strings.Contains(e.stdout, "over 3 runs") || strings.Count(e.stdout, "●") != 3 {
		t.Errorf("%d\n%s%s", e.code, e.stdout, e.stderr)
	}
	if page := string(read(t, dir, "course.html")); !strings.Contains(
		page, "apart from those of the run before it: allowlist") ||
		strings.Contains(page, "href=\"/") {
		t.Error("the page does not say what has changed, or leads to a server")
	}
	e = finish(t, command(t, dir, "trend", "runs/a", "c.tar.gz", "--csv"))
	rows, err := csv.NewReader(strings.NewReader(e.stdout)).ReadAll()
	if e.code != 0 || err != nil || len(rows) != 3 || rows[2][0] != "c.tar.gz" {
		t.Errorf("%d %v %v\n%s", e.code, err, rows, e.stderr)
	}
	for want, args := range map[string][]string{
		"these are runs of several experiments (other, quick)":            {"runs"},
		"runs has no run of an experiment \"quic\", and nothing else":     {"quic"},
		"no metric is called \"cpu\"":                                     {"quick", "--metric", "cpu"},
		"--csv and --json would both be standard output":                  {"quick", "--csv", "--json"},
		"by \"week\": want date or version":                               {"quick", "--by", "week"},
		"--runs is where the runs of an EXPERIMENT are":                   {"runs/a", "--runs", "runs"},
		"nowhere does not exist: name the folder that runs are in":        {"quick", "--runs", "nowhere"},
		"no run can be read: ./nowhere is not a run folder, nor a bundle": {"./nowhere"},
	} {
		if e := finish(t, command(t, dir, append([]string{"trend"}, args...)...)); e.code == 0 ||
			!strings.Contains(e.stderr, want) {
			t.Errorf("%v: code %d, %s; want %q", args, e.code, e.stderr, want)
		}
	}
}
