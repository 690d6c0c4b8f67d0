// Compares the files of frame sizes of two runs. A cell may name such a file, and the file may have changed.

package compare

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// inputs returns the SHA-256 sums of a run's files of frame sizes, by the names that its cells use. A run without a
// folder has none.
func inputs(dir string) map[string]string {
	out := map[string]string{}
	if dir == "" {
		return out
	}
	files, err := os.ReadDir(filepath.Join(dir, result.FramesFolder))
	if err != nil {
		return out // the experiment names no file
	}
	for _, f := range files {
		if data, err := os.ReadFile(filepath.Join(dir, result.FramesFolder, f.Name())); err == nil {
			sum := sha256.Sum256(data)
			out[f.Name()] = hex.EncodeToString(sum[:])
		}
	}
	return out
}

// otherInputs returns the names of files of frame sizes whose contents differ between two runs, sorted.
func otherInputs(a, b result.Run) (names []string) {
	sumsA, sumsB := inputs(a.Dir), inputs(b.Dir)
	for _, name := range sortedKeys(sumsA, sumsB) {
		if sumsA[name] != "" && sumsB[name] != "" && sumsA[name] != sumsB[name] {
			names = append(names, name)
		}
	}
	return names
}

// inputWarnings names the files that differ.
func inputWarnings(names []string) (out []string) {
	for _, name := range names {
		out = append(out,
			fmt.Sprintf("%s is another file of frame sizes in B than in A: cells with it are not compared.", name))
	}
	return out
}

// sameFrames reports whether a cell has the same frames in both runs.
func sameFrames(c result.Cell, others []string) bool {
	return !slices.Contains(others, c.Text(result.FrameSize))
}
