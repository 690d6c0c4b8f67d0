// Tests of gateweigh check.

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/runner"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist.

// withAbsent is an experiment with a device that no machine can run.
var withAbsent = strings.Replace(small, `["allowlist"]`, `["allowlist", "absent"]`, 1) + `
[dut.absent]
description = "needs a program that is nowhere"
start = "true"
stop = "true"
[dut.absent.requires]
no-such-program-here = "no-such-package"
`

// TestCheck: check prints what a run would measure and need, and writes nothing.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	names := func() (list []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	write(t, dir, "some.toml", withAbsent)
	before := names()
	var p runner.Preview
	e := finish(t, command(t, dir, "check", "some.toml", "--set", "blocks=3", "--json"))
	if err := json.Unmarshal([]byte(e.stdout), &p); err != nil || e.code != 0 {
		t.Fatalf("exit %d, %v: %s%s", e.code, err, e.stdout, e.stderr)
	}
	here := func(name string) bool {
		return slices.ContainsFunc(p.Devices, func(d runner.DeviceHere) bool { return d.Name == name && d.Here })
	}
	if p.Cells != 2 || p.Blocks < 3 || p.Windows < p.Blocks || !here("allowlist") || here("absent") ||
		p.Seconds.About <= 0 || len(p.Hosts) != 3 || len(p.Limits) == 0 || len(p.Problems) > 0 {
		t.Errorf("%s", e.stdout)
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("the folder had %v and has %v", before, after)
	}
}

// TestCheckEnds: check exits with the code that the run would have, and gives the reason.
func TestCheckEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "some.toml", withAbsent)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"some.toml"}, 0, "absent not here: not on PATH: no-such-program-here (package no-such-package)"},
		{[]string{"some.toml", "--set", "blcks=3"}, exitUsage, "blocks"},
		{[]string{"nosuch.toml"}, exitUsage, "nosuch.toml"},
		{[]string{"some.toml", "--set", "duts=absent"}, exitNothingRan, "a run would measure nothing here"},
		{[]string{"some.toml", "--set", "client.kind=personna"}, exitUsage, `did you mean "persona"`},
	} {
		e := finish(t, command(t, dir, append([]string{"check"}, c.args...)...))
		if e.code != c.code || !strings.Contains(strings.Join(strings.Fields(e.stdout+e.stderr), " "), c.want) {
			t.Errorf("check %v: exit %d, want %d and %q in\n%s%s", c.args, e.code, c.code, c.want, e.stdout, e.stderr)
		}
	}
}
