// Tests of devices that an experiment describes itself.

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. leftoversSoon lists the processes, links, rules and mounts that runs of this test left behind.

// TestShellInALab: shell runs a command among a device's programs and with its variables, even when the device failed
// to start. It exits with the command's code.
func TestShellInALab(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.toml", "duts = [\"clean\", \"a\", \"b\"]\nclients = [2]\noffered_mbps = [10]\n"+
		portal("a", lan, "", "files = { here = \"from a\" }\n")+"[dut.b]\nstart = \"echo no such rule; exit 4\"\n")
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"a.toml", "--", "sh", "-c", "cat here; nft list ruleset; exit 9"}, 9, "from a table ip a iifname elements",
			""},
		{[]string{"a.toml", "client", "--", "sh", "-c", `echo $GATEWEIGH_CLIENT $GATEWEIGH_CLIENT_IP $GATEWEIGH_LAN`}, 0,
			"1 192.168.137.", ""},
		{[]string{"a.toml", "server", "--", "ip", "addr"}, 0, "192.168.89.1/24", ""},
		{[]string{"a.toml", "router", "--dut", "b", "--", "ip", "addr"}, 0, "192.168.137.254", "no such rule"},
		{[]string{"a.toml", "nowhere", "--", "true"}, exitUsage, "", "router, client, server"},
		{[]string{"a.toml", "--dut", "c", "--", "true"}, exitUsage, "", "clean, a, b"},
		{[]string{"capture-gateway", "--", "true"}, exitUsage, "", "captures frames"},
		{[]string{"a.toml", "router", "--"}, exitUsage, "", "name the command"},
	} {
		e := finish(t, command(t, dir, append([]string{"shell"}, c.args...)...))
		if e.code != c.code || !strings.Contains(e.stderr, c.errs) || c.errs == "" && e.stderr != "" {
			t.Errorf("%v: exit code %d, want %d; stderr %q, want %q", c.args, e.code, c.code, e.stderr, c.errs)
		}
		for word := range strings.FieldsSeq(c.out) {
			if !strings.Contains(e.stdout, word) {
				t.Errorf("%v: no %q in %q", c.args, word, e.stdout)
			}
		}
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestOwnDevicesThatGoWrong: the error of a device's failed command holds what the command printed and the first line
// of its script, on one line. A stop command that fails costs no trial.
func TestOwnDevicesThatGoWrong(t *testing.T) {
	e, run := runDevices(t, "duts = [\"login\", \"status\", \"start\", \"stop\"]\n"+shortly,
		"[dut.login]\nopen = true\nstart = \"true\"\nlogin = '''\n# asks the portal\necho no account of this name\nexit "+
			"5\n'''\n",
		"[dut.status]\nopen = true\nstart = \"true\"\nlogin = \"true\"\nstatus = \"echo still waiting; false\"\n",
		"[dut.start]\nstart = '''\n# sets rules\necho rule 7 is odd\nexit 6\n'''\n",
		"[dut.stop]\nstart = \"true\"\nstop = '''\n# undoes rules\necho rules are gone\nexit 7\n'''\n")
	text, leaving := map[string]string{}, ""
	for _, b := range run.Blocks {
		text[b.DUT] = b.Error
		leaving += b.Leaving
	}
	for name, want := range map[string]string{
		"login":  `login command "# asks the portal …": exit status 5: no account of this name`,
		"status": `the portal took the login but has no session: status command "echo still waiting; false": exit status 1: still waiting`,
		"start":  `start: start command "# sets rules …": exit status 6: rule 7 is odd`,
		"stop":   "",
	} {
		if !strings.Contains(text[name], want) || want == "" && text[name] != "" || strings.Contains(text[name], "\n") {
			t.Errorf("%s: %q, want %q", name, text[name], want)
		}
	}
	if want := `stop: stop command "# undoes rules …": exit status 7: rules are gone`; !strings.Contains(leaving, want) ||
		len(run.Trials) != 1 {
		t.Errorf("leaving: %q, want %q; %d trials", leaving, want, len(run.Trials))
	}
	page := string(read(t, run.Dir, "report.html"))
	for where, message := range map[string]string{"terminal": strings.Join(strings.Fields(e.stdout), " "), "page": page} {
		if !strings.Contains(message, "Leaving the labs went wrong: stop, block 1, whose trials stand") ||
			strings.Contains(message, "Block failed: stop") {
			t.Errorf("%s: the failed stop is not named as what it is:\n%s", where, e.stdout)
		}
	}
	if !strings.Contains(e.stderr, "stop, block 1: its trials stand") ||
		strings.Contains(e.stderr, "stop, block 1 failed") {
		t.Errorf("stderr: %s", e.stderr)
	}
}

// TestResumeTakesNoOtherExperiment: run --resume refuses another experiment's file, and names the commands to use
// instead.
func TestResumeTakesNoOtherExperiment(t *testing.T) {
	dir := t.TempDir()
	e := finish(t, command(t, dir, "run", "mended.toml", "--resume", "r"))
	for _, want := range []string{"mended.toml is not taken", filepath.Join("r", "experiment.toml"),
		"gateweigh run mended.toml", "gateweigh run --resume r"} {
		if e.code != exitUsage || !strings.Contains(e.stderr, want) {
			t.Errorf("exit code %d, no %q in %s", e.code, want, e.stderr)
		}
	}
}
