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

// TestNodesDoNotChangeWhatIsMeasured: one node and three measure the same blocks with the same windows in the same
// order within a share, and make the same run but for names and times. Three need a third of the waves.
func TestNodesDoNotChangeWhatIsMeasured(t *testing.T) {
	var runs []result.Run
	var files [][]byte
	for _, nodes := range []int{1, 3} {
		c := begin(t, filepath.Join(t.TempDir(), "c"), 8, nodes)
		if n, want := waves(t, c), 9/nodes; n != want {
			t.Errorf("%d nodes: 9 shares took %d waves, want %d", nodes, n, want)
		}
		dir := filepath.Join(t.TempDir(), "run")
		got, run := collect(t, c, dir)
		if got.Missing != 0 || len(run.Environment.Nodes) != nodes {
			t.Fatalf("%d nodes: collected %+v of %+v", nodes, got, run.Environment.Nodes)
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

// waves carries a local campaign out such that blocks end together: as many as it has nodes. It counts how often.
func waves(t *testing.T, c *campaign.Campaign) (n int) {
	t.Helper()
	hold := filepath.Join(c.Dir, holdFile)
	if err := os.WriteFile(hold, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := survey(t, c).Missing()
	ended := make(chan error, 1)
	go func() { ended <- c.RunLocal(context.Background(), missing) }()
	for left := len(missing); left > 0; n++ {
		var work []string // blocks that wait for this wave's end
		for len(work) < min(left, c.Local) {
			select {
			case err := <-ended:
				t.Fatalf("with %d shares left: %v", left, err)
			case <-time.After(10 * time.Millisecond):
			}
			begun, err := filepath.Glob(filepath.Join(c.Dir, "blocks/tiny/*", result.TrialsFile))
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

// measuredBy are a run's trials without names and times, by share and in the order of measuring within one.
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

// BenchmarkThreeNodes has 12 blocks of half a second, and of three, on one node and on three, and says what part of the
// time three take. Nodes of one machine share the CPU time that starting a block's process needs.
func BenchmarkThreeNodes(b *testing.B) {
	for _, ms := range []string{"500", "3000"} {
		b.Run(ms+"ms", func(b *testing.B) {
			b.Setenv(lengthMs, ms)
			for b.Loop() {
				b.ReportMetric(carriedIn(b, 3).Seconds()/carriedIn(b, 1).Seconds(), "of-one-node's-time")
			}
		})
	}
}

// carriedIn is how long so many nodes take for 12 blocks.
func carriedIn(b *testing.B, nodes int) time.Duration {
	b.Helper()
	c := begin(b, filepath.Join(b.TempDir(), "c"), 11, nodes)
	missing := survey(b, c).Missing()
	began := time.Now()
	if err := c.RunLocal(context.Background(), missing); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	if !survey(b, c).Complete() {
		b.Fatal("blocks are missing")
	}
	return took
}
