// Tests of names that are close to what the user meant.

package main

import (
	"strings"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device
// costs ratio times as much as the clean router. profiled adds a CPU profile to a run folder.

// TestMeant: for a misspelt word the error suggests the right one, and for any other wrong word nothing.
func TestMeant(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	profiled(t, dir+"/r")
	// Each command line has the whole command or the word that the error suggests.
	for line, want := range map[string]string{
		"rnu": "run", "lsit": "list", "reprot r": "report", "kernel fecth": "kernel fetch",
		"run quik": "quick", "run quick --st blocks=1": "--set", "compare --max-overhed 5% r": "--max-overhead",
		"kernel check --verbos": "--verbose",
		"run --set client=5":    "clients", "run --set traffic.knd=x": "traffic.kind", "run --set duts=opends": "opennds",
		"list opends": "opennds", "list qiuck": "quick",
		"run --kernel debain": "debian", "kernel check dbian": "debian", "kernel remove debain": "debian",
		"explain r alowlist": "allowlist", "sink map --interface lo": "mmap",
		"run --set topology=portl": "portal", "frobnicate": "", "run --zzz": "", "list zzz": "", "run --kernel 1.2": "",
	} {
		e := finish(t, command(t, dir, strings.Fields(line)...))
		want := strings.TrimPrefix(want, strings.Fields(line)[0]+" ")
		if got := strings.Contains(e.stderr, `did you mean "`+want+`"`); e.code != exitUsage || got != (want != "") ||
			want == "" && strings.Contains(e.stderr, "did you mean") {
			t.Errorf("gateweigh %s: exit %d, want %q in %s", line, e.code, want, e.stderr)
		}
	}
}
