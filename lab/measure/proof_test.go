package measure_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// proofs are experiments of a few seconds with a device whose router is not what it is to be, by their measures. The
// proof of a device runs under load: it looks for what the load leaves.
var proofs = map[string]string{
	"cost": "clients = [2]\noffered_mbps = [10]\nwindow = \"200ms\"\nwarmup = \"100ms\"\nwindows = 1\naa_blocks = " +
		"0\n",
	"logins": "clients = [2]\n",
	"throughput": "clients = [1]\nframe_sizes = [1514]\nmax_kpps = 2\nwindow = \"200ms\"\ntrials = 1\nsearch_width = " +
		"0.5\n[traffic]\nkind = \"frames\"\n",
	"transfer":   "clients = [1]\nfile_mb = 1\ntransfers = 1\nlink_mbps = 100\n",
	"rate":       "clients = [1]\nwindow = \"200ms\"\nwarmup = \"100ms\"\nwindows = 1\n[link]\nmbps = [100]\n",
	"transition": "clients = [1]\noffered_mbps = [10]\nprobes = 50\nwindows = 1\nwarmup = \"100ms\"\n",
}

// TestEveryMeasureAsksForTheProof: what was measured on a router that is not what the device is to be is rejected, with
// what the device says, whatever is measured. Devices that capture are none of an experiment's own: lab/measure/capture
// has a test for them.
func TestEveryMeasureAsksForTheProof(t *testing.T) {
	for _, m := range measure.All() {
		name := m.Rules().Name
		if name == capture.Name {
			continue
		}
		keys, table, found := strings.Cut(proofs[name], "\n[")
		if keys == "" {
			t.Errorf("%s: no experiment tries it", name)
			continue
		}
		if found {
			table = "[" + table
		}
		device := "start = \"true\"\nlogin = \"true\"\nopen = true\n"
		if slices.Contains([]string{"rate", "transition"}, name) {
			device = "tunnel = true\nstart = \"true\"\n"
		}
		text := fmt.Sprintf(
			"measure = %q\nduts = [\"other\"]\nblocks = 1\nredo = 0\n%s\n%s[dut.other]\n%sproof = \"echo of another kind; "+
				"exit 3\"\n", name, keys, table, device)
		t.Run(name, func(t *testing.T) {
			e := load(t, text)
			dir := filepath.Join(t.TempDir(), "run")
			out, err := runner.Run(t.Context(), runner.Config{Measure: m.Run(), Experiment: e, Dir: dir})
			if err != nil || len(out.Failed)+len(out.Skipped) > 0 {
				t.Fatalf("%v: %+v", err, out)
			}
			run, err := measure.ReadRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			attempts := result.Attempts(run.Trials, run.Own)
			if len(attempts) == 0 || out.Accepted > 0 {
				t.Errorf("%d attempts, %d windows accepted", len(attempts), out.Accepted)
			}
			said := fmt.Sprint(measure.Summarise(run, analysis.Options{}).Rejects)
			if !strings.Contains(said, "device: of another kind") {
				t.Errorf("the reasons do not have what the device says: %s", said)
			}
		})
	}
}

// TestDevicesThatAdmitKeepOthersOut: of the devices that ship, those that admit clients are to keep others out.
func TestDevicesThatAdmitKeepOthersOut(t *testing.T) {
	open := []string{"floor", "floor-nat"} // the kernel forwards until their programs do
	for _, name := range dut.Names() {
		d, err := dut.New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		traits := d.Traits()
		adm, is := d.(dut.Admitter)
		admits := traits.Admission.Kind != "" || is && adm.Admits()
		if want := admits && !traits.Lines && !slices.Contains(open, name); dut.KeepsOut(d) != want {
			t.Errorf("%s keeps clients out: %t, want %t", name, !want, want)
		}
	}
}
