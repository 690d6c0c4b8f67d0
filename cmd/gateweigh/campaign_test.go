// Tests of campaigns, which measure one experiment in several jobs.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist.

// TestCampaignsRefuseBadInput: a campaign command with a mistake on its command line or in a file names the mistake,
// and makes no folder.
func TestCampaignsRefuseBadInput(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "misspelt.toml", small+"[slurm]\npartitoin = \"lab\"\n")
	write(t, dir, "several.toml", "experiments = [\"small.toml\"]\n\n[slurm]\ntime_limits = \"20m\"\n")
	write(t, dir, "of.toml", "experiments = [\"absent.toml\"]\nslurms = 1\n")
	write(t, dir, "short.toml", small+"[slurm]\ntime_limit = \"20s\"\n")
	write(t, dir, "names.toml", "experiments = [\"absent.toml\"]\n")
	write(t, dir, "until.toml", strings.Replace(small, "blocks = 2", "blocks = 20", 1)+"until = \"5%\"\n")
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, full, "file", "")
	write(t, dir, "small.toml", small)
	for _, c := range []struct{ args, want string }{
		{"status nothing", "nothing is not a campaign's folder: it has no campaign.json"},
		{"wait full", "full is not a campaign's folder"},
		{"stop full", "full is not a campaign's folder"},
		{"resume full", "full is not a campaign's folder"},
		{"collect full", "full is not a campaign's folder"},
		{"status", "accepts 1 arg"},
		{"stat full", "unknown command \"stat\""},
		{"start absent.toml", "absent.toml"},
		{"start names.toml", "absent.toml"},
		{"start misspelt.toml", "misspelt.toml:11: slurm.partitoin: unknown key; did you mean \"slurm.partition\"?"},
		{"start several.toml", "several.toml:4: slurm.time_limits: unknown key; did you mean \"slurm.time_limit\"?\n"},
		{"start of.toml", "of.toml:2: slurms: unknown key"},
		{"start short.toml", "short.toml:11: slurm.time_limit: must be a duration"},
		{"start until.toml", "until.toml:10: until: a campaign decides beforehand"},
		{"start small.toml --out full", "full is not empty: choose another --out"},
		{"start small.toml --local --detach", "--detach is for Slurm"},
		{"start small.toml --nodes 2", "--nodes is 1 or more, and for --local; for Slurm set nodes in [slurm]"},
		{"start small.toml small.toml", "two experiments of the campaign are called \"small\""},
	} {
		e := finish(t, command(t, dir, append([]string{"campaign"}, strings.Fields(c.args)...)...))
		if e.code != exitUsage || !strings.Contains(e.stderr, c.want) {
			t.Errorf("campaign %s: exit code %d, want %d and %q:\n%s%s", c.args, e.code, exitUsage, c.want, e.stdout, e.stderr)
		}
	}
	if made, _ := filepath.Glob(filepath.Join(dir, "campaigns", "*")); len(made) > 0 {
		t.Errorf("%v were made", made)
	}
}

// TestLocalCampaignAsksItsMachinesFirst: when no machine of the experiment can measure, campaign start names all of
// them once, and makes no folder.
func TestLocalCampaignAsksItsMachinesFirst(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "far.toml", small+`[backend]
kind = "ssh"
[backend.host.client]
address = "client.invalid"
interface = "eth1"
[backend.host.router]
address = "router.invalid"
lan = "eth1"
wan = "eth2"
[backend.host.server]
address = "server.invalid"
interface = "eth1"
`)
	e := finish(t, command(t, dir, "campaign", "start", "--local", "far.toml", "--out", "c"))
	if e.code != exitNothingRan {
		t.Errorf("exit code %d, want %d:\n%s%s", e.code, exitNothingRan, e.stdout, e.stderr)
	}
	for _, want := range []string{"client.invalid", "router.invalid", "server.invalid"} {
		if !strings.Contains(e.stderr, "connecting to "+want) {
			t.Errorf("%s is not named:\n%s", want, e.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "c")); err == nil {
		t.Error("a folder was made")
	}
}
