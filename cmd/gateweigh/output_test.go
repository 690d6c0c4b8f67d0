// Tests of output to a full disk or a closed pipe.

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder. simulated(t, dir, name, seed, ratio) writes
// a run folder with simulated trials, in which a device costs ratio times as much as the clean router. profiled adds a
// CPU profile to a run folder.

// TestFullOutput: every command fails with an error when it cannot write its output, because the disk is full.
func TestFullOutput(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	profiled(t, dir+"/r")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, line := range []string{"", "--help", "--version", "help run", "run --help", "list", "list quick",
		"list opennds", "list --json", "doctor --quick",
		"kernel", "kernel list", "report r", "report r --json", "explain r allowlist", "explain r allowlist --json",
		"compare r r", "compare r r --json",
		"compare r r --max-regression 5% --markdown - --junit gate.xml", "bundle r", "clean", "completion bash",
		"sink recv --interface lo"} {
		cmd := command(t, dir, strings.Fields(line)...)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = full, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed ||
			!strings.Contains(stderr.String(), "writing to standard output: no space left on device") {
			t.Errorf("gateweigh %s: exit %d, %s", line, code, stderr.String())
		}
	}
	if !strings.Contains(string(read(t, dir, "gate.xml")), "<testsuites") {
		t.Error("compare wrote no JUnit because its table had no place")
	}
}

// TestClosedPipe: SIGPIPE ends a command when the reader of its output has closed the pipe, as shells expect.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := command(t, t.TempDir(), "list")
	cmd.Stdout = w
	_ = cmd.Run()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("%v, want SIGPIPE", cmd.ProcessState)
	}
}
