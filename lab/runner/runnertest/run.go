// Package runnertest carries out whole runs for the tests of measures.
package runnertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// Run carries out an experiment in labs, in a temporary folder, and returns the records in it. kinds are the kinds of
// the measure's records. A failed block fails the test.
// On a busy machine trials may be rejected, but their counters are still exact.
func Run(t *testing.T, m runner.Measure, e *experiment.Experiment, kinds []result.Kind) (result.Run, runner.Outcome) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	dir := filepath.Join(t.TempDir(), "run")
	out, err := runner.Run(t.Context(), runner.Config{Measure: m, Experiment: e, Records: kinds, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range run.Blocks {
		if b.Error != "" {
			t.Errorf("%v failed: %s", b.Cell(), b.Error)
		}
	}
	return run, out
}
