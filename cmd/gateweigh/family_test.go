package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

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

// TestFamiliesInOneRun: cells of each family are measured by devices that can, the others are left out with the reason,
// and CSV, terminal and page tell the families apart. Long: one run, looked at from all sides.
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

// TestFamilyThatNoDeviceHas: a run in which nothing is left says why.
func TestFamilyThatNoDeviceHas(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "six.toml", strings.NewReplacer(`["allowlist", "floor"]`, `["floor"]`, `[4, 6, "both"]`, "6").
		Replace(bothFamilies))
	e := finish(t, command(t, dir, "run", "six.toml", "--out", "r"))
	if e.code == 0 || !strings.Contains(e.stdout+e.stderr, "it forwards IPv4 alone: its programs forward IPv4 packets") {
		t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
}

// TestShellOfIPv6: a lab that somebody looks at has its family too, and its variables.
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
