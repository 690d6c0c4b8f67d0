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
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/roaming"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
)

// A device may have a proof: a command that runs under load and fails if the router does not work as the device should.

// proofExperiments has keys of an experiment of a few seconds for each measure. TestEveryMeasureAsksForTheProof adds a
// device whose proof fails.
var proofExperiments = map[string]string{
	"cost": "clients = [2]\noffered_mbps = [10]\nwindow = \"200ms\"\nwarmup = \"100ms\"\n" +
		"windows = 1\naa_blocks = 0\n",
	"logins":   "clients = [2]\n",
	"transfer": "clients = [1]\nfile_mb = 1\ntransfers = 1\nlink_mbps = 100\n",
}

// testedByMeasure are the measures whose own tests run a device with a failing proof. None of the devices that go with
// roaming has a proof.
var testedByMeasure = []string{
	capture.Name, failover.Name, rate.Name, roaming.Name, throughput.Name, transition.Name}

// TestEveryMeasureAsksForTheProof: every measure asks for the device's proof. If the proof fails, all trials are
// rejected, and the reason is what the proof printed.
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
				t.Errorf("the reasons do not have what the device's proof printed: %s", message)
			}
		})
	}
}

// TestDevicesThatAdmitKeepOthersOut: every shipped device that admits clients blocks clients that it has not admitted.
// PPPoE devices need no such block: without a session a client has no link.
func TestDevicesThatAdmitKeepOthersOut(t *testing.T) {
	open := []string{"floor", "floor-nat"} // they block nobody: the kernel forwards what their programs do not take
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
