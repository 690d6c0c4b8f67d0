package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder.

// BenchmarkLargeReport makes the report of 10,000 blocks from 100 nodes, copied from a small real run, and prints its
// CPU time and memory. campaign collect spends nearly all its time on that.
func BenchmarkLargeReport(b *testing.B) {
	const blocks = 10_000
	dir, err := os.MkdirTemp("/dev/shm", "report")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	run := filepath.Join(dir, "run")
	if err := result.UnpackBundle(b.Context(), "../../lab/studies/testdata/portal-clients.tar.gz", run); err != nil {
		b.Fatal(err)
	}
	copyBlocks(b, filepath.Join(run, result.TrialsFile), blocks)
	for b.Loop() {
		cmd := command(b, dir, "report", "run", "-o", "out")
		if text, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, text)
		}
		used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "s-of-CPU")
		b.ReportMetric(float64(used.Maxrss)/1024, "MiB-peak")
	}
}

// copyBlocks appends copies of a run's trials, with new block numbers and one of 100 nodes each, until the run has that
// many blocks.
func copyBlocks(b *testing.B, file string, blocks int) {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	head := regexp.MustCompile(`^(\{"version":1,"kind":"trial","cell":\{[^}]*\}(?:,"aa":true)?),"block":(\d+),`)
	var out bytes.Buffer
	cells, most := map[string]bool{}, 0
	var lines [][][]byte // of each: the whole, what precedes the block's number, and that
	for line := range bytes.Lines(text) {
		if m := head.FindSubmatch(line); m != nil {
			lines = append(lines, [][]byte{line[len(m[0]):], m[1], m[2]})
			cells[string(m[1])+string(m[2])] = true
			n, _ := strconv.Atoi(string(m[2]))
			most = max(most, n+1)
		}
	}
	for turn := range blocks / len(cells) {
		for _, l := range lines {
			n, _ := strconv.Atoi(string(l[2]))
			fmt.Fprintf(&out, `%s,"block":%d,"node":"node%d",%s`, l[1], turn*most+n, (turn*most+n)%100, l[0])
		}
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
}
