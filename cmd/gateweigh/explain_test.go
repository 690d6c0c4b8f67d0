// Tests of gateweigh explain, which tells where CPU time goes.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device costs ratio times
// as much as the clean router. leftovers lists what runs of this test left behind: processes, links, rules and mounts.
// withPath makes a command find programs in its folder.

// oneCell is an experiment of one window with a device that explain can explain.
const oneCell = `duts = ["allowlist"]
clients = [3]
offered_mbps = [100]
blocks = 1
aa_blocks = 0
windows = 1
window = "500ms"
warmup = "200ms"
redo = 0
`

// TestExplainAddsUpToTheExactTime records a real profile into a finished run. The functions' times in it must add up to
// the times that the meters counted.
func TestExplainAddsUpToTheExactTime(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.toml", oneCell)
	measured(t, finish(t, command(t, dir, "run", "one.toml", "--out", "r")))
	if e := finish(t, command(t, dir, "explain", "r", "allowlist")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "gateweigh run --resume r --profile") {
		t.Errorf("without a profile: exit %d: %s", e.code, e.stderr)
	}
	before := trials(t, filepath.Join(dir, "r"))
	profileFails(t, dir, before)
	measured(t, finish(t, command(t, dir, "run", "--resume", "r", "--profile")))
	if string(trials(t, filepath.Join(dir, "r"))) != string(before) {
		t.Error("recording the profile has changed the trials")
	}
	if run, err := measure.ReadRun(filepath.Join(dir, "r")); err != nil ||
		strings.Contains(strings.Join(run.Environment.Notes, "\n"), "No profile of") {
		t.Errorf("there is a profile now, and the notes say: %q, %v", run.Environment.Notes, err)
	}
	interruptedBeforeItsRecord(t, dir, before)
	if e := finish(t, command(t, dir, "explain", "r", "opennds")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "allowlist --clients 3 --mbps 100") {
		t.Errorf("another device: exit %d: %s", e.code, e.stderr)
	}
	out := finish(t, command(t, dir, "explain", "r", "allowlist", "--json", "-n", "1000"))
	var e report.Explanation
	if err := json.Unmarshal([]byte(out.stdout), &e); err != nil || out.code != 0 {
		t.Fatalf("exit %d: %v: %s", out.code, err, out.stderr)
	}
	checkExplanation(t, e)
	for _, name := range []string{result.DUTFoldedFile, result.CleanPprofFile} {
		if len(read(t, dir, filepath.Join("r/profiles/allowlist-3-clients-100-mbps-up-per-packet", name))) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "r/logs/perf/perf.data*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if !strings.Contains(string(read(t, dir, "r/report.html")), `id="flame-data"`) {
		t.Error("the report has no flame graph")
	}
	if table := finish(t, command(t, dir, "explain", "r", "allowlist", "--clients", "3", "-n", "5")); table.code != 0 ||
		!strings.Contains(table.stdout, "more functions") {
		t.Errorf("the table: exit %d\n%s%s", table.code, table.stdout, table.stderr)
	}
}

// profileFails resumes a run that lacks only a profile, with a device that no longer starts. The run notes why there is
// no profile, and keeps its trials.
func profileFails(t *testing.T, dir string, before []byte) {
	t.Helper()
	file := filepath.Join("r", result.ExperimentFile)
	whole := string(read(t, dir, file))
	write(t, dir, file, strings.Replace(whole, "nft -f - <<EOF", "echo broken by now >&2\nexit 1\nnft -f - <<EOF", 1))
	e := finish(t, command(t, dir, "run", "--resume", "r", "--profile"))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	notes := strings.Join(run.Environment.Notes, "\n")
	measured(t, e)
	if err != nil || string(trials(t, filepath.Join(dir, "r"))) != string(before) ||
		!strings.Contains(notes, "No profile of allowlist at 100 Mbit/s up with 3 clients") ||
		!strings.Contains(notes, "broken by now") {
		t.Errorf("exit %d, %v: notes %q, %d blocks\n%s", e.code, err, notes, len(run.Blocks), e.stderr)
	}
	write(t, dir, file, whole)
}

