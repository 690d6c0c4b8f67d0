package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCompletion: the completion command offers the right words, and bash accepts the completion script.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	write(t, dir, "own.toml", small)
	script := finish(t, command(t, dir, "completion", "bash", "--no-descriptions"))
	for line, want := range map[string][]string{
		"lis": {"list"}, "run q": {"quick"}, "run ow": {"own.toml"}, "run --set client.k": {"client.kind="},
		"run --set duts=openn":        {"duts=opennds"},
		"run --set duts=opennds,coov": {"duts=opennds,coovachilli"}, "list coov": {"coovachilli"},
		"explain r a": {"allowlist"}, "run --kernel nat": {"native"}, "run --wa": {"--wait"},
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
