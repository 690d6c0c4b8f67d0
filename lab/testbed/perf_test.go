package testbed_test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// perfSwitches records with perf, over the whole machine and while fn runs,
// each moment at which a thread gets a CPU or gives it up. Samples would not
// do: perf's timer cannot fire while interrupts are off, and a router that wakes
// thousands of times a second spends a good part of its time switching. Nor
// would the sched_switch trace point, which in kernel 6.18 leaves out the
// switches away from the idle task.
//
// On a busy machine perf may not keep up: fn runs again then.
func perfSwitches(t *testing.T, fn func()) io.Reader {
	t.Helper()
	for range 10 {
		if records := recordSwitches(t, fn); !strings.Contains(records, "PERF_RECORD_LOST") {
			return strings.NewReader(records)
		}
	}
	t.Fatal("perf lost records, ten times over")
	return nil
}

// recordSwitches is perf's record while fn runs, as text.
func recordSwitches(t *testing.T, fn func()) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	perf := exec.Command("perf", "record", "--all-cpus", "--switch-events", "--event=dummy:HG",
		"--clockid=CLOCK_MONOTONIC", "--mmap-pages=4M", "--output="+data, "--", "sleep", "60")
	var said strings.Builder
	perf.Stderr = &said
	if err := perf.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		perf.Process.Signal(os.Interrupt)
		perf.Wait() // its exit code is that of the interrupted sleep
	})
	t.Cleanup(stop)
	time.Sleep(time.Second) // it has begun by then, or onCPU complains
	fn()
	time.Sleep(200 * time.Millisecond)
	stop()
	out, err := exec.Command("perf", "script", "--input="+data, "--show-switch-events", "--show-lost-events", "--ns").Output()
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, said.String())
	}
	return string(out)
}

var switchRecord = regexp.MustCompile(`^\s*(.+?)\s+(\d+) \[\d+\] (\d+)\.(\d{9}): PERF_RECORD_SWITCH_CPU_WIDE (IN|OUT)`)

// turns is how long, and in how many stretches, a thread had a CPU.
type turns struct{ ns, slices int64 }

type turnsByThread map[string]turns

// of sums the threads whose name begins so.
func (s turnsByThread) of(name string) (sum turns) {
	for thread, on := range s {
		if strings.HasPrefix(thread, name) {
			sum.ns, sum.slices = sum.ns+on.ns, sum.slices+on.slices
		}
	}
	return sum
}

