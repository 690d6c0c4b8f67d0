package rate

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// The tests of this file measure TCP through two gateways with different path MTUs, and check outcomes, limits and the
// errors of bad keys. The device "hole" has a small MTU and does not tell the sender (an MTU black hole), "narrow"
// tells it, and "clean" has no tunnel.

// parse parses an experiment of the measure "rate".
func parse(t *testing.T, text string) (*experiment.Experiment, error) {
	t.Helper()
	c := experiment.Catalogue{DUTs: dut.Names(), Measures: []experiment.Measure{Measure{}.Rules()}}
	for _, name := range topology.Names() {
		top := topology.Topologies[name](topology.Spec{})
		c.Topologies = append(c.Topologies, experiment.Topology{Name: name, Roles: top.Roles(), Gateways: top.Gateways()})
	}
	return c.Parse("x.toml", []byte(text))
}

// tunnelWithoutICMP defines two devices whose link between the gateways has an MTU of 1400 bytes. "hole" drops the ICMP
// messages that would tell the sender. "narrow" sends them, and its proof fails.
const tunnelWithoutICMP = `
[dut.hole]
tunnel = true
start = '''
ip link set "$GATEWEIGH_OUTER_IF" mtu 1400
nft 'table ip mute { chain out { type filter hook output priority 0; icmp type destination-unreachable drop; }; }'
'''
stop = '''
nft delete table ip mute
ip link set "$GATEWEIGH_OUTER_IF" mtu 1500
'''

[dut.narrow]
tunnel = true
mtu = 1400
proof = "echo of another kind; exit 3"
start = 'ip link set "$GATEWEIGH_OUTER_IF" mtu "$GATEWEIGH_MTU"'
stop = 'ip link set "$GATEWEIGH_OUTER_IF" mtu 1500'
`

// expectedPath has the figures that a trial must find. Sizes of packets are in bytes.
type expectedPath struct {
	outcome string // "", BlackHole or Stalled
	passes  int    // largest packet that comes through
	known   int    // largest packet that the sender's kernel takes the path to carry
	tunnel  int    // largest packet that the device says it takes
	formula string // of the useful share of the link
}

// check compares a trial with the expected figures.
func (want expectedPath) check(t *testing.T, r *Trial) {
	t.Helper()
	// On a busy machine the answers to a packet may all come too late. It then counts as lost, and passes is smaller.
	found := r.PathMTU.Passes == want.passes || want.outcome == BlackHole && r.PathMTU.Passes < want.passes
	if r.Outcome != want.outcome || !found || r.PathMTU.Known != want.known || r.TunnelMTU != want.tunnel ||
		r.Formula != want.formula {
		t.Errorf("%v: outcome %q, path %+v, tunnel %d, %s", r.Cell, r.Outcome, r.PathMTU, r.TunnelMTU, r.Formula)
	}
	if r.IdleRTT.Probes == 0 || want.outcome == "" && (r.EnterNs == 0 || r.LeaveNs == 0 || r.LinkBytes == 0) ||
		r.LinkMbps != 200 {
		t.Errorf("%v: %+v", r.Cell, r)
	}
	if stalls := want.outcome != ""; stalls != (r.DeliveredBytes == 0) || stalls == (r.LimitedBy != "") {
		t.Errorf("%v: delivered %d bytes, limited by %q", r.Cell, r.DeliveredBytes, r.LimitedBy)
	}
}

// TestPathMTUOutcomes: the measure tells apart a path that takes full packets, a path with a small MTU that tells the
// sender, and one that does not. It finds the sizes of packets that each carries. On a busy machine windows may be
// rejected; their counts are exact all the same.
func TestPathMTUOutcomes(t *testing.T) {
	e, err := parse(t, `measure = "rate"
duts = ["clean", "narrow", "hole"]
clients = [2]
link.mbps = [200]
blocks = 1
windows = 1
window = "500ms"
warmup = "300ms"
redo = 0
`+tunnelWithoutICMP)
	if err != nil {
		t.Fatal(err)
	}
	run, _ := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	trials := map[string]*Trial{}
	for _, r := range result.RecordsOf[Trial](run.MeasureRecords) {
		trials[r.Cell.Text(result.DUT)] = r
	}
	for device, want := range map[string]expectedPath{
		"clean":  {"", 1500, 1500, 1500, "(1500 − 20 − 20 − 12) / (1500 + 14)"},
		"narrow": {"", 1400, 1400, 1400, "(1400 − 20 − 20 − 12) / (1400 + 14)"},
		"hole":   {BlackHole, 1400, 1500, 1500, "(1500 − 20 − 20 − 12) / (1500 + 14)"},
	} {
		if r := trials[device]; r != nil {
			want.check(t, r)
			if said := slices.Contains(r.Rejects, "device: of another kind"); said != (device == "narrow") {
				t.Errorf("%s: rejected for %q", device, r.Rejects)
			}
		} else {
			t.Errorf("%s was not measured", device)
		}
	}
	s := Measure{}.Summarise(run, analysis.Options{})
	if hole := trials["hole"]; hole != nil && hole.Accepted &&
		!strings.Contains(strings.Join(s.Warnings, "\n"), "black hole") {
		t.Errorf("no warning of the black hole: %q", s.Warnings)
	}
}