// interruptedBeforeItsRecord resumes a run that was interrupted while it recorded the profile of its last block. Such a
// run has all trials of the block, but not the block's record.
func interruptedBeforeItsRecord(t *testing.T, dir string, before []byte) {
	t.Helper()
	lines := bytes.SplitAfter(before, []byte("\n"))
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"kind":"block"`)) })
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "r/profiles")), os.WriteFile(filepath.Join(dir, "r",
		result.TrialsFile), bytes.Join(lines, nil), 0o644)); err != nil {
		t.Fatal(err)
	}
	measured(t, finish(t, command(t, dir, "run", "--resume", "r", "--profile")))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Trials) != 1 || len(run.Blocks) != 1 || run.Blocks[0].Error != "" ||
		cost.StayOf(run.Blocks[0]).Leased != 3 {
		t.Errorf("%v: trials %d, blocks %+v", err, len(run.Trials), run.Blocks)
	}
}

// checkExplanation requires the functions' times to add up to those of the accounts, which are exact.
func checkExplanation(t *testing.T, e report.Explanation) {
	t.Helper()
	var functions, accounts [2]float64
	path := map[string]bool{}
	for _, f := range e.Functions {
		functions[0] += float64(f.DUT)
		functions[1] += float64(f.Clean)
		path[f.Name] = true
	}
	for _, a := range e.Accounts {
		side := map[string]int{"dut": 0, "clean": 1}[a.Router]
		accounts[side] += float64(a.NsPerPacket)
		if a.Samples == 0 {
			t.Errorf("no sample of %s %s", a.Router, a.Name)
		}
	}
	for side := range functions {
		if math.Abs(functions[side]/accounts[side]-1) > 1e-3 || accounts[side] <= 0 {
			t.Errorf("functions add up to %.1f ns per packet, the accounts to %.1f", functions[side], accounts[side])
		}
	}
	for _, function := range []string{"ip_forward", "nft_do_chain"} {
		if !path[function] {
			t.Errorf("%s is not among %d functions of a forwarding router", function, len(path))
		}
	}
}

// TestPerfThatFailsCostsNoTrial: when perf fails, the run goes on and says why there is no profile.
func TestPerfThatFailsCostsNoTrial(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.toml", oneCell)
	if err := os.WriteFile(
		filepath.Join(dir, "perf"), []byte("#!/bin/sh\necho no permission for you\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := finish(t, withPath(command(t, dir, "run", "one.toml", "--profile", "--out", "r")))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Trials) != 1 || len(run.Blocks) != 1 || run.Blocks[0].Error != "" {
		t.Fatalf("%d trials, %+v, %v", len(run.Trials), run.Blocks, err)
	}
	for _, text := range []string{e.stderr, strings.Join(run.Environment.Notes, "\n")} {
		if !strings.Contains(text, "No profile of allowlist at 100 Mbit/s up with 3 clients") ||
			!strings.Contains(text, "no permission for you") {
			t.Errorf("what is missing is not said:\n%s", text)
		}
	}
}

// TestPerfEndsWithTheRun: perf ends with its run, whether the run is interrupted or killed.
func TestPerfEndsWithTheRun(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGKILL} {
		dir := t.TempDir()
		write(t, dir, "one.toml", oneCell+"profile_window = \"60s\"\n")
		cmd := command(t, dir, "run", "one.toml", "--out", "r")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		labtest.Await(t, "perf to record", func() bool {
			found, _ := filepath.Glob(filepath.Join(dir, "r/logs/perf/perf.data.0"))
			return len(found) > 0 && perfOf(t, dir) != ""
		})
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		labtest.Await(t, "perf to end after "+signal.String(), func() bool { return perfOf(t, dir) == "" })
		labtest.Await(t, "everything of the run to go", func() bool { return leftovers(t) == "" })
	}
}

// perfOf returns the command line of a perf whose working directory is dir; "" if there is none.
func perfOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		args := strings.Split(string(raw), "\x00")
		cwd, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err == nil && args[0] == "perf" && cwd == dir {
			return strings.Join(args, " ")
		}
	}
	return ""
}

// TestStormsHaveNoProfiles: run and explain refuse profiles of login storms. They do not advise to resume a complete
// run for a profile, and measure nothing again.
func TestStormsHaveNoProfiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "r"), 0o755); err != nil {
		t.Fatal(err)
	}
	w, _, err := result.OpenWriter(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(logins.KindStorm, &logins.Storm{Head: result.Head{Seconds: 1, Accepted: true},
		DUT: "opennds", Clients: 3}), w.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "r/experiment.toml", "measure = \"logins\"\nduts = [\"opennds\"]\nclients = [3]\nblocks = 1\n")
	before := trials(t, filepath.Join(dir, "r"))
	for _, args := range [][]string{
		{"run", "--resume", "r", "--profile"}, {"run", "login-storm", "--profile"}, {"explain", "r", "opennds"},
	} {
		e := finish(t, command(t, dir, args...))
		if e.code != exitUsage || !strings.Contains(e.stderr, "storms have no profiles") ||
			strings.Contains(e.stderr, "--resume r") {
			t.Errorf("%v: exit %d: %s", args, e.code, e.stderr)
		}
	}
	if !bytes.Equal(before, trials(t, filepath.Join(dir, "r"))) {
		t.Error("the run was measured again")
	}
}

// TestExplainNamesWhatItWants: explain's errors name the missing argument, the devices of the run, or the command that
// records profiles.
func TestExplainNamesWhatItWants(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	if e := finish(t, command(t, dir, "bundle", "r", "-o", "sent.tar.gz")); e.code != 0 {
		t.Fatalf("%+v", e)
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"explain r", []string{"explain RUN DEVICE"}},
		{"explain r nope", []string{"no device nope", "allowlist"}},
		{"explain r allowlist", []string{"run --resume r --profile"}},
		{"explain sent.tar.gz allowlist",
			[]string{"a bundle cannot be resumed", "tar xzf sent.tar.gz", "run --resume FOLDER --profile"}},
	} {
		e := finish(t, command(t, dir, strings.Fields(tt.args)...))
		for _, want := range tt.want {
			if e.code != exitUsage || !strings.Contains(e.stderr, want) {
				t.Errorf("%s: exit %d, no %q in %s", tt.args, e.code, want, e.stderr)
			}
		}
	}
}
