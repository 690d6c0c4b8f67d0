// Tests of mistakes in experiments, and devices and tools that fail.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist. leftovers lists what runs of this
// test left behind: processes, links, rules and mounts.

// TestBadExperimentNamesFileLineAndKey: run refuses an experiment with a mistake, and names the file, line and key.
func TestBadExperimentNamesFileLineAndKey(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":      {"duts = [\"clean\"]\nclient = [3]\nofered_mbps = [1]\n", "bad.toml:3"},
		"nearest key":      {"duts = [\"clean\"]\nofered_mbps = [1]\n", "offered_mbps"},
		"zero clients":     {"duts = [\"clean\"]\nclients = [0]\noffered_mbps = [1]\n", "bad.toml:2: clients"},
		"negative rate":    {"duts = [\"clean\"]\nclients = [1]\noffered_mbps = [-5]\n", "bad.toml:3: offered_mbps"},
		"unknown DUT":      {"duts = [\"opennsd\"]\nclients = [1]\noffered_mbps = [5]\n", "opennds"},
		"too many clients": {"duts = [\"clean\"]\nclients = [500]\noffered_mbps = [5]\n", "bad.toml:2: clients"},
		"like another": {"duts = [\"a\"]\nclients = [1]\noffered_mbps = [5]\n[dut.a]\nlike = \"opennds\"\nsessions = 9\n",
			"bad.toml:5: dut.a.like"},
		"not TOML": {"duts = [\n", "bad.toml"},
	} {
		dir := t.TempDir()
		write(t, dir, "bad.toml", c.text)
		if e := finish(t, command(t, dir, "run", "bad.toml")); e.code != exitUsage || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%s: exit %d, want %d and %q in:\n%s", name, e.code, exitUsage, c.want, e.stderr)
		}
	}
	dir := t.TempDir()
	for _, args := range [][]string{{"run", "quik"}, {"run", "--set", "blocks=0"}, {"run", "--set", "blocks"}, {"run",
		"--set", "=3"}, {"run", "missing.toml"}, {"run", "--no-such-flag"}, {"run", "--resume", "nowhere"},
		{"run", "--resume", ""}, {"run", "-o", ""}, {"report", "x", "-o", ""}, {"bundle", "x", "-o", ""}, {"run", "a", "b"},
		{"report"}, {"wiegh"}} {
		if e := finish(t, command(t, dir, args...)); e.code != exitUsage {
			t.Errorf("%v: exit %d: %s", args, e.code, e.stderr)
		}
	}
	if e := finish(t, command(t, dir, "run", "--set", "=3")); !strings.Contains(e.stderr, "--set =3: want KEY=VALUE") {
		t.Errorf("without a key: %s", e.stderr)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("refused commands left %v", entries)
	}
}

// gateways is an experiment with a device that works, one that never gets ready and one that dies.
const gateways = `duts = ["allowlist", "sleepy", "dying"]
clients = [2]
offered_mbps = [10]
blocks = 1
aa_blocks = 0
windows = 2
window = "300ms"
warmup = "100ms"
redo = 0
[dut.sleepy]
start = "true"
ready = "echo still booting; false"
ready_timeout = "1s"
[dut.dying]
daemon = "sleep 2; echo out of memory; exit 9"
ready = "true"
`

// TestDevicesThatFailDoNotTakeTheOthersAlong: the run of gateways names why two devices failed, and measures the third
// in full.
func TestDevicesThatFailDoNotTakeTheOthersAlong(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "g.toml", strings.Replace(gateways, "blocks = 1", "blocks = 2", 1))
	e := finish(t, command(t, dir, "run", "g.toml", "--out", "r", "--set", "windows=8"))
	if e.code != exitFailed {
		t.Errorf("exit code %d, want %d", e.code, exitFailed)
	}
	for _, want := range []string{
		"sleepy", "not ready after 1s", "still booting", "dying", "ended by itself", "exit status 9", "out of memory"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, e.stderr)
		}
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, tr := range run.Trials {
		count[tr.Cell.Text(result.DUT)]++
	}
	if count["allowlist"] != 16 || count["sleepy"] != 0 {
		t.Errorf("trials by device: %v; want 16 of allowlist, none of sleepy", count)
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestDevicesThatForwardNothing: no client reaches the server. If the device's program has ended, the error says so.
// Otherwise it suggests that the device has not admitted the clients.
func TestDevicesThatForwardNothing(t *testing.T) {
	dir := t.TempDir()
	const shut = "start = \"nft 'add table ip shut; add chain ip shut forward { type filter hook forward priority 0; " +
		"policy drop; }'\"\n"
	text, _, _ := strings.Cut(gateways, "[dut.sleepy]")
	write(t, dir, "g.toml", strings.Replace(text, `"allowlist", "sleepy", "dying"`, `"mute", "dying"`, 1)+
		"[dut.mute]\n"+shut+"[dut.dying]\n"+shut+"ready = \"true\"\ndaemon = \"sleep 4; echo out of memory; exit 9\"")
	e := finish(t, command(t, dir, "run", "g.toml", "--out", "r"))
	if e.code != exitFailed {
		t.Errorf("exit code %d, want %d", e.code, exitFailed)
	}
	for _, line := range strings.Split(e.stderr, "\n") {
		mute, dying := strings.Contains(line, "mute"), strings.Contains(line, "dying")
		if mute && strings.Contains(line, "failed") && !strings.Contains(line, "admitted") ||
			dying && strings.Contains(line, "failed") && !strings.Contains(line, "out of memory") {
			t.Errorf("no reason in %q", line)
		}
	}
	for _, want := range []string{"admitted", "out of memory"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, e.stderr)
		}
	}
}

