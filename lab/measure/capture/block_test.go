package capture

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/runner/runnertest"
)

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// The tests of this file send frames past capture programs in real labs. "no-capture" is a device that captures
// nothing, "clean" is a router that cannot capture, and sink-mmap, sink-recv, sink-ebpf and ids are small capture
// programs of the lab.

// measured runs an experiment and returns its trials by device, in their order.
func measured(t *testing.T, text string) (runner.Outcome, result.Environment, map[string][]*Trial) {
	t.Helper()
	run, out := runnertest.Run(t, Measure{}.Run(), parse(t, text), Measure{}.Records())
	trials := map[string][]*Trial{}
	for _, r := range result.RecordsOf[Trial](run.MeasureRecords) {
		trials[r.Cell.Text(result.DUT)] = append(trials[r.Cell.Text(result.DUT)], r)
	}
	return out, run.Environment, trials
}

// checkAllFrames requires that each frame is accounted for once: as sent, as passed, and as taken or lost by each
// program's own counts.
func checkAllFrames(t *testing.T, r *Trial, programs int) {
	t.Helper()
	if r.Offered == 0 || r.Offered > r.Intended || r.Passed > r.Offered || r.Forwarded != nil && *r.Forwarded > r.Passed {
		t.Errorf("%v: %d frames due, %d sent, %d passed, forwarded %v", r.Cell, r.Intended, r.Offered, r.Passed, r.Forwarded)
	}
	usesCPU := programs > 0 && r.Cell.Text(result.DUT) != "sink-ebpf" // sink-ebpf counts in the kernel
	if len(r.Programs) != programs || r.Passed > 0 && r.SettledNs == 0 || usesCPU && r.ProcessNs+r.SettledNs == 0 ||
		r.SettledNs < r.NAPINs+r.ProcessNs {
		t.Errorf("%v: %d programs used %d ns of CPU, polling threads %d ns, both %d ns until all frames were handled", r.Cell,
			len(r.Programs), r.ProcessNs, r.NAPINs, r.SettledNs)
	}
	for _, p := range r.Programs {
		// Frames is -1 when the program was killed before it printed its count, as can happen on a busy machine.
		if p.Frames >= 0 && p.Frames+p.Dropped != r.Passed {
			t.Errorf("%v: of %d frames %s took %d and lost %d (%s)", r.Cell, r.Passed, p.Program, p.Frames, p.Dropped, p.Ended)
		}
	}
}

// TestRouterThatCaptures: frames are counted from end to end on a router with address translation, a slow CPU and
// background work. A program that needs more CPU time than it gets loses frames at its socket, and only its own counts
// show that.
func TestRouterThatCaptures(t *testing.T) {
	out, env, trials := measured(t, `duts = ["no-capture", "sink-mmap", "clean"]
offered_mbps = [200]
frame_sizes = [1514]
window = "200ms"
windows = 1
blocks = 1
redo = 0
masquerade = true
buffers_kib = [64]
works = ["gzip"]
background_pct = [30]
router.speed = 0.5
`)
	if len(out.Skipped) != 1 || out.Skipped[0].DUT != "clean" || len(trials["no-capture"]) != 1 ||
		len(trials["sink-mmap"]) != 1 {
		t.Fatalf("%+v, trials %v", out, trials)
	}
	for name, programs := range map[string]int{"no-capture": 0, "sink-mmap": 1} {
		r := trials[name][0]
		checkAllFrames(t, r, programs)
		if r.Host != "router" || r.Switched != nil || r.Forwarded == nil || r.RouterShare <= 0 || r.Background <= 0 ||
			r.CPUs != r.RouterShare {
			t.Errorf("%+v", r)
		}
	}
	for _, p := range trials["sink-mmap"][0].Programs {
		const fit = 500 // in the buffer and in what gzip does meanwhile; a starved router forwards fewer
		if p.Dropped == 0 && trials["sink-mmap"][0].Passed > fit {
			t.Errorf("%s lost none of %d frames with a buffer of 64 KiB and half a CPU", p.Program,
				trials["sink-mmap"][0].Passed)
		}
	}
	if env.RouterSpeed != 0.5 || strings.Contains(env.Clients, "kind") {
		t.Errorf("speed %g, clients %q", env.RouterSpeed, env.Clients)
	}
}

