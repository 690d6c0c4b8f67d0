package measure_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
)

// proofExperiments are experiments of a few seconds with a device whose router is not what it is to be, by their
// measures. The proof of a device runs under load: it looks for what the load leaves.
var proofExperiments = map[string]string{
	"cost": "clients = [2]\noffered_mbps = [10]\nwindow = \"200ms\"\nwarmup = \"100ms\"\n" +
		"windows = 1\naa_blocks = 0\n",
	"logins":   "clients = [2]\n",
	"transfer": "clients = [1]\nfile_mb = 1\ntransfers = 1\nlink_mbps = 100\n",
}

// testedByMeasure are measures whose own tests of whole runs have a device that says of itself to be another.
var testedByMeasure = []string{capture.Name, rate.Name, throughput.Name, transition.Name}

// TestEveryMeasureAsksForTheProof: what was measured on a router that is not what the device is to be is rejected, with
// what the device says, whatever is measured.
func TestEveryMeasureAsksForTheProof(t *testing.T) {
	for _, m := range measure.All() {
		name := m.Rules().Name
		if slices.Contains(testedByMeasure, name) {
			continue
		}
		if proofExperiments[name] == "" {
			t.Errorf("%s: no experiment tries it", name)
			continue
		}
		text := fmt.Sprintf("measure = %q\nduts = [\"other\"]\nblocks = 1\nredo = 0\n%s[dut.other]\nstart = \"true\"\n"+
			"login = \"true\"\nopen = true\nproof = \"echo of another kind; exit 3\"\n", name, proofExperiments[name])
		t.Run(name, func(t *testing.T) {
			run, out := runnertest.Run(t, m.Run(), load(t, text), m.Records())
			attempts := result.Attempts(run.Trials, run.MeasureRecords)
			if len(attempts) == 0 || out.Accepted > 0 || len(out.Failed)+len(out.Skipped) > 0 {
				t.Errorf("%d attempts: %+v", len(attempts), out)
			}
			message := fmt.Sprint(m.Summarise(run, analysis.Options{}).Rejects)
			if !strings.Contains(message, "device: of another kind") {
				t.Errorf("the reasons do not have what the device says: %s", message)
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
		if want := admits && !traits.PPPoE && !slices.Contains(open, name); dut.BlocksUnadmitted(d) != want {
			t.Errorf("%s keeps clients out: %t, want %t", name, !want, want)
		}
	}
}
