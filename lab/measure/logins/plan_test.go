package logins

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file parse experiments that measure login storms, and check their plan, their estimated duration
// and the errors of bad keys.

// bothMeasures is a catalogue of the measures "logins" and "cost". Many keys of "cost" have no meaning for "logins".
var bothMeasures = experiment.Catalogue{
	DUTs: dut.Names(), Measures: []experiment.Measure{cost.Measure{}.Rules(), Measure{}.Rules()}}

// minimalCost is a valid experiment that measures cost. stormExperiment is one that measures login storms.
const minimalCost = "duts = [\"opennds\"]\nclients = [1]\noffered_mbps = [100]\n"

const stormExperiment = "measure = \"logins\"\nduts = [\"opennds\", \"coovachilli\"]\nclients = [30, 1000]\n"

// parse parses an experiment that must be valid.
func parse(t *testing.T, text string) *experiment.Experiment {
	t.Helper()
	e, err := bothMeasures.Parse("x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestStormDefaultsRoundTrip: an experiment of storms gets its defaults, is written without keys that have no meaning
// for it, and is read again as the same.
func TestStormDefaultsRoundTrip(t *testing.T) {
	e := parse(t, stormExperiment)
	if e.Mode != result.ModeSolo || e.Windows != 1 || !cmp.Equal(rates.Value(e), []float64{0}) {
		t.Errorf("mode %q, %d windows, rates %v; want solo, 1 and all at once", e.Mode, e.Windows, rates.Value(e))
	}
	for _, key := range (cost.Measure{}).Rules().Uses {
		if slices.Contains(Measure{}.Rules().Uses, key) {
			continue
		}
		if name, _, _ := strings.Cut(key, "."); strings.Contains(string(e.Encode()), "\n"+name+" =") ||
			strings.Contains(string(e.Encode()), "["+name+"]") {
			t.Errorf("the resolved file has %s:\n%s", key, e.Encode())
		}
	}
	again, err := bothMeasures.Parse("again.toml", e.Encode())
	if err != nil {
		t.Fatalf("%v\n%s", err, e.Encode())
	}
	again.Name = e.Name
	if diff := cmp.Diff(string(e.Encode()), string(again.Encode())); diff != "" {
		t.Errorf("encoded and read again:\n%s", diff)
	}
}

// TestStormPlan: a block is one storm, and each combination of device, number of clients and rate has its blocks.
func TestStormPlan(t *testing.T) {
	e := parse(t, stormExperiment+"login_rates = [0, 25.5]\nblocks = 2\n")
	type group struct {
		dut     string
		clients int
		rate    float64
	}
	seen := map[group]int{}
	for _, b := range e.Plan() {
		if b.AA || len(b.Cells) != 1 || b.Cells[0] != b.Cell {
			t.Errorf("block %+v", b)
		}
		seen[group{b.DUT(), b.Clients(), rateOf(b)}]++
	}
	for g, n := range seen {
		if n != 2 {
			t.Errorf("%d blocks of %+v, want 2", n, g)
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d groups, want 2 devices × 2 numbers of clients × 2 rates", len(seen))
	}
	// A thousand clients at 25.5 a second take 39 s to lease and at least 39 s to log in. Two devices have two such
	// storms.
	if least, got := 2*2*78*time.Second, e.EstimatedDuration(); got < least {
		t.Errorf("estimated %v, the slow rate alone takes %v", got, least)
	}
}

// TestStormDurationFollowsTheDevice: the estimate uses the time that a login takes at the device. A custom device
// "full" that is declared to be like gateway-ebpf takes as long as that. "gateway-own" has its own commands and an
// unknown time.
func TestStormDurationFollowsTheDevice(t *testing.T) {
	estimate := func(dut string) time.Duration {
		return parse(t, "measure = \"logins\"\nduts = [\""+dut+
			"\"]\nclients = [4000]\nblocks = 3\nclient.kind = \"persona\"\n"+
			"[dut.full]\nlike = \"gateway-ebpf\"\nsessions = 5000\n[dut.gateway-own]\nstart = \"true\"\nlogin = \"true\"\n").EstimatedDuration()
	}
	quick, like, own, slow := estimate("gateway-ebpf"), estimate("full"), estimate("gateway-own"), estimate("opennds")
	if quick > 2*time.Minute || like != quick || own < 2*quick || slow < 2*own {
		t.Errorf("gatewayd %v, a device like it %v, one with unknown time %v, openNDS %v", quick, like, own, slow)
	}
}

// TestStormTakesWhatOthersSetBack: an experiment of storms has its own defaults (mode, windows, number of clients).
// When its measure is changed to "cost", the defaults and limits of "cost" hold.
func TestStormTakesWhatOthersSetBack(t *testing.T) {
	e := parse(t, stormExperiment)
	if err := e.Set("measure", "cost"); err != nil {
		t.Fatal(err)
	}
	err := e.Check()
	if err == nil || !strings.Contains(err.Error(), "clients: 1000: clients of kind \"macvlan\" go up to 250") ||
		!strings.Contains(err.Error(), "offered_mbps: missing") {
		t.Errorf("a storm's file measured as cost: %v", err)
	}
	if e.Mode != result.ModeDuet || e.Windows != 3 || e.Applies("login_rates") {
		t.Errorf("mode %q, %d windows, rates %v are left of the storm", e.Mode, e.Windows, rates.Value(e))
	}
}

// TestStormProblems: each bad key is an error with file, line and key, and the lines come in this order.
func TestStormProblems(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"payload", stormExperiment + "offered_mbps = [10]\nwindow = \"1s\"\n[traffic]\nkind = \"iperf3\"\n", []string{
			`x.toml:4: offered_mbps: has no meaning with measure = "logins": no payload is sent and no clean router stands beside the device`,
			`x.toml:5: window: has no meaning`, `x.toml:7: traffic.kind: has no meaning`}},
		{"duet", stormExperiment + "mode = \"duet\"\n",
			[]string{`x.toml:4: mode: "duet" does not go with measure = "logins": no clean router`}},
		{"static addresses", stormExperiment + "client.kind = \"veth\"\n",
			[]string{`x.toml:4: client.kind: "veth" does not go with measure = "logins"`}},
		{"another kind beside", stormExperiment + "beside.client = \"persona\"\n",
			[]string{`x.toml:4: beside.client: has no meaning with measure = "logins"`}},
		{"clean", "measure = \"logins\"\nduts = [\"clean\"]\nclients = [1]\n",
			[]string{`x.toml:2: duts: "clean" does not go with measure = "logins"`}},
		{"too many", "measure = \"logins\"\nduts = [\"opennds\"]\nclients = [4001]\n",
			[]string{`x.toml:3: clients: 4001: clients of kind "macvlan" go up to 4000 with measure = "logins"; those of kind "persona" to 65000`}},
		{"rate", stormExperiment + "login_rates = [-1, 0.01]\n", []string{
			`x.toml:4: login_rates: each value must be 0 for all at once, or clients a second from 0.1 to 10000, not -1; `}},
		{"rate of payload", minimalCost + "login_rates = [5]\n", []string{`x.toml:4: login_rates: needs measure = "logins"`}},
		{"nearest word", "measure = \"login\"\n" + minimalCost,
			[]string{`x.toml:1: measure: must be "cost" or "logins", not "login"; did you mean "logins"?`}},
		{"no clients", "measure = \"logins\"\n", []string{`x.toml:1: duts: missing`, `x.toml:1: clients: missing`}},
		{"too large", stormExperiment + "blocks = 1000\nlogin_rates = [0,1,2,3,4,5,6]\n",
			[]string{`x.toml:4: blocks: the plan would have 28000 blocks, more than 20000`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := bothMeasures.Parse("x.toml", []byte(tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d problems, want %d:\n%v", len(lines), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
}