// TestHostsBehindASplitter: all hosts behind a splitter see the same number of frames. The splitter's own count is
// recorded too.
func TestHostsBehindASplitter(t *testing.T) {
	const frames = 700
	out, env, trials := measured(t, `topology = "tap"
together = true
duts = ["clean", "no-capture", "sink-ebpf", "tcpdump"]
offered_mbps = [20]
frame_sizes = ["imix"]
frames = 700
windows = 1
blocks = 1
redo = 1
cpus = [2]
`)
	if len(out.Skipped) != 1 || len(trials) != 3 || out.Planned != 3 {
		t.Fatalf("%+v, trials %v", out, trials)
	}
	first, hosts := trials["no-capture"], map[string]bool{}
	for name, list := range trials {
		for i, r := range list {
			programs := 1
			if name == "no-capture" {
				programs = 0
			}
			checkAllFrames(t, r, programs)
			hosts[r.Host] = true
			if r.Accepted != first[i].Accepted || r.Offered != first[i].Offered || r.Switched == nil || r.Forwarded != nil {
				t.Errorf("%s: %+v; beside it %+v", name, r, first[i])
			}
			// A generator that lacks CPU leaves out up to 2 % of the due frames. All frames that it sends reach all hosts.
			came := *r.Switched == r.Offered && r.Passed == r.Offered
			if r.Accepted && (!came || r.Intended != frames || r.Offered > frames) {
				t.Errorf("%s: %d frames due, want %d; %d offered, %d split, %d passed",
					name, r.Intended, frames, r.Offered, *r.Switched, r.Passed)
			}
		}
	}
	if len(hosts) != 3 {
		t.Errorf("hosts %v, want three", hosts)
	}
	shared := strings.Contains(env.Placement, "[1] (a second one for programs: [0])")
	for name, list := range trials {
		if list[0].SharedCPU != (shared && name != "no-capture") {
			t.Errorf("%s on %s: shared CPU %v", name, env.Placement, list[0].SharedCPU)
		}
	}
	if text := strings.Join(env.Notes, "\n"); strings.Contains(text, "second CPU") != shared {
		t.Errorf("placed as %q, noted: %s", env.Placement, text)
	}
}

// TestSecondCPUBesideTheGenerator: a program shares its CPU with a generator that sends as fast as it can. It takes few
// frames, and counts these and the lost ones exactly. Only if the program waited for the CPU is the trial rejected for
// that, and higher loads are then left out.
func TestSecondCPUBesideTheGenerator(t *testing.T) {
	out, env, trials := measured(t, `duts = ["sink-recv"]
offered_mbps = [2000, 2500]
frame_sizes = [60]
window = "200ms"
windows = 1
blocks = 1
redo = 0
cpus = [2]
`)
	r := trials["sink-recv"][0]
	checkAllFrames(t, r, 1)
	shared := strings.Contains(strings.Join(env.Notes, "\n"), "second CPU")
	waited := float64(r.WaitNs) / 1e9 / r.LoadSeconds // by the program and the polling threads
	said := strings.Contains(strings.Join(r.Rejects, "\n"), "second CPU")
	if said && (!shared || waited <= maxWait) {
		t.Errorf("the CPU is shared: %v; waited %g of the time, accepted: %v, rejected for %q", shared, waited, r.Accepted,
			r.Rejects)
	}
	planned, higher := 2, trials["sink-recv"][1:]
	if said {
		planned = 0
	} else if len(higher) == 1 && strings.Contains(strings.Join(higher[0].Rejects, "\n"), "second CPU") {
		planned = 1
	}
	if out.Planned != planned || said != (len(higher) == 0) {
		t.Errorf("the lower of two loads was rejected for %q: %d trials at the higher one, %d windows in the plan, want %d",
			r.Rejects, len(higher), out.Planned, planned)
	}
}

