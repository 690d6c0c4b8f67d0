// Tests that the CPU time that a meter reads agrees with what perf records. build makes a lab of network namespaces on
// this machine, withClients gives it clients, and send offers a load for a time (lab_test.go).

package topology_test

import (
	"bufio"
	"fmt"
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
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
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
		"--clockid=CLOCK_MONOTONIC", "--mmap-pages=4M", "--control=fd:3,4", "--output="+data)
	commands, answers := pipes(t, perf)
	var output strings.Builder
	perf.Stderr = &output
	if err := perf.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		perf.Process.Signal(os.Interrupt)
		perf.Wait() // its exit code is that of an interrupt
	})
	t.Cleanup(stop)
	perf.ExtraFiles[1].Close() // so that answers end with perf
	fmt.Fprintln(commands, "ping")
	if _, err := answers.Read(make([]byte, 16)); err != nil { // perf answers once it records
		stop()
		t.Fatalf("perf record: %v\n%s", err, output.String())
	}
	fn()
	stop() // perf has to be woken for that, which is a record later than fn
	out, err := exec.Command(
		"perf", "script", "--input="+data, "--show-switch-events", "--show-lost-events", "--ns").Output()
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, output.String())
	}
	return string(out)
}

// pipes gives a perf the two ends that --control=fd:3,4 names, and returns the test's.
func pipes(t *testing.T, perf *exec.Cmd) (commands, answers *os.File) {
	t.Helper()
	ends := make([]*os.File, 4)
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, end := range ends {
			end.Close()
		}
	})
	perf.ExtraFiles = []*os.File{ends[0], ends[3]}
	return ends[1], ends[2]
}

// switchRecord is one record as perf script prints it. perf pads names,
// thread ids and seconds with blanks, the seconds to five characters.
var switchRecord = regexp.MustCompile(
	`^\s*(.+?)\s+(\d+)\s+\[\d+\]\s+(\d+)\.(\d{9}): PERF_RECORD_SWITCH_CPU_WIDE (IN|OUT)`)

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

// TestSwitchRecordsOfAnyUptime: perf's records are read however long the machine has been up. perf pads the seconds to
// five characters.
func TestSwitchRecordsOfAnyUptime(t *testing.T) {
	printed, err := os.ReadFile("testdata/perf-switches.txt") // real, 1,088 seconds after the machine's start
	if err != nil {
		t.Fatal(err)
	}
	const recordedAt = 1088
	for _, uptime := range []int64{7, 97, recordedAt, 10_001, 9_876_543} {
		records := strings.ReplaceAll(string(printed), fmt.Sprintf("%5d.", recordedAt), fmt.Sprintf("%5d.", uptime))
		seen := onCPU(t, strings.NewReader(records), uptime*1e9+915_737_972, uptime*1e9+915_758_262)
		if got, want := seen.of("sched-pipe"), (turns{ns: 16_985, slices: 6}); got != want {
			t.Errorf("up for %d s: the threads had the CPU for %+v, want %+v", uptime, got, want)
		}
	}
}

