// Tests of texts that gateweigh prints.

package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// golden compares a text with the file testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("testdata", name), got)
}

// TestWrap: words.Wrapped breaks text into lines of a width, counted in characters. A longer word has its own line.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, nil},
		{"one two three", 20, []string{"one two three"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"überlängen äö x", 12, []string{"überlängen", "äö x"}},
		{"a verylongwordindeed b", 5, []string{"a", "verylongwordindeed", "b"}},
		{"spaces\n and\tlines", 80, []string{"spaces and lines"}},
	} {
		if got := words.Wrapped(c.text, c.width, 0); !slices.Equal(got, c.want) {
			t.Errorf("Wrapped(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// TestMinutes: durations of runs are shown in rounded minutes.
func TestMinutes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		54 * time.Second: "54 s", 241 * time.Second: "4 min", 144 * time.Second: "2 min 20 s", 797 * time.Second: "13 min",
		3720 * time.Second: "1 h 2 min",
	} {
		if got := roundedText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestReportsText: doctor's report as text in full, as short text and as JSON.
func TestReportsText(t *testing.T) {
	r := doctor.Report{
		Version: doctor.Version, CanRun: true, Verdict: "gateweigh run measures allowlist here.", Groups: []doctor.Group{
			{Name: "Kernel", Checks: []doctor.Check{
				{Key: "kernel.veth", State: doctor.OK, Subject: "veth", Found: "works", Means: "links of the lab", Needed: true},
				{Key: "kernel.macvlan", State: doctor.Missing, Subject: "macvlan",
					Found:  "adding a macvlan: operation not supported",
					Remedy: "modprobe macvlan, or a kernel with CONFIG_MACVLAN", Needed: true},
			}},
			{Name: "Noise", Checks: []doctor.Check{
				{Key: "noise.aa", State: doctor.Warn, Subject: "A/A pair", Found: "ratio of two clean routers 1.002 [0.902, 1.102]",
					Remedy:  "quiet the machine",
					Figures: map[string]analysis.Number{"ratio": 1.002, "sd_log": 0.04}},
			}},
		}}
	var text, data bytes.Buffer
	writeReport(&text, r, 80, true)
	golden(t, "doctor.txt", text.Bytes())
	text.Reset()
	r.Groups = append(r.Groups, doctor.Group{Name: doctor.Devices, Checks: []doctor.Check{
		{State: doctor.OK, Subject: "clean", Found: "clean router"},
		{State: doctor.Missing, Subject: "opennds", Found: "not on PATH: ndsctl", Remedy: "apt-get install opennds"},
	}}, doctor.Group{Name: "Tools", Checks: []doctor.Check{
		{State: doctor.Missing, Subject: "ndsctl", Found: "not on PATH; for opennds", Remedy: "apt-get install opennds"},
		{State: doctor.OK, Subject: "ip", Found: "6.1"},
		{State: doctor.Missing, Subject: "opennds", Found: "not on PATH; for opennds", Remedy: "apt-get install opennds"},
	}})
	writeReport(&text, r, 80, false)
	golden(t, "doctor-short.txt", text.Bytes())
	r.Groups = r.Groups[:2]
	if err := report.JSON(&data, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "doctor.json", data.Bytes())
}

// TestListOfOtherThings: for a word that is neither a device nor an experiment, list names the page about it.
func TestListOfOtherThings(t *testing.T) {
	for name, want := range map[string]string{
		"as-is":      "docs/machines.md",
		"throughput": "docs/experiments.md",
		"opennsd":    `nothing is called "opennsd"; did you mean "opennds"?; there are`,
	} {
		if e := finish(t, command(t, t.TempDir(), "list", name)); e.code == 0 || !strings.Contains(e.stderr, want) {
			t.Errorf("list %s: exit %d, %s: want %s", name, e.code, e.stderr, want)
		}
	}
	if e := finish(t, command(t, t.TempDir(), "check", ".")); e.code != exitUsage ||
		!strings.Contains(e.stderr, ". is a folder: name the experiment's file in it") {
		t.Errorf("check .: exit %d, %s", e.code, e.stderr)
	}
}

// TestListsText: what list prints of all devices and experiments, and of one device.
func TestListsText(t *testing.T) {
	l := listing{
		Version: 1,
		Experiments: []listedExperiment{
			{Name: "quick", Description: "Three gateways against the clean router", Devices: []string{"opennds", "allowlist"},
				Here:    []string{"allowlist"},
				Clients: []int{1, 20}, OfferedMbps: []float64{100, 1000}, Cells: 4, Blocks: 10, Windows: 3, WindowSeconds: 1,
				EstimatedSeconds: 110,
				words: experiment.Description{
					Block: "block", Contents: " of 3 windows of 1 s", Doing: "at 100 and 1000 Mbit/s"},
				Needs: []dut.Need{{Program: "ethtool"}, {Program: "dnsmasq"}}},
			{Name: "elsewhere", Description: "Runs on another machine", Devices: []string{"opennds"}},
		},
		Devices: []listedDevice{
			{Name: "clean", About: "clean router", Here: true, Admission: "none"},
			{Name: "nft-queue", About: "a portal that queues", Reason: "the kernel lacks nft queue: CONFIG_NFT_QUEUE is not set",
				Kernel:  "debian",
				Command: "gateweigh run quick --kernel debian --set duts=nft-queue", Admission: "none",
				Needs: []dut.Need{{Program: "nft", Feature: "nft queue"}, {Feature: "CONFIG_VETH"}}},
			{Name: "opennds", About: "openNDS 9",
				Reason:    "not on PATH: ndsctl, opennds (package opennds), wget (package wget), and a few more of them",
				Admission: "each client clicks through a splash page", DHCP: true,
				Needs: []dut.Need{{Program: "opennds", Package: "opennds", Why: "the portal"}, {Program: "wget", Package: "wget",
					Why: "the watchdog"}}},
		},
	}
	var all, one bytes.Buffer
	l.write(&all, 80, false)
	golden(t, "list.txt", all.Bytes())
	only, err := l.named("opennds")
	if err != nil {
		t.Fatal(err)
	}
	only.write(&one, 80, true)
	golden(t, "list-one.txt", one.Bytes())
}
