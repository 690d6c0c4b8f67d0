// Tests of completion of commands in the shell.

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device
// costs ratio times as much as the clean router. small is an experiment of a few seconds with the device allowlist.

// TestCompletion: the completion command offers the words that fit, and bash accepts the completion script.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	write(t, dir, "own.toml", small)
	script := finish(t, command(t, dir, "completion", "bash", "--no-descriptions"))
	for line, want := range map[string][]string{
		"lis": {"list"}, "run q": {"quick"}, "run ow": {"own.toml"}, "run --set client.k": {"client.kind="},
		"run --set duts=openn":        {"duts=opennds", "duts=opennds-two"},
		"run --set duts=opennds,coov": {"duts=opennds,coovachilli", "duts=opennds,coovachilli-two"},
		"list coov":                   {"coovachilli", "coovachilli-two"},
		"explain r a":                 {"allowlist"}, "run --kernel nat": {"native"}, "run --wa": {"--wait"},
	} {
		e := finish(t, command(t, dir, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...))
		got := strings.Split(strings.TrimSpace(e.stdout), "\n")
		begun := line[strings.LastIndex(line, " ")+1:]
		got = slices.DeleteFunc(got, func(word string) bool { return !strings.HasPrefix(word, begun) })
		if e.code != 0 || !slices.Equal(got, want) {
			t.Errorf("gateweigh %s: exit %d, %q, want %q", line, e.code, got, want)
		}
	}
	check := exec.Command("bash", "-c", script.stdout+"\ncomplete -p gateweigh")
	if out, err := check.CombinedOutput(); err != nil || !strings.Contains(string(out), "__start_gateweigh gateweigh") {
		t.Errorf("bash does not take the script: %v, %s", err, out)
	}
}
