package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestCompareLooksIntoFiles: cells of two runs whose files of frame sizes have one name are compared where the files are the
// same.
func TestCompareLooksIntoFiles(t *testing.T) {
	dir := t.TempDir()
	for name, sizes := range map[string]string{"a": "60,1", "same": "60,1", "other": "1514,1"} {
		run := analysistest.Run(analysistest.Spec{
			Seed: 1, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: 1.2}}, Clients: []int{20}, Offered: []float64{500}, Blocks: 3, Windows: 2, AABlocks: 2,
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
		said := strings.Join(strings.Fields(e.stdout), " ")
		if strings.Contains(said, "x.csv is another file of frame sizes in B") != differs || strings.Contains(said, "No cell is in both runs") != differs {
			t.Errorf("a and %s: %+v", other, e)
		}
	}
}