// TestOutcomeOfLossyLinks: on a link that loses packets on purpose (lossPct), a lost long packet does not prove a black
// hole. delivered is the payload that arrived, bytes.
func TestOutcomeOfLossyLinks(t *testing.T) {
	short := rtt.MTU{Passes: 1400, Known: 1500}
	for _, c := range []struct {
		mtu       rtt.MTU
		lossPct   float64
		delivered int64
		want      string
	}{
		{short, 0, 1e6, BlackHole}, {short, 0, 0, BlackHole}, {short, 50, 1e6, ""}, {short, 50, 0, Stalled},
		{rtt.MTU{Passes: 1500, Known: 1500}, 0, 1e6, ""}, {rtt.MTU{Passes: 1500, Known: 1500}, 0, 0, Stalled},
	} {
		if got := pathFault(&Trial{PathMTU: c.mtu, DeliveredBytes: c.delivered}, c.lossPct); got != c.want {
			t.Errorf("%+v, a loss of %g %%, %d bytes delivered: %q, want %q", c.mtu, c.lossPct, c.delivered, got, c.want)
		}
	}
}

// TestLimits: limit finds what limited the rate of a window of one second: the link, the CPU of the gateways, the CPU
// of clients and server (ends), or something else.
func TestLimits(t *testing.T) {
	oneCPUEach := backend.Description{Placement: backend.Placement{Router: []int{1}, Endpoints: []int{0}}}
	b := &block{Session: &runner.Session{Description: oneCPUEach}}
	for want, r := range map[string]Trial{
		ByLink:    {LinkMbps: 100, LinkBytes: 12_400_000},
		ByGateway: {EnterNs: 500e6, LeaveNs: 450e6},
		ByEnds:    {EnterNs: 100e6, EndsNs: 950e6},
		ByUnknown: {LinkMbps: 100, LinkBytes: 6_000_000, EnterNs: 100e6},
	} {
		r.LinkSeconds, r.LoadSeconds, r.GatewayCPUs = 1, 1, 1
		if got := b.limit(&r); got != want {
			t.Errorf("%s, want %s of %+v", got, want, r)
		}
	}
}

// TestKeysThatAreRefused: the error about an invalid experiment names the key.
func TestKeysThatAreRefused(t *testing.T) {
	for key, line := range map[string]string{
		"topology": `topology = "portal"`, "directions": `directions = ["both"]`, "traffic.kind": `traffic.kind = "iperf3"`,
		"link.mbps":     `link.mbps = [0.5]`,
		"link.loss_pct": `link.loss_pct = 90`, "link.delay": `link.delay = "2s"`,
	} {
		_, err := parse(t, "measure = \"rate\"\nduts = [\"clean\"]\nclients = [1]\n"+line+"\n")
		if err == nil || !strings.Contains(err.Error(), "x.toml:4: "+key) {
			t.Errorf("%s: %v", line, err)
		}
	}
	e, err := parse(t, "measure = \"rate\"\nduts = [\"clean\", \"openvpn-none\"]\nclients = [1]\nlink.mbps = [0, 100]\n")
	if err != nil {
		t.Fatal(err)
	}
	var links []float64
	for _, b := range e.Plan() {
		links = append(links, b.Cells[0].Number(result.LinkMbps))
	}
	if slices.Sort(links); e.Topology != "tunnel" || len(slices.Compact(links)) != 2 {
		t.Errorf("topology %s, links %v", e.Topology, links)
	}
}