// openRouter opens a lab of a router with a device.
func openRouter(t *testing.T, device string) *lab {
	t.Helper()
	e := parse(t, "duts = [\""+device+"\"]\noffered_mbps = [2]\n")
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := e.Plan()[0]
	l, err := open(t.Context(), bench.Labs{Backend: local, Experiment: e, DUT: device, DUTLab: "a", Sides: e.Labs(b)},
		local.Describe().Placement, b.Cells[:1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Leave(context.Background()), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// otherHost is a device whose FailedProof says that its host is not set up as the device needs it.
type otherHost struct{ dut.Capturing }

func (otherHost) FailedProof(context.Context, dut.Env) (string, error) { return "of another kind", nil }

// TestProgramThatDies: when a capture program dies, the trial is rejected, and the next trial starts a new program.
// When the interface is removed, the block fails, and the error names the interface.
func TestProgramThatDies(t *testing.T) {
	l := openRouter(t, "sink-mmap")
	ctx, router := t.Context(), l.stations[0]
	o := &observation{lab: l, length: 50_000_000, captured: make([][]dut.Captured, 1)}
	load := l.load(2, o.length, 30)
	load.Frames.Length = generatorPatience // long enough to send all frames on a busy machine
	if err := l.begin(ctx); err != nil {
		t.Fatal(err)
	}
	if err := runSupport(ctx, router.Host, "sh", "-c", `kill -9 "$(cat "$0"/capture/sink-mmap/pid)"`,
		agent.Scratch); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.before, err = l.read(ctx); err == nil {
		err = errors.Join(o.send(ctx, load), l.endTraffic(ctx), o.finish(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.judge()
	if err != nil || len(r) == 0 || !strings.Contains(r[0], "sink-mmap on a/router: sink-mmap ended") {
		t.Errorf("rejected for %q, %v", r, err)
	}
	router.device = otherHost{router.device}
	o, err = l.observe(ctx, load, o.length)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := o.judge(); err != nil || len(r) == 0 || r[0] != "sink-mmap on a/router: device: of another kind" ||
		len(o.faults) > 1 {
		t.Errorf("the next trial, whose host is not set up for the device: rejected for %q, %v", r, err)
	}
	checkAllFrames(t, o.trial(0), 1)

	if err := l.begin(ctx); err != nil {
		t.Fatal(err)
	}
	if err := runSupport(ctx, router.Host, "ip", "link", "del", router.port); err != nil {
		t.Fatal(err)
	}
	if _, err = l.read(ctx); err == nil ||
		!strings.Contains(err.Error(), "interface "+router.port+" of a/router is gone") {
		t.Errorf("without its interface: %v", err)
	}
}

// TestStarvedProgram: a program that hardly gets a CPU uses as little CPU time as one that has nothing to do. The trial
// therefore goes on until the program has worked through its frames.
func TestStarvedProgram(t *testing.T) {
	l := openRouter(t, "ids")
	ctx, router := t.Context(), l.stations[0]
	o := &observation{lab: l, length: 50 * time.Millisecond, captured: make([][]dut.Captured, 1)}
	busy := agent.Command{
		Name: "busy", Argv: []string{"sh", "-c", "ulimit -t 30; while :; do :; done"}, CPUs: router.CPUs, Support: true}
	if err := errors.Join(router.Spawn(ctx, busy), l.begin(ctx)); err != nil {
		t.Fatal(err)
	}
	err := runSupport(ctx, router.Host, "sh", "-ec", `chrt -a -i -p 0 "$(cat "$0"/capture/ids/pid)"`, agent.Scratch)
	if err == nil {
		o.before, err = l.read(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	load := l.load(10, o.length, 200)
	load.Frames.Length = generatorPatience // long enough to send all frames on a busy machine
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(o.send(ctx, load), l.endTraffic(ctx)) }()
	// Wait until the program was not awake at ten looks in turn, or the traffic has ended.
	for looks := 10; looks > 0 && len(sent) == 0; {
		r, err := router.Rest(ctx)
		if err = errors.Join(err, bench.Sleep(ctx, quietTime)); err != nil {
			t.Fatal(err)
		}
		if looks--; r.Awake == 0 {
			looks = 10
		}
	}
	_, err = router.End(ctx, agent.Ending{Name: "busy"})
	if err = errors.Join(err, <-sent, o.finish(ctx)); err != nil {
		t.Fatal(err)
	}
	final, err := l.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if all, later := final.worked(o.before), final.worked(o.after); later > all/2 {
		t.Errorf("of %d ns of work the program had %d after it was taken to be done", all, later)
	}
	checkAllFrames(t, o.trial(0), 1)
}
