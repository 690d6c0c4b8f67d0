package capture

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file parse experiments of this measure, look at the blocks and cells that they plan, and check that
// bad keys are refused with file, line and key.

// catalogue returns a catalogue of two measures, "capture" and "cost", and of topologies for each of them.
func catalogue() experiment.Catalogue {
	own, other := Measure{}.Rules(), cost.Measure{}.Rules()
	return experiment.Catalogue{Measures: []experiment.Measure{other, own}, Topologies: []experiment.Topology{
		{Name: "portal", Roles: other.Roles}, {Name: "gateway-capture", Roles: append([]string{"sink"}, own.Roles...)},
		{Name: topologyTap, Roles: own.Roles},
	}}
}

// parse parses an experiment of the measure "capture", whose other keys are in text.
func parse(t *testing.T, text string) *experiment.Experiment {
	t.Helper()
	e, err := catalogue().Parse("x.toml", []byte("measure = \"capture\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// cellsOf lists the blocks of a plan, sorted, each as "setting: device@Mbit/s device@Mbit/s …" with its cells.
func cellsOf(e *experiment.Experiment) (list []string) {
	for _, b := range e.Plan() {
		var cells []string
		for _, c := range b.Cells {
			cells = append(cells, c.Text(result.DUT)+"@"+c.Text(result.OfferedMbps))
		}
		slices.Sort(cells)
		list = append(list, b.Cell.Without(result.FrameSize).String()+": "+strings.Join(cells, " "))
	}
	slices.Sort(list)
	return list
}

// TestPlan: a block is a device at one setting with all loads. Parameters that have no meaning for a device are not in
// its settings, and settings that a device refuses are not in the plan.
func TestPlan(t *testing.T) {
	const duts = "duts = [\"no-capture\", \"tcpdump\", \"tcpdump-68\"]\noffered_mbps = [10, 20]\nblocks = 1\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no parameter": {"", []string{"dut=no-capture: no-capture@10 no-capture@20",
			"dut=tcpdump-68: tcpdump-68@10 tcpdump-68@20", "dut=tcpdump: tcpdump@10 tcpdump@20"}},
		"a setting that tcpdump-68 refuses": {"snap_lengths = [68, 1500]\n", []string{
			"dut=no-capture: no-capture@10 no-capture@20", "dut=tcpdump snap_length=1500: tcpdump@10 tcpdump@20",
			"dut=tcpdump snap_length=68: tcpdump@10 tcpdump@20", "dut=tcpdump-68 snap_length=68: tcpdump-68@10 tcpdump-68@20"}},
		"background work also without a capture program": {
			"duts = [\"no-capture\"]\nbackground_pct = [0, 40]\nworks = [\"none\", \"gzip\"]\n", []string{
				"dut=no-capture background_pct=0: no-capture@10 no-capture@20",
				"dut=no-capture background_pct=40: no-capture@10 no-capture@20"}},
		"together": {"topology = \"tap\"\ntogether = true\nworks = [\"none\", \"gzip\"]\n", []string{
			"dut=no-capture: no-capture@10 no-capture@20 tcpdump-68@10 tcpdump-68@20 tcpdump@10 tcpdump@20"}},
	} {
		text := duts
		if strings.HasPrefix(c.text, "duts") {
			text = strings.SplitN(duts, "\n", 2)[1]
		}
		if got := cellsOf(parse(t, text+c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	e := parse(t, duts+"cpus = [1, 2]\n")
	if e.CPUs() != 2 || parse(t, duts).CPUs() != 1 || e.Topology != defaultRouters {
		t.Errorf("%d CPUs, topology %s", e.CPUs(), e.Topology)
	}
	again, err := catalogue().Parse("x.toml", e.Encode())
	if err != nil || string(again.Encode()) != string(e.Encode()) || strings.Contains(string(e.Encode()), "clients") {
		t.Errorf("%v; resolved:\n%s", err, e.Encode())
	}
}

// TestRefusals: keys that do not go with the measure or with each other are refused, and the error names line and key.
func TestRefusals(t *testing.T) {
	const plain = "measure = \"capture\"\nduts = [\"tcpdump\"]\noffered_mbps = [10]\n"
	for name, c := range map[string]struct{ text, want string }{
		"no load": {"measure = \"capture\"\nduts = [\"tcpdump\"]\n", "offered_mbps: missing"},
		"streams": {plain + "traffic = { kind = \"streams\" }\n", `x.toml:4: traffic.kind: "streams"`},
		"clients": {plain + "clients = [3]\n", `x.toml:4: clients: has no meaning with measure = "capture"`},
		"a topology with clients": {plain + "topology = \"portal\"\n",
			`x.toml:4: topology: "portal" has no generator, and measure = "capture" works with one: choose "gateway-capture" or "tap"`},
		"another measure in a topology of captures": {
			"duts = [\"x\"]\nclients = [1]\noffered_mbps = [1]\ntopology = \"tap\"\n[dut.x]\nstart = \"true\"\n",
			`x.toml:4: topology: "tap" has no client and no server`},
		"masquerade without a router": {plain + "topology = \"tap\"\nmasquerade = true\n", "x.toml:5: masquerade"},
		"together on one host":        {plain + "together = true\n", "x.toml:4: together"},
		"too few frames in a window": {
			"measure = \"capture\"\nduts = [\"tcpdump\"]\noffered_mbps = [0.1]\nframe_sizes = [1514]\nwindow = \"500ms\"\n",
			"x.toml:5: window: 500ms"},
		"too few frames":  {plain + "frames = 1\n", "x.toml:4: frames: 1"},
		"hours of frames": {plain + "frames = 1000000000\n", "x.toml:4: frames"},
		"work": {
			plain + "works = [\"bzip\"]\n", `x.toml:4: works: each value must be "none" or "memcpy" or "gzip"`},
		"CPUs": {plain + "cpus = [3]\n", "x.toml:4: cpus"},
		"the key of this measure with another": {
			"duts = [\"x\"]\nclients = [1]\noffered_mbps = [1]\nsnap_lengths = [68]\n[dut.x]\nstart = \"true\"\n",
			`x.toml:4: snap_lengths: needs measure = "capture"`},
	} {
		if _, err := catalogue().Parse("x.toml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestDevicesThatCannotCapture: fits refuses a device that cannot capture, and a device that refuses every setting of
// the experiment. The error says why. tcpdump does no work for each frame, so it refuses works = ["gzip"].
func TestDevicesThatCannotCapture(t *testing.T) {
	e := parse(t, "duts = [\"tcpdump\", \"no-capture\", \"clean\"]\noffered_mbps = [10]\nworks = [\"gzip\"]\n")
	for device, want := range map[string]string{"no-capture": "", "clean": "no device that captures", "tcpdump": "gzip"} {
		err := fits(e, device, dut.Traits{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(dut.Reason(device, err), want)) {
			t.Errorf("%s: %v, want %q", device, err, want)
		}
	}
}
