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

// TestFaultsOnSlurm has simulated blocks on a real Slurm, in the faults that a cluster knows: a clear outcome each, and
// what was finished stays.
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

// held begins a campaign on Slurm whose blocks hold until release is called.
func held(t *testing.T, blocks int) (c *campaign.Campaign, release func()) {
	t.Helper()
	c = begin(t, filepath.Join(shared(t), "c"), blocks, 0)
	hold := filepath.Join(c.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hand(t, c)
	return c, func() { os.Remove(hold) }
}

// shared is a folder that all nodes have.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "campaign")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// hand hands out what a campaign lacks.
func hand(t *testing.T, c *campaign.Campaign) {
	t.Helper()
	s := survey(t, c)
	if err := c.Submit(context.Background(), s.Missing(), s.Avoid()); err != nil {
		t.Fatal(err)
	}
}

// reach waits for a state, and lets jobs of lost nodes begin at once.
func reach(t *testing.T, cluster *slurmtest.Cluster, c *campaign.Campaign, what string,
	reached func(campaign.Status) bool) (s campaign.Status) {
	t.Helper()
	cluster.Wait(what, func() bool {
		s = survey(t, c)
		if s.Unanswered == "" {
			if err := c.Release(context.Background(), s.Jobs()); err != nil {
				t.Log(err) // a job may end meanwhile
			}
		}
		return reached(s)
	})
	return s
}

func said(s campaign.Status) (text string) {
	for _, p := range s.Problems {
		text += p.Text + "\n"
	}
	return text
}

func complete(s campaign.Status) bool { return s.Complete() && s.Finished() }

func running(n int) func(campaign.Status) bool {
	return func(s campaign.Status) bool {
		begun := 0
		for _, node := range s.Nodes {
			if node.Running != "" {
				begun++
			}
		}
		return s.Running == n && begun == n
	}
}

// tiny is an experiment of two blocks.
const tiny = "duts = [\"one\"]\nclients = [1]\nblocks = 2\naa_blocks = 0\nwindows = 1\n"

// asked has two experiments in one campaign, one with the table of the example, which Slurm is held against.
func asked(t *testing.T, cluster *slurmtest.Cluster) {
	example, err := os.ReadFile("../../examples/slurm.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(example), "[slurm]")
	table = regexp.MustCompile(`(?m)^container = .*$`).ReplaceAllString(
		strings.Replace(table, "nodes = 12", "nodes = 1", 1), "")
	c := create(t, campaign.New{Dir: filepath.Join(shared(t), "c"), Slurm: experiment.Slurm{Nodes: 2, Partition: "lab"},
		Experiments: []*experiment.Experiment{parse(t, "asked", tiny+"[slurm]"+table), parse(t, "plain", tiny)}})
	hold := filepath.Join(c.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hand(t, c)
	s := reach(t, cluster, c, "blocks at work", func(s campaign.Status) bool { return s.Running == 3 && s.Waiting == 1 })
	if !strings.Contains(said(s), "as many nodes as [slurm] nodes allows are at work") {
		t.Errorf("a job that waits for its like: %s", said(s))
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
	reach(t, cluster, c, "campaign done", complete)
	for part, name := range []string{"asked", "plain"} {
		got, err := c.Collect(part, filepath.Join(c.Dir, "run", name), simulated, writeExperiment)
		if err != nil || got.Shares != 2 || got.Missing != 0 {
			t.Errorf("%s: %v, collected %+v", name, err, got)
		}
	}
}

// uncontained has a container on nodes without a runtime for it, where Slurm runs the jobs all the same.
func uncontained(t *testing.T, cluster *slurmtest.Cluster) {
	text := tiny + "[slurm]\ncontainer = \"/shared/bundles/gateweigh\"\n"
	c := create(t, campaign.New{Dir: filepath.Join(shared(t), "c"),
		Experiments: []*experiment.Experiment{parse(t, "tiny", text)}})
	hand(t, c)
	s := reach(t, cluster, c, "end", func(s campaign.Status) bool { return s.Finished() })
	if s.Done != 0 || s.Open != 2 || !strings.Contains(said(s), "starts jobs without the container of [slurm]") {
		t.Errorf("without containers: %+v", s)
	}
}

// requeued has an administrator put a job back into the queue: its block is done again at once.
func requeued(t *testing.T, cluster *slurmtest.Cluster) {
	c, release := held(t, 2)
	s := reach(t, cluster, c, "three blocks at work", running(3))
	for _, j := range s.Jobs() {
		if j.Number == 1 {
			cluster.Slurm("scontrol", "requeue", fmt.Sprintf("%s_%d", j.Array, j.Task))
		}
	}
	reach(t, cluster, c, "second attempt", func(s campaign.Status) bool { return s.Again == 1 && s.Running == 3 })
	release()
	if s := reach(t, cluster, c, "campaign done", complete); s.Again != 1 {
		t.Errorf("%d attempts were repeated, want 1: %+v", s.Again, s)
	}
}

func cancelled(t *testing.T, cluster *slurmtest.Cluster) {
	c, release := held(t, 3)
	s := reach(t, cluster, c, "three blocks at work", running(3))
	for _, j := range s.Jobs() {
		if j.Number == 1 {
			cluster.Slurm("scancel", fmt.Sprintf("%s_%d", j.Array, j.Task))
		}
	}
	reach(t, cluster, c, "one of them gone", func(s campaign.Status) bool { return s.Open == 1 })
	release()
	s = reach(t, cluster, c, "end", func(s campaign.Status) bool { return s.Finished() })
	if s.Done != 3 || s.Open != 1 || !strings.Contains(said(s), "cancelled") {
		t.Fatalf("after a job was cancelled: %+v", s)
	}
	hand(t, c)
	reach(t, cluster, c, "resumed campaign done", complete)
	got, run := collect(t, c, filepath.Join(c.Dir, "run"))
	if got.Missing != 0 || len(run.Trials) != 8 || run.Environment.Interrupted {
		t.Fatalf("collected %+v with %d trials", got, len(run.Trials))
	}
}

func unanswered(t *testing.T, cluster *slurmtest.Cluster) {
	c, release := held(t, 3)
	reach(t, cluster, c, "three blocks at work", running(3))
	cluster.Slurm("scontrol", "update", "NodeName=node[1-3]", "State=DRAIN", "Reason=test")
	s := survey(t, c)
	if s.Running != 3 || s.Waiting != 1 || said(s) == "" {
		t.Errorf("with all nodes drained: %+v", s)
	}
	cluster.AwaitSaved()
	cluster.KillController()
	if s := survey(t, c); s.Unanswered == "" || s.Finished() {
		t.Errorf("without slurmctld: %+v", s)
	}
	release()
	cluster.Wait("blocks done without slurmctld", func() bool {
		list, _ := filepath.Glob(filepath.Join(c.Dir, "blocks", "tiny", "*", "end.json"))
		return len(list) == 3
	})
	cluster.StartController()
	cluster.Wait("slurmctld", func() bool { return survey(t, c).Unanswered == "" })
	for _, node := range []string{"node1", "node2", "node3"} {
		cluster.Slurm("scontrol", "update", "NodeName="+node, "State=RESUME")
	}
	reach(t, cluster, c, "campaign done", complete)
}

func notShared(t *testing.T, cluster *slurmtest.Cluster) {
	cluster.KillNode("node2")
	folder := shared(t)
	cluster.StartNodeWithout("node2", folder)
	cluster.AwaitIdle(3)
	c := begin(t, filepath.Join(folder, "c"), 3, 0)
	hand(t, c)
	s := reach(t, cluster, c, "end", func(s campaign.Status) bool { return s.Finished() })
	if s.Open == 0 || !strings.Contains(said(s), "node2 does not see this campaign's folder") {
		t.Fatalf("with a node that lacks the folder: %+v", s)
	}
	if s := survey(t, c); len(s.Avoid()) != 1 || s.Avoid()[0] != "node2" {
		t.Fatalf("nodes to avoid are %v", s.Avoid())
	}
	hand(t, c)
	reach(t, cluster, c, "campaign done by the others", complete)
	cluster.KillNode("node2")
	cluster.StartNode("node2")
	cluster.AwaitIdle(3)
}

// lostNodes has one node die with all its processes, and the daemon of another one alone, whose job lives on.
func lostNodes(t *testing.T, cluster *slurmtest.Cluster) {
	c, release := held(t, 3)
	reach(t, cluster, c, "three blocks at work", running(3))
	cluster.KillNode("node2")
	cluster.KillDaemon("node3")
	reach(t, cluster, c, "two jobs put back", func(s campaign.Status) bool {
		again := 0
		for _, j := range s.Jobs() {
			again += min(1, j.Restarts)
		}
		return again == 2
	})
	release()
	s := reach(t, cluster, c, "campaign done", complete)
	// Whether the job that lived on ends before its second attempt begins is chance.
	if s.Again < 1 || s.Again > 2 {
		t.Errorf("%d attempts were repeated, want 1 or 2: %+v", s.Again, s)
	}
	got, run := collect(t, c, filepath.Join(c.Dir, "run"))
	if got.Missing != 0 || got.Left < 1 || len(run.Trials) != 8 || run.Repeated != 0 {
		t.Fatalf("collected %+v with %d trials, %d of them twice", got, len(run.Trials), run.Repeated)
	}
}
