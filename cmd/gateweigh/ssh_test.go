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
	before := map[string]string{}
	for _, name := range sshtest.Names {
		before[name] = m.Look(t, name)
	}
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
	for _, name := range sshtest.Names {
		site := run.Environment.Machines[name]
		if site.Address != name || site.Kernel == "" || site.CPUs == 0 || site.AgentSHA256 == "" || len(site.Interfaces) < 2 {
			t.Errorf("machine of %s: %+v", name, site)
		}
		m.Restored(t, name, before[name])
	}
}
