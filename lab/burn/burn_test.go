package burn_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// asRestricted is set where this program runs as a process that may not have real-time priority.
const asRestricted = "BURN_TEST_RESTRICTED"

// lastCPU is the last of the CPUs that this process may use.
func lastCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	last := 0
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	return last
}

// taken is the task clock of a process so far, ns.
func taken(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestBusyProgramsHaveTheRest: beside a program that never sleeps, a burner has its share by the
// kernel's accounts, and the program no more than the rest.
func TestBusyProgramsHaveTheRest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root for real-time priority: make test runs it as root")
	}
	const share = 0.2 // with what other tests take at the same time the CPU is not full
	cpu := lastCPU(t)
	busy := exec.Command("taskset", "-c", strconv.Itoa(cpu), "sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { busy.Process.Kill(); busy.Wait() }()
	labtest.Await(t, "the busy program", func() bool { return taken(t, busy.Process.Pid) > 1e7 })
	b, err := burn.Start([]burn.Load{{CPU: cpu, Share: share}}, burn.RealTime, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	read := func() burn.CPUTime {
		list, err := b.Read()
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	// A window in which the hypervisor takes the CPU away for long is no test of the burner.
	a, before := read(), taken(t, busy.Process.Pid)
	var got, others float64
	labtest.Await(t, "a window in which the burner has its share", func() bool {
		z, now := read(), taken(t, busy.Process.Pid)
		if z.AtNs-a.AtNs < 2e8 {
			return false
		}
		got, others = burn.Share(a, z), float64(now-before)/float64(z.AtNs-a.AtNs)
		a, before = z, now
		return math.Abs(got-share) < 0.01
	})
	t.Logf("burner %.4f, the busy program %.4f", got, others)
	if others > 1-got+0.02 { // the two are not read at the same moment
		t.Errorf("the busy program had %.3f of the CPU beside a burner of %.3f", others, got)
	}
}

// TestWithoutPermission: without the right to real-time priority the burner says so, and burns at normal priority.
func TestWithoutPermission(t *testing.T) {
	if os.Getenv(asRestricted) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "prlimit", "--rtprio=0", self,
			"-test.run=^TestWithoutPermission$", "-test.v")
		cmd.Env = append(os.Environ(), asRestricted+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	loads := []burn.Load{{CPU: lastCPU(t), Share: 0.05}}
	if _, err := burn.Start(loads, burn.RealTime, 0); !errors.Is(err, realtime.ErrDenied) {
		t.Fatalf("real-time: %v", err)
	}
	b, err := burn.Start(loads, burn.Eager, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	labtest.Await(t, "it to burn", func() bool { list, err := b.Read(); return err == nil && list[0].BurnedNs > 1e6 })
}

func TestImpossibleLoads(t *testing.T) {
	for _, l := range []burn.Load{
		{CPU: 0, Share: 0}, {CPU: 0, Share: 1}, {CPU: 0, Share: math.NaN()}, {CPU: 1023, Share: 0.5}} {
		if b, err := burn.Start([]burn.Load{l}, burn.Program, 0); err == nil {
			b.Stop()
			t.Errorf("%+v burns", l)
		}
	}
}