// TestMeterAgreesWithPerf checks the meter all results are made of against
// perf's own record, thread by thread: on a router that mostly sleeps, and on
// one whose CPU a busy program wants too.
//
// The time perf takes to write a slice's two records is the thread's own, but
// outside of what they enclose. It depends on the CPU's caches, on what else runs
// there and on whether the CPU sleeps. A known program on the same CPU shows it each
// time: the sleeper, which wakes about as often as the router. It finds the caches cold each time. A thread that runs
// again at once finds them warm, and perf takes half as long (0.58 to 0.72 µs beside 1.14 to 1.37 µs on a busy
// machine). So a thread's time is known to that, and 5 %; that of all threads together, of which most run for longer,
// to 5 %.
func TestMeterAgreesWithPerf(t *testing.T) {
	idle := []string{"chrt", "--idle", "0", "yes"} // keeps the CPU awake and gives way to all others
	for name, load := range map[string]struct {
		mbps   float64
		beside []string
	}{
		"light load":            {50, idle},
		"heavy load":            {400, idle},
		"beside a busy program": {100, []string{"yes"}},
		"light load, asleep":    {50, nil},
		"heavy load, asleep":    {400, nil},
	} {
		t.Run(name, func(t *testing.T) {
			lab := build(t, topology.Spec{})
			withClients(t, lab, client.KindVeth, 10)
			spawnBeside(t, lab, "sleeper", sleeper)
			if load.beside != nil {
				spawnBeside(t, lab, "yes", load.beside)
			}
			var apart []string
			for range 5 { // a machine busy with others has perf's own time in it, and little of the router's
				var before, after meter.Sample
				records := perfSwitches(t, func() {
					before, after = send(t, lab, agent.Traffic{Kind: traffic.KindStreams, Direction: "up", Clients: 10,
						OfferedMbps: load.mbps}, 2*time.Second)
				})
				if apart = disagreements(
					t, onCPU(t, records, before.MonotonicNs, after.MonotonicNs), metered(before, after)); apart == nil {
					return
				}
			}
			t.Errorf("five times over, in the end: %s", strings.Join(apart, "; "))
		})
	}
}

// disagreements are threads of which the meter and perf say what is more than 5 % apart, whatever the caches were, and
// the router where all of them together are.
func disagreements(t *testing.T, seen turnsByThread, cpu map[string]int64) (apart []string) {
	t.Helper()
	known := seen.of(sleeper[0])
	if known.slices == 0 {
		return []string{"perf saw nothing of " + sleeper[0]}
	}
	recording := float64(cpu[sleeper[0]]-known.ns) / float64(known.slices)
	t.Logf("perf takes %.2f µs to record a slice (%d slices of %.1f µs)", recording/1e3, known.slices,
		float64(known.ns)/float64(known.slices)/1e3)
	var router, all float64
	for name, ns := range cpu {
		if name == sleeper[0] {
			continue
		}
		on := seen.of(name)
		want := float64(on.ns) + recording*float64(on.slices)
		t.Logf("%s: meter %.2f ms, perf %.2f ms (%.2f ms and %d slices), %+.1f %%",
			name, float64(ns)/1e6, want/1e6, float64(on.ns)/1e6, on.slices, 100*(float64(ns)/want-1))
		warm := want - recording*float64(on.slices)/2
		if on.slices == 0 || float64(ns) > 1.05*want || float64(ns) < 0.95*warm {
			apart = append(apart, fmt.Sprintf("%s: meter %.2f ms on a CPU, perf %.2f ms", name, float64(ns)/1e6, want/1e6))
		}
		router, all = router+float64(ns), all+want
	}
	t.Logf("router: meter %.2f ms, perf %.2f ms, %+.1f %%", router/1e6, all/1e6, 100*(router/all-1))
	if math.Abs(router-all) > 0.05*all {
		apart = append(apart, fmt.Sprintf("router: meter %.2f ms on a CPU, perf %.2f ms", router/1e6, all/1e6))
	}
	return apart
}

// sleeper is a program that wakes 1,000 times a second and does next to nothing.
var sleeper = []string{"perl", "-e", "select(undef, undef, undef, 0.001) while 1"}

// spawnBeside runs a program that wants the router's CPU.
func spawnBeside(t *testing.T, lab *topology.Lab, name string, argv []string) {
	t.Helper()
	argv = append([]string{"sh", "-c", `exec "$@" > /dev/null`, "sh"}, argv...)
	if err := lab.Host("router").Spawn(t.Context(), agent.Command{Name: name, Argv: argv}); err != nil {
		t.Fatal(err)
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
		for _, earlier := range before.Processes {
			if earlier.PID == p.PID && earlier.Start == p.Start {
				out[p.Name] += p.RunNs - earlier.RunNs
			}
		}
	}
	return out
}
