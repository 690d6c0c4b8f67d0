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

// checkAllFrames requires that each frame is accounted for once: sent, passed, and taken or lost by the programs' own
// word.
func checkAllFrames(t *testing.T, r *Trial, programs int) {
	t.Helper()
	if r.Offered == 0 || r.Offered > r.Intended || r.Passed > r.Offered || r.Forwarded != nil && *r.Forwarded > r.Passed {
		t.Errorf("%v: %d frames due, %d sent, %d passed, forwarded %v", r.Cell, r.Intended, r.Offered, r.Passed, r.Forwarded)
	}
	works := programs > 0 && r.Cell.Text(result.DUT) != "sink-ebpf" // which counts in the kernel
	if len(r.Programs) != programs || r.Passed > 0 && r.SettledNs == 0 || works && r.ProcessNs+r.SettledNs == 0 ||
		r.SettledNs < r.NAPINs+r.ProcessNs {
		t.Errorf("%v: %d programs had %d ns, polling threads %d, together %d until all was done", r.Cell, len(r.Programs),
			r.ProcessNs, r.NAPINs, r.SettledNs)
	}
	for _, p := range r.Programs {
		if p.Frames >= 0 && p.Frames+p.Dropped != r.Passed { // on a busy machine its end may take too long
			t.Errorf("%v: of %d frames %s took %d and lost %d (%s)", r.Cell, r.Passed, p.Program, p.Frames, p.Dropped, p.Ended)
		}
	}
}

// TestRouterThatCaptures: frames are counted end to end, also behind address translation, where the host is slow and
// has other work. A program with more work than it has CPU loses frames at its socket, and nowhere else says so.
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

// TestHostsBehindASplitter all see the same frames, a number of them, whose way in the splitter counts too.
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
			// A generator that lacks CPU leaves out up to a fiftieth of what is due; what it offers comes everywhere.
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

// TestSecondCPUBesideTheGenerator: a program that shares its CPU with a generator which sends all it can takes few
// frames. It counts these and the lost ones exactly. A trial is rejected for that only where the program waited, and
// higher loads are left out then.
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
	waited := float64(r.WaitNs) / 1e9 / r.LoadSeconds // with the polling threads
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

// openRouter is a lab of a router with a device.
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

// otherHost is a device that captures, on a host that is not what the device is to be.
type otherHost struct{ dut.Capturing }

func (otherHost) FailedProof(context.Context, dut.Env) (string, error) { return "of another kind", nil }

// TestProgramThatDies costs the trial, and the next one has a new program. An interface that vanishes costs the block,
// and the message names it.
func TestProgramThatDies(t *testing.T) {
	l := openRouter(t, "sink-mmap")
	ctx, router := t.Context(), l.stations[0]
	o := &observation{lab: l, length: 50_000_000, captured: make([][]dut.Captured, 1)}
	load := l.load(2, o.length, 30)
	load.Frames.Length = generatorPatience // for all to be sent beside others
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
		t.Errorf("the next one, of another kind: rejected for %q, %v", r, err)
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

// TestStarvedProgram: a program that hardly gets a CPU takes no more CPU time than one that has nothing to do. The
// trial goes on until it has worked its frames off.
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
	load.Frames.Length = generatorPatience // for all to be sent beside others
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(o.send(ctx, load), l.endTraffic(ctx)) }()
	// It waits for its CPU at this many looks in turn, or the trial is over.
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
