// Tests of the manual that gateweigh prints.

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/manual/manualtest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist.

// TestManual: the man pages can be written, always as the same bytes, and docs/reference/commands.md matches the
// commands.
func TestManual(t *testing.T) {
	b := book(rootCommand())
	manualtest.Write(t, b, t.TempDir())
	manualtest.Page(t, b, "../../docs/reference/commands.md")
	manualtest.Again(t, func(env []string, folder string) {
		cmd := command(t, folder, "manual", folder)
		cmd.Env = append(cmd.Env, env...)
		if e := finish(t, cmd); e.code != 0 || !strings.Contains(e.stdout, folder+"/man/man1/gateweigh-kernel-exec.1\n") {
			t.Fatalf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
		}
	})
	if e := finish(t, command(t, t.TempDir(), "manual")); e.code != exitUsage {
		t.Errorf("without a folder: exit %d, %s", e.code, e.stderr)
	}
}

// TestAgentsPage: gateweigh-agent is not built with cobra. Its page describes --self-test in the words of the program.
func TestAgentsPage(t *testing.T) {
	usage := finish(t, command(t, t.TempDir(), agent.Subcommand, "-h")).stderr
	flags := agentProgram().Flags().FlagUsages()
	if !strings.Contains(flags, "--self-test") || !strings.Contains(usage, "-self-test\n") {
		t.Errorf("the page has %q, the program says %q", flags, usage)
	}
}

// TestBashCompletes: bash, with the completion script that packages install, completes command lines.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "own.toml", small)
	script := finish(t, command(t, dir, "completion", "bash")).stdout
	// The script calls a function of bash-completion that takes the words of the line apart. This one hands the words
	// over.
	const typed = `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
compopt() { :; }
while read -ra line; do
	COMP_WORDS=("$0" "${line[@]}"); COMP_CWORD=${#line[@]}; COMP_LINE="${COMP_WORDS[*]}"
	COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMPREPLY=()
	__start_gateweigh; echo "${COMPREPLY[*]}"
done`
	program := command(t, dir)
	cmd := exec.Command("bash", "-c", script+typed, program.Path)
	cmd.Dir, cmd.Env = dir, program.Env
	cmd.Stdin = strings.NewReader("doct\nrun portal-b\nrun ow\nrun --set client.k\nlist coov\n" +
		"shell quick cl\nsink mm\nrun --dut\nshell --dut openn\n")
	out, err := cmd.CombinedOutput()
	want := "doctor\nportal-bandwidth\nown.toml\nclient.kind=\ncoovachilli coovachilli-two\n" +
		"client\nmmap\n\nopennds opennds-two\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
