// Tests of files that an experiment names, such as frame sizes: whether two runs had the same ones.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist. oneCell is an experiment of one
// window with the device allowlist.

// TestCompareLooksIntoFiles: two runs have cells with a file of frame sizes of the same name. compare compares the
// cells if the files have the same content.
func TestCompareLooksIntoFiles(t *testing.T) {
	dir := t.TempDir()
	for name, sizes := range map[string]string{"a": "60,1", "same": "60,1", "other": "1514,1"} {
		run := analysistest.Run(analysistest.Spec{
			Seed: 1, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: 1.2}}, Clients: []int{20}, Offered: []float64{500},
			Blocks: 3, Windows: 2, AABlocks: 2,
			BlockSD: 0.01, WindowSD: 0.015,
		})
		for i := range run.Trials {
			run.Trials[i].Cell = run.Trials[i].Cell.With(result.FrameSize, "x.csv")
		}
		for i := range run.Blocks {
			run.Blocks[i].FrameSize = "x.csv"
		}
		frames := filepath.Join(dir, name, result.FramesFolder)
		if err := os.MkdirAll(frames, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := analysistest.Write(filepath.Join(dir, name), run); err != nil {
			t.Fatal(err)
		}
		write(t, frames, "x.csv", "bytes,weight\n"+sizes+"\n")
		write(t, filepath.Join(dir, name), result.ExperimentFile, small)
	}
	if e := finish(t, command(t, dir, "bundle", "other", "-o", "other.tar.gz")); e.code != 0 {
		t.Fatalf("%+v", e)
	}
	for other, differs := range map[string]bool{"same": false, "other": true, "other.tar.gz": true} {
		e := finish(t, command(t, dir, "compare", "a", other))
		text := strings.Join(strings.Fields(e.stdout), " ")
		if strings.Contains(text, "x.csv is another file of frame sizes in B") != differs ||
			strings.Contains(text, "No cell is in both runs") != differs {
			t.Errorf("a and %s: %+v", other, e)
		}
	}
}

// TestResumeLooksIntoFiles: resume refuses a run whose copy of a file of frame sizes was changed, because its trials
// would belong to two files. The original file may change.
func TestResumeLooksIntoFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "x.csv", "60,1\n")
	write(t, dir, "other/x.csv", "1514,1\n")
	write(t, dir, "one.toml", strings.ReplaceAll(oneCell, "[100]", "[20]")+
		"frame_sizes = [\"other/x.csv\", \"x.csv\"]\ntraffic = { kind = \"frames\" }\n")
	finish(t, command(t, dir, "run", "one.toml", "-o", "r")) // whether its trials are accepted does not matter
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]bool{}
	for _, trial := range run.Trials {
		sizes[trial.Cell.Text(result.FrameSize)] = true
	}
	if len(sizes) != 2 || !sizes["x.csv"] || !sizes["other-x.csv"] || len(run.Environment.Inputs) != 2 {
		t.Fatalf("trials of %v, inputs %v", sizes, run.Environment.Inputs)
	}
	const changed = "has changed since the run began"
	write(t, dir, "x.csv", "100,1\n")
	if e := finish(t, command(t, dir, "run", "--resume", "r")); strings.Contains(e.stderr, changed) {
		t.Errorf("after the original has changed: %+v", e)
	}
	write(t, dir, "r/frames/x.csv", "bytes,weight\n100,1\n")
	if e := finish(t, command(t, dir, "run", "--resume", "r")); e.code == 0 ||
		!strings.Contains(e.stderr, "frames/x.csv "+changed) {
		t.Errorf("after the copy has changed: %+v", e)
	}
}