// leftoversSoon waits up to two minutes until leftovers finds nothing, and returns what is left then: the kernel
// removes namespaces some time after their processes.
func leftoversSoon(t *testing.T) string {
	t.Helper()
	var left string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if left = leftovers(t); left == "" {
			break
		}
	}
	return left
}

// TestTrafficToolThatHangsCostsItsTrialsOnly: iperf3 is replaced by a program that hangs. The run goes through its
// plan, rejects the trials because nothing was delivered, and leaves nothing behind.
func TestTrafficToolThatHangsCostsItsTrialsOnly(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// It must be where the programs of a host can see it. Hosts have a /tmp of their own.
	tool, err := os.MkdirTemp("/root", "gateweigh-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tool) })
	hang := filepath.Join(tool, "iperf3")
	if err := os.WriteFile(hang, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "small.toml",
		strings.NewReplacer("blocks = 2", "blocks = 1", "[10, 20]", "[10]").Replace(small)+"[traffic]\nkind = \"iperf3\"\n")
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	cmd.Env = append(cmd.Env, "PATH="+tool+":"+os.Getenv("PATH"))
	e := finish(t, cmd)
	if e.code != exitRejected || !strings.Contains(e.stdout, "of 10 Mbit/s, limit 98 %") {
		t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestMissingToolsAreNamedWithTheirPackages: without any program on PATH, run names the packages to install.
func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	cmd.Env = append(cmd.Env, "PATH="+dir)
	withoutSbin(cmd)
	e := finish(t, cmd)
	if e.code != exitFailed || !strings.Contains(e.stderr, "install the package ethtool") ||
		!strings.Contains(e.stderr, "install the package dnsmasq-base") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
}

// TestDeviceWithoutItsToolsIsSkipped: a device whose program is missing is skipped with the reason. When no device is
// left, run exits with exitNothingRan.
func TestDeviceWithoutItsToolsIsSkipped(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "g.toml",
		"duts = [\"mine\"]\nclients = [2]\noffered_mbps = [10]\n[dut.mine]\nstart = \"true\"\nrequires = { no-such-gateway "+
			"= \"the package mygateway\" }\n")
	e := finish(t, command(t, dir, "run", "g.toml", "--out", "r"))
	if e.code != exitNothingRan || !strings.Contains(e.stderr, "no-such-gateway") ||
		!strings.Contains(e.stderr, "mygateway") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
	if text := e.stdout + e.stderr; strings.Contains(text, "have no record") {
		t.Errorf("windows of a run that had nothing to measure are reported as missing: %s", text)
	}
}

// TestRunWithoutRootSaysSo: an ordinary user who calls run is told that it needs root.
func TestRunWithoutRootSaysSo(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "small.toml", small)
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	// The test binary lies in a folder that only root may enter.
	self, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := os.MkdirTemp("/var/tmp", "gateweigh-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	cmd.Path = filepath.Join(shared, "gateweigh")
	if err := os.WriteFile(cmd.Path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, shared, "small.toml", small)
	os.Chmod(shared, 0o777)
	cmd.Dir = shared
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	e := finish(t, cmd)
	if e.code != exitFailed || !strings.Contains(e.stderr, "needs root") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
	own := command(t, dir, "run", "small.toml", "--out", "r2")
	own.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	if e := finish(t, own); e.code != exitFailed || !strings.Contains(e.stderr, "user namespace") {
		t.Errorf("root of a user namespace: exit %d: %s", e.code, e.stderr)
	}
}
