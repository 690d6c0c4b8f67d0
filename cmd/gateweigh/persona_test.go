// Tests of runs with personas, clients that share one network namespace.

package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// leftoversSoon lists the processes, links, rules and mounts that runs of this test left behind. withPath makes a
// command find programs in its folder. withGatewayd puts gatewayd into a folder.

// twoLogins is an experiment with a device that lets only the first two clients log in. Clients are personas of two
// machines.
const twoLogins = `duts = ["doors"]
clients = [2, 6]
mbps_per_client = [20]
directions = ["both"]
blocks = 1
aa_blocks = 0
windows = 1
window = "500ms"
redo = 0
client = { kind = "persona", hosts = 2 }
traffic.short_per_second = 100
[dut.doors]
start = "true"
open = true
login = "test $GATEWEIGH_CLIENT -le 2"
`

// TestDeviceThatTakesFewerClients: a device lets 2 of 6 clients log in. The run measures 2 clients, reports the limit,
// and does not try 6 again when it is resumed.
func TestDeviceThatTakesFewerClients(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "doors.toml", twoLogins)
	e := finish(t, command(t, dir, "run", "doors.toml", "--out", "r"))
	measured(t, e)
	const limit = "Limit: doors took 2 clients and not 6: 2 of 6 clients could log in:"
	if !strings.Contains(e.stdout, limit) {
		t.Errorf("the table lacks %q:\n%s", limit, e.stdout)
	}
	if s := summaryOf(t, dir); len(s.Limits) != 1 || len(s.FailedBlocks) != 0 {
		t.Fatalf("limits %+v, failed %+v", s.Limits, s.FailedBlocks)
	}
	if !strings.Contains(string(read(t, dir, "r/report.html")), "doors took 2 clients and not 6") {
		t.Error("the page does not say what the device broke at")
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	if run.Environment.Clients != "kind persona, on 2 hosts behind a switch" {
		t.Errorf("clients are %q", run.Environment.Clients)
	}
	for _, b := range run.Blocks {
		for _, st := range cost.StayOf(b).Stretches {
			f := st.Fairness
			// Traffic goes both ways: two streams a client.
			if f.Streams != 4 || !(f.Jain > 0.25 && f.Jain <= 1+1e-9) || f.Even > 1+1e-9 || f.MinMbps > f.MaxMbps ||
				math.IsNaN(f.Even) {
				t.Errorf("fairness %+v", f)
			}
			if st.Short == nil || st.Short.Done == 0 || st.Short.Failed > 0 || st.CleanShort.Done == 0 ||
				st.Short.Whole.P50 < st.Short.Connect.P50 {
				t.Errorf("short connections %+v, clean %+v", st.Short, st.CleanShort)
			}
			if st.OfferedMbps != 40 || st.Connect.P50 <= 0 || st.FirstByte.P99 < st.FirstByte.P50 {
				t.Errorf("stretch %+v", st)
			}
		}
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
	again := finish(t, command(t, dir, "run", "--resume", "r"))
	if strings.Contains(again.stderr, "building") {
		t.Errorf("a resume tries what the device broke at again:\n%s", again.stderr)
	}
}

// TestLabsThatDiffer runs the built-in experiments whose two labs differ in more than the device, with few clients. The
// report says in what they differ.
func TestLabsThatDiffer(t *testing.T) {
	for _, c := range []struct {
		experiment    string
		set           []string
		device, clean int    // streams of gateweigh's own generator in the device's lab and in the clean router's
		said          string // how the report describes the difference
	}{
		{"persona-check", []string{"clients=3"}, 3, 0,
			"clients of kind persona, traffic of kind streams where the device is, clients of kind macvlan, traffic of kind " +
				"iperf3 at the clean router"},
		{"persona-control", []string{"clients=3", "directions=up"}, 3, 3,
			"clients of kind persona where the device is, clients of kind macvlan at the clean router"},
		{"scale-check", []string{"clients=5", "beside.clients=2"}, 5, 2,
			"the cell's number of clients where the device is, 2 clients at the clean router"},
	} {
		t.Run(c.experiment, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"run", c.experiment, "--out", "r"}
			for _, set := range append(
				c.set, "offered_mbps=50", "blocks=1", "aa_blocks=0", "windows=1", "window=500ms", "warmup=500ms", "redo=0") {
				args = append(args, "--set", set)
			}
			e := finish(t, command(t, dir, args...))
			measured(t, e)
			run, err := measure.ReadRun(filepath.Join(dir, "r"))
			if err != nil {
				t.Fatal(err)
			}
			if s := cost.SidesOf(run.Trials[0]); len(run.Trials) != 1 || s.DUT.PacketsDown == 0 ||
				min(s.Clean.DeliveredMbps, s.DUT.DeliveredMbps) <= 0 {
				t.Fatalf("trials %+v\n%s", run.Trials, e.stderr)
			}
			st := cost.StayOf(run.Blocks[0]).Stretches[0]
			if st.Fairness.Streams != c.device || st.CleanFairness.Streams != c.clean {
				t.Errorf("%d and %d streams, want %d and %d", st.Fairness.Streams, st.CleanFairness.Streams, c.device, c.clean)
			}
			text := strings.Join(strings.Fields(e.stdout), " ")
			for _, want := range []string{
				"What is compared: the labs of a pair differ in more than the device: " + c.said, "ratio ×", "ACKs/segment"} {
				if !strings.Contains(text, want) {
					t.Errorf("the table does not say %q:\n%s", want, e.stdout)
				}
			}
			if run.Environment.Sides == nil || strings.Contains(e.stdout, "Findings") || strings.Contains(text, "overhead ×") {
				t.Errorf("sides %+v; overheads and findings of studies need a gateway:\n%s", run.Environment.Sides, e.stdout)
			}
		})
	}
}

