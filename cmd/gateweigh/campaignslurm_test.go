// Tests of a campaign whose jobs Slurm runs.

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/slurmtest"
	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// start runs a command in the background, and said returns its standard error so far.

var wholeCampaign = flag.Bool("whole-campaign", false,
	"the campaign's lost node is noticed by Slurm alone, and its run gets profiles: half a minute more")

// TestCampaignOnSlurm runs a shortened experiment on three nodes of a real Slurm. One node dies with all its processes
// in the middle of a block. The campaign does that block again on another node and keeps the finished ones. Every
// command reads the collected run. The test tells Slurm of the death; tests of lab/campaign show that Slurm also finds
// out by itself.
func TestCampaignOnSlurm(t *testing.T) {
	cluster := slurmtest.StartApart(t, 3)
	dir := t.TempDir()
	cmd := command(t, dir, "campaign", "start", "portal-clients", "--out", "c",
		"--set", "duts=allowlist", "--set", "clients=1,10", "--set", "offered_mbps=20", "--set", "blocks=2",
		"--set", "aa_blocks=1", "--set", "windows=1", "--set", "warmup=100ms", "--set", "window=200ms")
	var out bytes.Buffer
	cmd.Stdout = &out
	b := start(t, dir, cmd)
	lost := killBusyNode(t, cluster, filepath.Join(dir, "c"))
	finished := attemptEnds(t, dir)
	if !*wholeCampaign {
		cluster.Slurm("scontrol", "update", "NodeName="+lost, "State=DOWN", "Reason=power")
	}
	if err := b.cmd.Wait(); err != nil || !strings.Contains(out.String(), "6 of 6 shares done") {
		t.Fatalf("%v\n%s%s", err, out.String(), b.said(t))
	}
	for file, text := range attemptEnds(t, dir) {
		if before, was := finished[file]; was && before != text {
			t.Errorf("%s was written again", file)
		}
		delete(finished, file)
	}
	if len(finished) > 0 {
		t.Errorf("finished blocks were lost: %v", finished)
	}
	measured(t, finish(t, command(t, dir, "campaign", "collect", "c", "--out", "r")))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Blocks) != 6 || run.Repeated != 0 || run.Environment.Interrupted {
		t.Fatalf("%v; %d blocks, %d records twice, interrupted: %v", err, len(run.Blocks), run.Repeated,
			run.Environment.Interrupted)
	}
	checkPlan(t, dir, run)
	checkCommands(t, dir)
}

// checkPlan requires a run to hold each block of the plan once, with the device in the lab that the plan names.
func checkPlan(t *testing.T, dir string, run result.Run) {
	t.Helper()
	c, err := campaign.Open(filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Experiment(0, measure.Catalogue())
	if err != nil {
		t.Fatal(err)
	}
	var planned, made []string
	for _, b := range e.Plan() {
		planned = append(planned, fmt.Sprint(b.Cells[0], b.Index, b.DUTLab, b.AA))
	}
	for _, trial := range run.Trials {
		if trial.Attempt == 0 {
			made = append(made, fmt.Sprint(trial.Cell, trial.Block, trial.DUTLab, trial.AA))
		}
	}
	slices.Sort(planned)
	if slices.Sort(made); !slices.Equal(planned, made) {
		t.Errorf("planned were\n%s\nand measured\n%s", strings.Join(planned, "\n"), strings.Join(made, "\n"))
	}
}

// killBusyNode waits until one block is done and another is being measured. It kills all processes of the node that
// measures, and returns that node's name.
func killBusyNode(t *testing.T, cluster *slurmtest.Cluster, dir string) (lost string) {
	t.Helper()
	cluster.Wait("a block at work beside one that is done", func() bool {
		c, err := campaign.Open(dir)
		if err != nil {
			return false // not made yet
		}
		s, err := c.Survey(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range s.Nodes {
			var name string
			var share int
			if _, err := fmt.Sscan(n.Running, &name, &share); err != nil || s.Done == 0 {
				continue
			}
			// A block with records is about to end: wait for another.
			written, err := filepath.Glob(filepath.Join(dir, "blocks", name, fmt.Sprintf("%05d-*", share), result.TrialsFile))
			if err == nil && len(written) == 0 {
				lost = n.Name
			}
		}
		return lost != ""
	})
	cluster.KillNode(lost)
	broken, err := filepath.Glob(filepath.Join(dir, "blocks/*/*"))
	if err != nil || len(broken) <= len(attemptEnds(t, filepath.Dir(dir))) {
		t.Fatalf("%v: all of %v have ended, nothing was broken off", err, broken)
	}
	return lost
}

// attemptEnds returns the content of every end.json of the campaign in dir/c: how each attempt at a block ended.
func attemptEnds(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "c/blocks/*/*/end.json"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

// checkCommands requires the commands that read runs to accept r, the run collected from the campaign c.
func checkCommands(t *testing.T, dir string) {
	t.Helper()
	e := finish(t, command(t, dir, "report", "r"))
	measured(t, e)
	if !strings.Contains(e.stdout, "portal-clients") || !strings.Contains(e.stdout, "allowlist") {
		t.Errorf("report: %s", e.stdout)
	}
	measured(t, finish(t, command(t, dir, "trend", "r", "r")))
	if e := finish(t, command(t, dir, "compare", "r", "r")); e.code != 0 || !strings.Contains(e.stdout, "allowlist") {
		t.Errorf("compare: exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
	if e := finish(t, command(t, dir, "explain", "r", "allowlist")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "gateweigh run --resume r --profile") {
		t.Errorf("explain without a profile: exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
	get, _ := serving(t, dir, ".")
	for page, want := range map[string]string{
		"run?run=r": "allowlist", "campaign?campaign=c": "6 of 6 shares done", "": "portal-clients"} {
		if text := get(page); !strings.Contains(text, want) {
			t.Errorf("the page %q lacks %q:\n%s", page, want, text)
		}
	}
	if !*wholeCampaign {
		return
	}
	before := trials(t, filepath.Join(dir, "r"))
	measured(t, finish(t, command(t, dir, "run", "--resume", "r", "--profile")))
	if !bytes.Equal(before, trials(t, filepath.Join(dir, "r"))) {
		t.Error("profiles have changed the trials")
	}
	e = finish(t, command(t, dir, "explain", "r", "allowlist", "--clients", "10"))
	measured(t, e)
	if profiles, err := filepath.Glob(filepath.Join(dir, "r", result.ProfilesFolder, "*")); err != nil ||
		len(profiles) == 0 {
		t.Errorf("no profiles: %v", err)
	}
}
