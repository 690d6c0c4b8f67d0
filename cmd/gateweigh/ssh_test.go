package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// TestRunOverSSH: a run on three machines that ssh reaches, from the file to the report.
func TestRunOverSSH(t *testing.T) {
	m, dir := sshtest.New(t), t.TempDir()
	write(t, dir, "small.toml", small+m.Tables(2, ""))
	e := finish(t, command(t, dir, "run", "small.toml", "--out", "r"))
	measured(t, e)
	for _, want := range []string{"allowlist", "overhead", "r/report.html"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, e.stdout)
		}
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v\n%s", run.Environment, e.stderr)
}
