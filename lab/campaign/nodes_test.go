package campaign_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestNodesDoNotChangeWhatIsMeasured: one node and three nodes measure the same blocks with the same windows in the
// same order within a share. The runs differ only in names and times. Three nodes need a third of the waves.
func TestNodesDoNotChangeWhatIsMeasured(t *testing.T) {
	var runs []result.Run
	var files [][]byte
	for _, nodes := range []int{1, 3} {
		opened := begin(t, filepath.Join(t.TempDir(), "c"), 8, nodes)
		if n, want := waves(t, opened), 9/nodes; n != want {
			t.Errorf("%d nodes: 9 shares took %d waves, want %d", nodes, n, want)
		}
		dir := filepath.Join(t.TempDir(), "run")
		collected, run := collect(t, opened, dir)
		if collected.Missing != 0 || len(run.Environment.Nodes) != nodes {
			t.Fatalf("%d nodes: collected %+v of %+v", nodes, collected, run.Environment.Nodes)
		}
		text, err := os.ReadFile(filepath.Join(dir, result.ExperimentFile))
		if err != nil {
			t.Fatal(err)
		}
		runs, files = append(runs, run), append(files, text)
	}
	if one, three := measuredBy(t, runs[0]), measuredBy(t, runs[1]); !slices.Equal(one, three) || len(one) != 18 {
		t.Errorf("one node measured\n%s\nthree\n%s", one, three)
	}
	if string(files[0]) != string(files[1]) {
		t.Errorf("the experiments are\n%s\nand\n%s", files[0], files[1])
	}
	var rest []string
	for _, run := range runs {
		env := run.Environment
		env.Nodes, env.Start, env.End = nil, time.Time{}, time.Time{}
		text, err := json.Marshal(env)
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, string(text))
	}
	if rest[0] != rest[1] {
		t.Errorf("the environments are\n%s\nand\n%s", rest[0], rest[1])
	}
}

// waves carries out a local campaign in waves: in each wave all nodes measure a block, and the blocks end together. It
// returns the number of waves.
func waves(t *testing.T, opened *campaign.Campaign) (n int) {
	t.Helper()
	hold := filepath.Join(opened.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := survey(t, opened).Missing()
	ended := make(chan error, 1)
	go func() { ended <- opened.RunLocal(context.Background(), missing) }()
	for left := len(missing); left > 0; n++ {
		var work []string // blocks that wait for this wave's end
		for len(work) < min(left, opened.Local) {
			select {
			case err := <-ended:
				t.Fatalf("with %d shares left: %v", left, err)
			case <-time.After(10 * time.Millisecond):
			}
			begun, err := filepath.Glob(filepath.Join(opened.Dir, "blocks/tiny/*", result.TrialsFile))
			if err != nil {
				t.Fatal(err)
			}
			work = slices.DeleteFunc(begun, func(file string) bool { return exists(filepath.Join(filepath.Dir(file), goFile)) })
		}
		for _, file := range work {
			if err := os.WriteFile(filepath.Join(filepath.Dir(file), goFile), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		left -= len(work)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return n
}

// measuredBy returns a run's trials in JSON without names and times, sorted by share; within a share they keep their
// order.
func measuredBy(t *testing.T, run result.Run) (list []string) {
	t.Helper()
	trials := slices.Clone(run.Trials)
	slices.SortStableFunc(trials, func(a, b result.Trial) int { return a.Sitting - b.Sitting })
	for _, trial := range trials {
		trial.Node, trial.Start = "", time.Time{}
		text, err := json.Marshal(trial)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(text))
	}
	return list
}

// BenchmarkThreeNodes measures 12 blocks of 0.5 s, and of 3 s, on one node and on three nodes. It reports the time of
// three nodes divided by that of one. Nodes of one machine share its CPU time for starting processes.
func BenchmarkThreeNodes(b *testing.B) {
	for _, ms := range []string{"500", "3000"} {
		b.Run(ms+"ms", func(b *testing.B) {
			b.Setenv(lengthMs, ms)
			for b.Loop() {
				b.ReportMetric(timeOnNodes(b, 3).Seconds()/timeOnNodes(b, 1).Seconds(), "of-one-node's-time")
			}
		})
	}
}

// timeOnNodes returns the time that so many nodes take for 12 blocks.
func timeOnNodes(b *testing.B, nodes int) time.Duration {
	b.Helper()
	opened := begin(b, filepath.Join(b.TempDir(), "c"), 11, nodes)
	missing := survey(b, opened).Missing()
	began := time.Now()
	if err := opened.RunLocal(context.Background(), missing); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	if !survey(b, opened).Complete() {
		b.Fatal("blocks are missing")
	}
	return took
}