// onCPU is when each thread had a CPU between two moments of CLOCK_MONOTONIC.
func onCPU(t *testing.T, records io.Reader, from, to int64) turnsByThread {
	t.Helper()
	type stretch struct {
		name string
		in   int64
	}
	running := map[string]stretch{} // by thread id
	seen := turnsByThread{}
	add := func(s stretch, until int64) {
		if ns := min(until, to) - max(s.in, from); ns > 0 {
			seen[s.name] = turns{seen[s.name].ns + ns, seen[s.name].slices + 1}
		}
	}
	first, last := int64(math.MaxInt64), int64(0)
	lines := bufio.NewScanner(records)
	for lines.Scan() {
		f := switchRecord.FindStringSubmatch(lines.Text())
		if f == nil {
			continue
		}
		now, err := strconv.ParseInt(f[3]+f[4], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, last = min(first, now), max(last, now)
		if f[5] == "IN" {
			running[f[2]] = stretch{f[1], now}
			continue
		}
		if s, known := running[f[2]]; known {
			add(s, now)
			delete(running, f[2])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if first > from || last < to {
		t.Fatalf("perf recorded from %d to %d, the meter from %d to %d", first, last, from, to)
	}
	for _, s := range running {
		add(s, to)
	}
	return seen
}

// TestMeterAgreesWithPerf checks the meter all results are made of against
// perf's own record, thread by thread: on a router that mostly sleeps, and on
// one whose CPU a busy program wants too.
//
// The time perf takes to write a slice's two records is the thread's own, but
// outside of what they enclose. On a CPU that is kept awake, by a program that
// gives way to all others, two threads that do nothing but wake each other show
// how long that is. On one that sleeps it takes several times as long: there a
// program beside shows it that sleeps and wakes about as often as the router.
func TestMeterAgreesWithPerf(t *testing.T) {
	recording := recordingCost(t)
	t.Logf("perf takes %.2f µs to record a slice", recording/1e3)
	for name, load := range map[string]struct {
		mbps   float64
		beside []string
	}{
		"light load":            {50, []string{"chrt", "--idle", "0", "yes"}},
		"heavy load":            {400, []string{"chrt", "--idle", "0", "yes"}},
		"beside a busy program": {100, []string{"yes"}},
		"light load, asleep":    {50, sleeper},
		"heavy load, asleep":    {400, sleeper},
	} {
		t.Run(name, func(t *testing.T) {
			lab := build(t, testbed.Spec{})
			withClients(t, lab, client.KindVeth, 10)
			spawnBeside(t, lab, load.beside)
			var apart []string
			for range 5 { // a machine busy with others has perf's own time in it, and little of the router's
				var before, after meter.Sample
				records := perfSwitches(t, func() {
					before, after = send(t, lab, agent.Traffic{Kind: agent.TrafficStreams, Direction: "up", Clients: 10, OfferedMbps: load.mbps}, 2*time.Second)
				})
				if apart = disagreements(t, onCPU(t, records, before.MonotonicNs, after.MonotonicNs), metered(before, after), recording); apart == nil {
					return
				}
			}
			t.Errorf("five times over, in the end: %s", strings.Join(apart, "; "))
		})
	}
}

// disagreements are threads of which the meter and perf say what is more than 5 % apart.
// recording is the time perf takes to record a slice, unless the sleeper shows another.
func disagreements(t *testing.T, seen turnsByThread, cpu map[string]int64, recording float64) (apart []string) {
	t.Helper()
	if on := seen.of(sleeper[0]); on.slices > 0 {
		recording = float64(cpu[sleeper[0]]-on.ns) / float64(on.slices)
		t.Logf("on this CPU perf takes %.2f µs (%d slices of %.1f µs)", recording/1e3, on.slices, float64(on.ns)/float64(on.slices)/1e3)
	}
	var router, all float64
	for name, ns := range cpu {
		if name == sleeper[0] {
			continue
		}
		on := seen.of(name)
		want := float64(on.ns) + recording*float64(on.slices)
		t.Logf("%s: meter %.2f ms, perf %.2f ms (%.2f ms and %d slices), %+.1f %%",
			name, float64(ns)/1e6, want/1e6, float64(on.ns)/1e6, on.slices, 100*(float64(ns)/want-1))
		if on.slices == 0 || math.Abs(float64(ns)-want) > 0.05*want {
			apart = append(apart, fmt.Sprintf("%s: meter %.2f ms on a CPU, perf %.2f ms", name, float64(ns)/1e6, want/1e6))
		}
		router, all = router+float64(ns), all+want
	}
	t.Logf("router: meter %.2f ms, perf %.2f ms, %+.1f %%", router/1e6, all/1e6, 100*(router/all-1))
	return apart
}

// sleeper is a program that wakes 1,000 times a second and does next to nothing.
var sleeper = []string{"perl", "-e", "select(undef, undef, undef, 0.001) while 1"}

// spawnBeside runs a program that wants the router's CPU.
func spawnBeside(t *testing.T, lab *testbed.Lab, argv []string) {
	t.Helper()
	argv = append([]string{"sh", "-c", `exec "$@" > /dev/null`, "sh"}, argv...)
	if err := lab.Host("router").Spawn(t.Context(), agent.Command{Name: "yes", Argv: argv}); err != nil {
		t.Fatal(err)
	}
}

// recordingCost is the time perf takes to write the records of one slice, ns:
// what the meter says more than perf about two threads that wake each other.
func recordingCost(t *testing.T) float64 {
	t.Helper()
	lab := build(t, testbed.Spec{})
	const name = "sched-pipe" // what the benchmark calls its threads
	argv := []string{"taskset", "--cpu-list", strconv.Itoa(runtime.NumCPU() - 1), "perf", "bench", "sched", "pipe", "--threaded", "--loop", "100000000"}
	if err := lab.Host("router").Spawn(t.Context(), agent.Command{Name: name, Argv: argv, Abrupt: true}); err != nil {
		t.Fatal(err)
	}
	var before, after meter.Sample
	records := perfSwitches(t, func() { before, after = sampleTwice(t, lab, time.Second) })
	if err := lab.Close(); err != nil { // and with it the benchmark
		t.Fatal(err)
	}
	on := onCPU(t, records, before.MonotonicNs, after.MonotonicNs).of(name)
	if on.slices < 10000 {
		t.Fatalf("the two threads woke each other %d times in a second", on.slices)
	}
	return float64(metered(before, after)[name]-on.ns) / float64(on.slices)
}

// metered is the CPU time between two samples, nanoseconds by the beginning of
// the thread's name.
func metered(before, after meter.Sample) map[string]int64 {
	out := map[string]int64{}
	for name, th := range after.NAPI {
		out["napi/"+name] = th.RunNs - before.NAPI[name].RunNs
	}
	for _, p := range after.Processes {
		for _, was := range before.Processes {
			if was.PID == p.PID && was.Start == p.Start {
				out[p.Name] += p.RunNs - was.RunNs
			}
		}
	}
	return out
}