// manyClients is an experiment with 1500 clients at gatewayd. Its warm-up is too short for their streams to connect.
const manyClients = `duts = ["gateway-ebpf"]
clients = [1500]
offered_mbps = [400]
blocks = 1
aa_blocks = 0
windows = 1
redo = 0
warmup = "100ms"
client = { kind = "persona" }
`

// TestManyClientsAtOnce: all clients get leases, log in and connect. The clients of the clean router have static
// addresses. The lab makes the warm-up longer, and the report says how many streams were connected.
func TestManyClientsAtOnce(t *testing.T) {
	dir := t.TempDir()
	withGatewayd(t, dir)
	write(t, dir, "crowd.toml", manyClients)
	e := finish(t, withPath(command(t, dir, "run", "crowd.toml", "--out", "r")))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Blocks) != 1 || len(cost.StayOf(run.Blocks[0]).Stretches) != 1 {
		t.Fatalf("%v, blocks %+v\n%s", err, run.Blocks, e.stderr)
	}
	b := run.Blocks[0]
	if s := cost.StayOf(b); s.Addresses != result.FromDevice || s.CleanAddresses != result.Static || s.Leased != 1500 ||
		s.LoggedIn != 1500 {
		t.Errorf("addresses %s and %s, %d leased, %d logged in", s.Addresses, s.CleanAddresses, s.Leased, s.LoggedIn)
	}
	st := cost.StayOf(b).Stretches[0]
	for _, f := range []cost.Fairness{st.Fairness, st.CleanFairness} {
		if f.Streams != 1500 || f.Broken != 0 || !(f.Jain > 0.5 && f.Jain <= f.Even+1e-9) {
			t.Errorf("fairness %+v", f)
		}
	}
	if st.WarmupSeconds != 2 || st.Memory.Clients != 3000 || st.Memory.MiB <= 0 {
		t.Errorf("warm-up %g s, memory %+v", st.WarmupSeconds, st.Memory)
	}
	for _, want := range []string{"All at once: gateway-ebpf with 1500 clients",
		"all 1500 streams were connected at once, and 1500 at the clean router", "KiB of the machine's memory a client"} {
		if text := strings.Join(strings.Fields(e.stdout), " "); !strings.Contains(text, want) {
			t.Errorf("the table does not say %q:\n%s", want, e.stdout)
		}
	}
}

// comingGuests is an experiment with gatewayd: while two clients send, ten others a second come, log in and leave.
const comingGuests = `duts = ["gateway-ebpf"]
clients = [2]
offered_mbps = [20]
blocks = 1
aa_blocks = 0
windows = 1
redo = 0
client = { kind = "persona", churn = 10 }
`

// TestGuestsComeAndGo: of the guests (clients that come, log in and leave during a window) all get in and leave, and
// the device then has the sessions that it had before.
func TestGuestsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	withGatewayd(t, dir)
	write(t, dir, "coming.toml", comingGuests)
	e := finish(t, withPath(command(t, dir, "run", "coming.toml", "--out", "r")))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Blocks) != 1 || cost.StayOf(run.Blocks[0]).Churn == nil {
		t.Fatalf("%v, blocks %+v\n%s", err, run.Blocks, e.stderr)
	}
	c := cost.StayOf(run.Blocks[0]).Churn
	if c.Came < 5 || c.In != c.Came || c.Gone != c.In || len(c.Failures) > 0 {
		t.Errorf("%d came, %d got in, %d left: %+v", c.Came, c.In, c.Gone, c.Failures)
	}
	if c.Before.Counts["sessions"] != 2 || !c.Settled() || c.Before.PSSMiB <= 0 || c.LoginP50Ms <= 0 {
		t.Errorf("before %+v, after %+v", c.Before, c.After)
	}
	if !strings.Contains(e.stdout, "Guests: gateway-ebpf with 2 clients: 10 a second") {
		t.Errorf("the table does not tell of the guests:\n%s", e.stdout)
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}
