package failover

import (
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// parse parses an experiment of the measure "failover".
func parse(t *testing.T, text string) (*experiment.Experiment, error) {
	t.Helper()
	c := experiment.Catalogue{DUTs: dut.Names(), Measures: []experiment.Measure{Measure{}.Rules()}}
	for _, name := range topology.Names() {
		top := topology.Topologies[name](topology.Spec{})
		c.Topologies = append(c.Topologies, experiment.Topology{Name: name, Roles: top.Roles(), Gateways: top.Gateways()})
	}
	return c.Parse("x.toml", []byte("measure = \"failover\"\n"+text))
}

// open is a device that forwards for everybody, and for nobody for a second when it is started again. Its proof fails
// while it is not to forward.
const open = `
[dut.open]
open = true
login = "true"
start = "echo 1 >/proc/sys/net/ipv4/ip_forward"
stop = "echo 0 >/proc/sys/net/ipv4/ip_forward; sleep 1"
`

// TestOutageOfARestart: a device that forwards nothing for a second has an outage of a second, and another fault of the
// same run has none. A fault that the device cannot have is left out, and the run says why.
func TestOutageOfARestart(t *testing.T) {
	e, err := parse(t, `duts = ["open"]
clients = [3]
blocks = 1
redo = 1
watch_s = 3
faults = ["none", "restart", "kill", "link"]
`+open)
	if err != nil {
		t.Fatal(err)
	}
	run, out := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	if out.Planned != 2 {
		t.Errorf("%d faults planned, want 2", out.Planned)
	}
	notes := strings.Join(run.Environment.Notes, "\n")
	for _, want := range []string{
		"open, fault kill: its table has no daemon to kill", "open, fault link: it is one gateway"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q: %s", want, notes)
		}
	}
	worst := map[string]float64{}
	for _, trial := range result.RecordsOf[Trial](run.MeasureRecords) {
		worst[trial.Cell.Text(Fault)] = trial.OutageMax
		if trial.NotBack > 0 || trial.TCPLost > 0 || trial.Clients != 3 || trial.Accounts != nil || trial.CauseError != "" {
			t.Errorf("%+v", trial)
		}
	}
	if worst["restart"] < 900 || worst["none"] > worst["restart"]-500 {
		t.Errorf("outages, ms: %v", worst)
	}
}

// TestProof: a fault of a device whose proof fails is rejected, by what the proof printed.
func TestProof(t *testing.T) {
	e, err := parse(t, `duts = ["open"]
clients = [1]
blocks = 1
redo = 0
watch_s = 2
faults = ["none"]
`+open+`proof = "echo of another kind; exit 3"
`)
	if err != nil {
		t.Fatal(err)
	}
	run, out := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	rejects := Measure{}.Summarise(run, analysis.Options{}).Rejects
	if out.Accepted > 0 || len(rejects) == 0 || !strings.Contains(rejects[0].Text, "device: of another kind") {
		t.Errorf("%+v: %+v", out, rejects)
	}
}

// TestKeys: settings with which nothing can be measured are refused, with their place.
func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		"duts = [\"opennds\"]\nclients = [1]\nfaults = [\"fire\"]\n":          "x.toml:4: faults",
		"duts = [\"opennds\"]\nclients = [1]\ntopology = \"portal\"\n":        "room for two gateways",
		"duts = [\"opennds\"]\nclients = [1]\n[client]\nkind = \"persona\"\n": "macvlan",
		"duts = [\"clean\"]\nclients = [1]\n":                                 "has no login",
		"duts = [\"opennds\"]\nclients = [1]\nwatch_s = 1\n":                  "x.toml:4: watch_s",
	} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
