package campaign_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/slurmtest"
	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// TestFaultsOnSlurm runs simulated blocks on a real Slurm while faults of a cluster happen. Each fault has a clear
// outcome, and finished blocks stay.
func TestFaultsOnSlurm(t *testing.T) {
	cluster := slurmtest.Start(t, 3)
	t.Run("as its table asks", func(t *testing.T) { asked(t, cluster) })
	t.Run("without its container", func(t *testing.T) { uncontained(t, cluster) })
	t.Run("job requeued by hand", func(t *testing.T) { requeued(t, cluster) })
	t.Run("job cancelled by hand", func(t *testing.T) { cancelled(t, cluster) })
	t.Run("drained, and slurmctld down", func(t *testing.T) { unanswered(t, cluster) })
	t.Run("folder not shared", func(t *testing.T) { notShared(t, cluster) })
	t.Run("node and daemon lost", func(t *testing.T) { lostNodes(t, cluster) })
}

// held begins a campaign on Slurm whose blocks wait until release is called.
func held(t *testing.T, blocks int) (opened *campaign.Campaign, release func()) {
	t.Helper()
	opened = begin(t, filepath.Join(shared(t), "c"), blocks, 0)
	hold := filepath.Join(opened.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	submitMissing(t, opened)
	return opened, func() { os.Remove(hold) }
}

// shared makes a folder that all nodes share.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "campaign")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// submitMissing submits the missing shares of a campaign.
func submitMissing(t *testing.T, opened *campaign.Campaign) {
	t.Helper()
	status := survey(t, opened)
	if err := opened.Submit(context.Background(), status.Missing(), status.Avoid()); err != nil {
		t.Fatal(err)
	}
}

// awaitStatus waits until the campaign reaches a status, and releases requeued jobs meanwhile.
func awaitStatus(t *testing.T, cluster *slurmtest.Cluster, opened *campaign.Campaign, what string,
	reached func(campaign.Status) bool) (status campaign.Status) {
	t.Helper()
	cluster.Wait(what, func() bool {
		status = survey(t, opened)
		if status.Unanswered == "" {
			if err := opened.Release(context.Background(), status.Jobs()); err != nil {
				t.Log(err) // a job may end meanwhile
			}
		}
		return reached(status)
	})
	return status
}

func problemTexts(status campaign.Status) (text string) {
	for _, p := range status.Problems {
		text += p.Text + "\n"
	}
	return text
}

func complete(status campaign.Status) bool { return status.Complete() && status.Finished() }

func running(n int) func(campaign.Status) bool {
	return func(status campaign.Status) bool {
		begun := 0
		for _, node := range status.Nodes {
			if node.Running != "" {
				begun++
			}
		}
		return status.Running == n && begun == n
	}
}

// tiny is an experiment of two blocks.
const tiny = "duts = [\"one\"]\nclients = [1]\nblocks = 2\naa_blocks = 0\nwindows = 1\n"

// asked starts a campaign of two experiments. One has the table [slurm] of the example, and its jobs must have the
// options of that table.
func asked(t *testing.T, cluster *slurmtest.Cluster) {
	example, err := os.ReadFile("../../examples/slurm.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(example), "[slurm]")
	table = regexp.MustCompile(`(?m)^container = .*$`).ReplaceAllString(
		strings.Replace(table, "nodes = 12", "nodes = 1", 1), "")
	opened := create(t, campaign.New{Dir: filepath.Join(shared(t), "c"),
		Slurm:       experiment.Slurm{Nodes: 2, Partition: "lab"},
		Experiments: []*experiment.Experiment{parse(t, "asked", tiny+"[slurm]"+table), parse(t, "plain", tiny)}})
	hold := filepath.Join(opened.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	submitMissing(t, opened)
	status := awaitStatus(t, cluster, opened, "blocks at work",
		func(status campaign.Status) bool { return status.Running == 3 && status.Waiting == 1 })
	if !strings.Contains(problemTexts(status), "as many nodes as [slurm] nodes allows are at work") {
		t.Errorf("a job that waits for its like: %s", problemTexts(status))
	}
	jobs := strings.Split(cluster.Slurm("scontrol", "show", "job", "-o"), "\n")
	for _, want := range []string{
		"Partition=lab", "Account=networks", "Features=amd&10g", "TimeLimit=00:20:00", "OverSubscribe=NO", "Requeue=1"} {
		if !slices.ContainsFunc(jobs, func(j string) bool {
			return strings.Contains(j, "JobName=asked ") && strings.Contains(j, want)
		}) {
			t.Errorf("no job has %s: %s", want, strings.Join(jobs, "\n"))
		}
	}
	os.Remove(hold)
	awaitStatus(t, cluster, opened, "campaign done", complete)
	for part, name := range []string{"asked", "plain"} {
		collected, err := opened.Collect(part, filepath.Join(opened.Dir, "run", name), simulated, writeExperiment)
		if err != nil || collected.Shares != 2 || collected.Missing != 0 {
			t.Errorf("%s: %v, collected %+v", name, err, collected)
		}
	}
}

// uncontained asks for a container on nodes without a container runtime, where Slurm runs the jobs without one.
func uncontained(t *testing.T, cluster *slurmtest.Cluster) {
	text := tiny + "[slurm]\ncontainer = \"/shared/bundles/gateweigh\"\n"
	opened := create(t, campaign.New{Dir: filepath.Join(shared(t), "c"),
		Experiments: []*experiment.Experiment{parse(t, "tiny", text)}})
	submitMissing(t, opened)
	status := awaitStatus(t, cluster, opened, "end", func(status campaign.Status) bool { return status.Finished() })
	if status.Done != 0 || status.Open != 2 ||
		!strings.Contains(problemTexts(status), "starts jobs without the container of [slurm]") {
		t.Errorf("without containers: %+v", status)
	}
}

// requeued requeues a job as an administrator would: another attempt at its share begins at once.
func requeued(t *testing.T, cluster *slurmtest.Cluster) {
	opened, release := held(t, 2)
	status := awaitStatus(t, cluster, opened, "three blocks at work", running(3))
	for _, job := range status.Jobs() {
		if job.Number == 1 {
			cluster.Slurm("scontrol", "requeue", fmt.Sprintf("%s_%d", job.Array, job.Task))
		}
	}
	awaitStatus(t, cluster, opened, "second attempt",
		func(status campaign.Status) bool { return status.Repeated == 1 && status.Running == 3 })
	release()
	if status := awaitStatus(t, cluster, opened, "campaign done", complete); status.Repeated != 1 {
		t.Errorf("%d attempts were repeated, want 1: %+v", status.Repeated, status)
	}
}

func cancelled(t *testing.T, cluster *slurmtest.Cluster) {
	opened, release := held(t, 3)
	status := awaitStatus(t, cluster, opened, "three blocks at work", running(3))
	for _, job := range status.Jobs() {
		if job.Number == 1 {
			cluster.Slurm("scancel", fmt.Sprintf("%s_%d", job.Array, job.Task))
		}
	}
	awaitStatus(t, cluster, opened, "one of them gone", func(status campaign.Status) bool { return status.Open == 1 })
	release()
	status = awaitStatus(t, cluster, opened, "end", func(status campaign.Status) bool { return status.Finished() })
	if status.Done != 3 || status.Open != 1 || !strings.Contains(problemTexts(status), "cancelled") {
		t.Fatalf("after a job was cancelled: %+v", status)
	}
	submitMissing(t, opened)
	awaitStatus(t, cluster, opened, "resumed campaign done", complete)
	collected, run := collect(t, opened, filepath.Join(opened.Dir, "run"))
	if collected.Missing != 0 || len(run.Trials) != 8 || run.Environment.Interrupted {
		t.Fatalf("collected %+v with %d trials", collected, len(run.Trials))
	}
}

func unanswered(t *testing.T, cluster *slurmtest.Cluster) {
	opened, release := held(t, 3)
	awaitStatus(t, cluster, opened, "three blocks at work", running(3))
	cluster.Slurm("scontrol", "update", "NodeName=node[1-3]", "State=DRAIN", "Reason=test")
	status := survey(t, opened)
	if status.Running != 3 || status.Waiting != 1 || problemTexts(status) == "" {
		t.Errorf("with all nodes drained: %+v", status)
	}
	cluster.AwaitSaved()
	cluster.KillController()
	if status := survey(t, opened); status.Unanswered == "" || status.Finished() {
		t.Errorf("without slurmctld: %+v", status)
	}
	release()
	cluster.Wait("blocks done without slurmctld", func() bool {
		list, _ := filepath.Glob(filepath.Join(opened.Dir, "blocks", "tiny", "*", "end.json"))
		return len(list) == 3
	})
	cluster.StartController()
	cluster.Wait("slurmctld", func() bool { return survey(t, opened).Unanswered == "" })
	for _, node := range []string{"node1", "node2", "node3"} {
		cluster.Slurm("scontrol", "update", "NodeName="+node, "State=RESUME")
	}
	awaitStatus(t, cluster, opened, "campaign done", complete)
}

func notShared(t *testing.T, cluster *slurmtest.Cluster) {
	cluster.KillNode("node2")
	folder := shared(t)
	cluster.StartNodeWithout("node2", folder)
	cluster.AwaitIdle(3)
	opened := begin(t, filepath.Join(folder, "c"), 3, 0)
	submitMissing(t, opened)
	status := awaitStatus(t, cluster, opened, "end", func(status campaign.Status) bool { return status.Finished() })
	if status.Open == 0 || !strings.Contains(problemTexts(status), "node2 does not see this campaign's folder") {
		t.Fatalf("with a node that lacks the folder: %+v", status)
	}
	if status := survey(t, opened); len(status.Avoid()) != 1 || status.Avoid()[0] != "node2" {
		t.Fatalf("nodes to avoid are %v", status.Avoid())
	}
	submitMissing(t, opened)
	awaitStatus(t, cluster, opened, "campaign done by the others", complete)
	cluster.KillNode("node2")
	cluster.StartNode("node2")
	cluster.AwaitIdle(3)
}

// lostNodes kills all processes of one node, and only the daemon of another node, whose job lives on.
func lostNodes(t *testing.T, cluster *slurmtest.Cluster) {
	opened, release := held(t, 3)
	awaitStatus(t, cluster, opened, "three blocks at work", running(3))
	cluster.KillNode("node2")
	cluster.KillDaemon("node3")
	awaitStatus(t, cluster, opened, "two jobs put back", func(status campaign.Status) bool {
		again := 0
		for _, job := range status.Jobs() {
			again += min(1, job.Restarts)
		}
		return again == 2
	})
	release()
	status := awaitStatus(t, cluster, opened, "campaign done", complete)
	// Whether the job that lived on ends before its second attempt begins is chance.
	if status.Repeated < 1 || status.Repeated > 2 {
		t.Errorf("%d attempts were repeated, want 1 or 2: %+v", status.Repeated, status)
	}
	collected, run := collect(t, opened, filepath.Join(opened.Dir, "run"))
	if collected.Missing != 0 || collected.Left < 1 || len(run.Trials) != 8 || run.Repeated != 0 {
		t.Fatalf("collected %+v with %d trials, %d of them twice", collected, len(run.Trials), run.Repeated)
	}
}
