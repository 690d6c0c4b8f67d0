// Tests of runs with IPv4, IPv6 or both.

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// leftoversSoon lists the processes, links, rules and mounts that runs of this test left behind.

// bothFamilies is an experiment with a device that forwards IPv6, and one that does not.
const bothFamilies = `duts = ["allowlist", "floor"]
clients = [2]
offered_mbps = [10]
family = [4, 6, "both"]
blocks = 1
aa_blocks = 1
windows = 1
window = "300ms"
warmup = "200ms"
redo = 0
`

// TestFamiliesInOneRun: in a run by IPv4 and IPv6 each device measures the families that it can forward, and the run
// says why it leaves out the others. CSV, terminal and page tell the families apart. Long: one run, all of its outputs.
func TestFamiliesInOneRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "families.toml", bothFamilies)
	e := finish(t, command(t, dir, "run", "families.toml", "--out", "r"))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, tr := range run.Trials {
		c := tr.Cell
		got[c.Text(result.DUT)] = append(got[c.Text(result.DUT)], c.Text(result.Family))
		if s := cost.SidesOf(tr); min(s.DUT.NAPINs, s.Clean.NAPINs, s.DUT.Packets, int64(s.DUT.RTT.Probes)) <= 0 {
			t.Errorf("trial without figures: %+v", tr)
		}
	}
	for device, want := range map[string][]string{
		"allowlist": {"4", "6", "both"}, "clean": {"4", "6", "both"}, "floor": {"4"}} {
		if slices.Sort(got[device]); !slices.Equal(got[device], want) {
			t.Errorf("%s was measured with families %v, want %v", device, got[device], want)
		}
	}
	for _, b := range run.Blocks {
		if b.Error != "" {
			t.Errorf("block of %v: %s", b.Cell(), b.Error)
		}
	}
	const reason = "floor: not with family = 6 and both: it forwards IPv4 alone: its programs forward IPv4 packets"
	if text := strings.Join(strings.Fields(e.stdout), " "); !strings.Contains(text, reason) {
		t.Errorf("the terminal lacks %q:\n%s", reason, e.stdout)
	}
	csv := string(read(t, dir, "r/summary.csv"))
	head, _, _ := strings.Cut(csv, "\n")
	if columns := strings.Split(head, ","); !slices.Contains(columns, "family") {
		t.Errorf("summary.csv has no column family: %s", head)
	}
	for name, parts := range map[string][]string{
		"r/summary.json": {`"family": "6"`, `"family": "both"`},
		"r/report.html":  {`family=6`, `family=both`, "IPv4 and IPv6"},
	} {
		for _, part := range parts {
			if !strings.Contains(string(read(t, dir, name)), part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestFamilyThatNoDeviceHas: a run whose devices all lack the family says so and measures nothing.
func TestFamilyThatNoDeviceHas(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "six.toml", strings.NewReplacer(`["allowlist", "floor"]`, `["floor"]`, `[4, 6, "both"]`, "6").
		Replace(bothFamilies))
	e := finish(t, command(t, dir, "run", "six.toml", "--out", "r"))
	if e.code == 0 || !strings.Contains(e.stdout+e.stderr, "it forwards IPv4 alone: its programs forward IPv4 packets") {
		t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
}

// TestShellOfIPv6: the lab of the shell command has the experiment's address family, and variables for it.
func TestShellOfIPv6(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "six.toml", strings.NewReplacer(`["allowlist", "floor"]`, `["allowlist"]`, `[4, 6, "both"]`, "6").
		Replace(bothFamilies))
	e := finish(t, command(t, dir, "shell", "six.toml", "--", "sh", "-c",
		"echo $GATEWEIGH_LAN6 $GATEWEIGH_GATEWAY6 $GATEWEIGH_SERVER6; nft list table ip6 allowlist"))
	for _, want := range []string{"2001:db8:137::/64 2001:db8:137::254 2001:db8:89::1", "2001:db8:137:0:67:77ff:fe61:1"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("no %q in %q (exit %d, %s)", want, e.stdout, e.code, e.stderr)
		}
	}
}

// limited6 is a search beside a router that forwards 1000 packets of IPv6 a second, and IPv4 without a limit.
const limited6 = `measure = "throughput"
duts = ["limited"]
clients = [2]
family = [4, 6, "both"]
frame_sizes = [80]
loss_ratios = [0.01]
max_kpps = 4
search_width = 0.2
trials = 1
blocks = 1
window = "500ms"
redo = 3

[dut.limited]
families = [4, 6]
requires = { nft = "nftables" }
start = '''
nft 'table ip6 limited {
  chain c { type filter hook forward priority 0; limit rate over 1000/second burst 50 packets drop; }; }'
'''
stop = "nft delete table ip6 limited"
`

// TestThroughputByFamily: a search finds the highest rate of each family, by frames of that family. With both families
// half of the frames are IPv6, so at most twice the limit of IPv6 passes.
func TestThroughputByFamily(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "limited.toml", limited6)
	e := finish(t, command(t, dir, "run", "limited.toml", "--out", "r"))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, s := range result.RecordsOf[throughput.Search](run.MeasureRecords) {
		if s.Accepted {
			found[s.Cell().Text(result.Family)] = s.Goals[0].LowerKpps
		}
	}
	for family, want := range map[string]struct{ least, most float64 }{
		"4": {2.7, 4}, "6": {0.2, 1.3}, "both": {0.4, 2.6}} {
		if got := found[family]; got < want.least || got > want.most {
			t.Errorf("family %s: %g thousand frames a second, want %g to %g", family, got, want.least, want.most)
		}
	}
	for name, part := range map[string]string{
		"r/summary.csv": "pdr_1_kpps", "r/summary.json": `"family": "6"`, "r/report.html": "IPv6",
	} {
		if !strings.Contains(string(read(t, dir, name)), part) {
			t.Errorf("%s lacks %q", name, part)
		}
	}
}
