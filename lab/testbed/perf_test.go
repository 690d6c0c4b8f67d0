package testbed_test

import (
	"bufio"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
func perfSwitches(t *testing.T, fn func()) io.Reader {
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
	if strings.Contains(string(out), "PERF_RECORD_LOST") {
		t.Fatal("perf lost records")
	}
	return strings.NewReader(string(out))
}

var switchRecord = regexp.MustCompile(`^\s*(.+?)\s+(\d+) \[\d+\] (\d+)\.(\d{9}): PERF_RECORD_SWITCH_CPU_WIDE (IN|OUT)`)

// onCPU is the time each thread had a CPU between two moments of
// CLOCK_MONOTONIC, nanoseconds by thread name.
func onCPU(t *testing.T, records io.Reader, from, to int64) map[string]int64 {
	t.Helper()
	type stretch struct {
		name string
		in   int64
	}
	running := map[string]stretch{} // by thread id
	ns := map[string]int64{}
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
			ns[s.name] += max(0, min(now, to)-max(s.in, from))
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
		ns[s.name] += max(0, to-max(s.in, from))
	}
	return ns
}

// recording is the most it takes perf to write the two records of a slice,
// nanoseconds: the thread's own time, but outside of what they enclose. What
// the test is to find, a thread billed while it waits, is ten times as long.
const recording = 4000

// TestMeterAgreesWithPerf checks the meter all results are made of against
// perf's own record, thread by thread: on a router that mostly sleeps, and on
// one whose CPU a busy program wants too.
func TestMeterAgreesWithPerf(t *testing.T) {
	for name, mbps := range map[string]float64{"light load": 50, "heavy load": 400, "beside a busy program": 100} {
		t.Run(name, func(t *testing.T) {
			lab := build(t, testbed.Portal{})
			withClients(t, lab, client.KindVeth, 10)
			if strings.Contains(name, "busy") {
				if err := lab.Router.Spawn(t.Context(), agent.Command{Name: "yes", Argv: []string{"sh", "-c", "exec yes > /dev/null"}}); err != nil {
					t.Fatal(err)
				}
			}
			var before, after meter.Sample
			records := perfSwitches(t, func() {
				before, after = send(t, lab, agent.Traffic{Kind: agent.TrafficStreams, Direction: "up", Clients: 10, OfferedMbps: mbps}, 2*time.Second)
			})
			seen := onCPU(t, records, before.MonotonicNs, after.MonotonicNs)
			slices := map[string]int64{}
			for name, th := range after.NAPI {
				slices["napi/"+name] = th.Slices - before.NAPI[name].Slices
			}
			for name, ns := range metered(before, after) {
				var want int64
				for thread, n := range seen {
					if strings.HasPrefix(thread, name) {
						want += n
					}
				}
				t.Logf("%s: meter %.2f ms, perf %.2f ms", name, float64(ns)/1e6, float64(want)/1e6)
				if allowed := 0.05*float64(want) + recording*float64(slices[name]); want == 0 || math.Abs(float64(ns-want)) > allowed {
					t.Errorf("%s: meter says %.2f ms on a CPU, perf %.2f ms: more than 5 %% apart", name, float64(ns)/1e6, float64(want)/1e6)
				}
			}
		})
	}
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
