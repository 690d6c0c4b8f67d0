package slurmtest_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/slurmtest"
)

// TestJobsRun: a cluster starts, and runs a job on a node.
func TestJobsRun(t *testing.T) {
	c := slurmtest.Start(t, 2)
	if out := c.Slurm("srun", "-N2", "printenv", "SLURMD_NODENAME"); strings.Count(out, "node") != 2 {
		t.Fatalf("srun on two nodes printed %q", out)
	}
}
