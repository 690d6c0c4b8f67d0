package throughput

import (
	"os"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
)

// TestMain lets the test binary be the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// limitedDevice is an experiment whose device forwards 2,000 packets a second and drops the others. The device's proof
// fails, so the search is rejected, but it is recorded all the same.
const limitedDevice = `measure = "throughput"
duts = ["limited"]
clients = [1]
client = { kind = "veth" }
frame_sizes = [60]
blocks = 1
loss_ratios = [0.3]
search_width = 0.4
redo = 0
max_kpps = 8
window = "250ms"
traffic = { kind = "frames", burst_segments = 1, gaps = "constant" }
[dut.limited]
requires = { nft = "nftables" }
proof = "echo of another kind; exit 3"
start = """nft -f - <<EOF
table ip limited {
  chain forward {
    type filter hook forward priority 0; policy accept;
    iifname "$GATEWEIGH_LAN_IF" meta l4proto udp limit rate over 2000/second burst 50 packets drop
  }
}
EOF
"""
stop = "nft delete table ip limited"
`

// TestSearchInALab makes a whole search in a lab whose router drops frames beyond 2,000 a second.
func TestSearchInALab(t *testing.T) {
	e, err := experiment.Catalogue.Parse(catalogue(), "x.toml", []byte(limitedDevice))
	if err != nil {
		t.Fatal(err)
	}
	run, _ := runnertest.Run(t, Measure{}.Run(), e, Measure{}.Records())
	if len(run.MeasureRecords) != 1 {
		t.Fatalf("%d records: want that of one search", len(run.MeasureRecords))
	}
	s := run.MeasureRecords[0].Record.(*Search)
	if len(s.Goals) != 1 || len(s.Trials) < 2 {
		t.Fatalf("%+v", s)
	}
	if s.Engine != "live" || !s.Watched {
		t.Errorf("engine %q, CPUs watched: %v; want the faster engine and a watch", s.Engine, s.Watched)
	}
	// The proof fails at every trial, and the reason is recorded once.
	ofProof := func(reason string) bool { return reason == "device: of another kind" }
	if i := slices.IndexFunc(s.Rejects, ofProof); i < 0 || slices.ContainsFunc(s.Rejects[i+1:], ofProof) {
		t.Errorf("rejected for %q, want the reason of the device's proof once", s.Rejects)
	}
	// On a busy machine frames leave late and in bursts, of which the device drops more. So the rate may look lower than
	// 2,000, but never higher. There is no upper bound if the generator reaches its limit first.
	g := s.Goals[0]
	if g.LowerKpps > 3.5 || g.UpperKpps > 8 || g.UpperKpps == 0 && s.MaxKpps > 3.5 ||
		g.UpperKpps > 0 && g.UpperKpps <= g.LowerKpps {
		t.Errorf("at most 30 %% loss from %g to %g thousand frames a second, want between 0 and 3.5; trials %+v", g.LowerKpps,
			g.UpperKpps, s.Trials)
	}
	for _, trial := range s.Trials {
		if trial.Offered > 0 && trial.Forwarded > trial.Offered ||
			float64(trial.Forwarded) > 2000*max(trial.Seconds, trial.SentSeconds)+200 {
			t.Errorf("more was forwarded than the device lets through: %+v", trial)
		}
	}
}

// TestVoidTrials: a trial is void if it lost frames and a CPU was away (worked for another guest or the firmware) for
// longer than the ring of a link can hold frames at this load. Its loss is then not the device's.
func TestVoidTrials(t *testing.T) {
	for name, c := range map[string]struct {
		trial Trial
		want  bool
	}{
		"CPU away, nothing lost": {Trial{Kpps: 500, AwayUs: 5000}, false},
		"lost, CPU hardly away":  {Trial{Kpps: 2000, LossRatio: 0.01, AwayUs: 90}, false},
		"lost, CPU away":         {Trial{Kpps: 500, LossRatio: 0.01, AwayUs: 400}, true},
		"the ring lasts longer":  {Trial{Kpps: 50, LossRatio: 0.01, AwayUs: 2000}, false},
		"the ring overflows":     {Trial{Kpps: 50, LossRatio: 0.01, AwayUs: 3000}, true},
	} {
		if got := isVoid(c.trial); got != c.want {
			t.Errorf("%s: void is %v, want %v", name, got, c.want)
		}
	}
}
