package watch

import (
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// TestTimer: the timer of a watched CPU runs on, 100 periods and more. It runs whether the CPU is idle or not.
func TestTimer(t *testing.T) {
	c, err := Start(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	last := atomic.LoadUint64(&c.seen.Last)
	labtest.Await(t, "the timer", func() bool { return atomic.LoadUint64(&c.seen.Last) > last+100*uint64(timerPeriod) })
}

// TestAwayReportsAbsenceOnce: Away returns an absence once. A test cannot take a CPU away, so it writes an absence into
// the memory of the eBPF program.
func TestAwayReportsAbsenceOnce(t *testing.T) {
	c, err := Start(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const away = 1 << 50 // ns: longer than any
	labtest.Await(t, "an absence", func() bool {
		atomic.AddUint64(&c.seen.Last, ^uint64(away-1)) // less away, unless the program writes at this moment
		return c.Away() > away/2
	})
	labtest.Await(t, "none", func() bool { return c.Away() < away/2 })
}

// TestRefusals: the error of Start says whether the process lacks the right, or the CPU does not exist. The first case
// runs in the process that TestStartWithoutRights starts.
func TestRefusals(t *testing.T) {
	if os.Getenv(restrictedEnv) != "" {
		if _, err := Start(0); !errors.Is(err, ErrDenied) {
			t.Errorf("without the right: %v", err)
		}
		return
	}
	if _, err := Start(100_000); err == nil || errors.Is(err, ErrDenied) {
		t.Errorf("a CPU that does not exist: %v", err)
	}
}

// restrictedEnv is set in the environment of a process without capabilities.
const restrictedEnv = "GATEWEIGH_TEST_RESTRICTED"

// TestStartWithoutRights runs TestRefusals in a process without capabilities.
func TestStartWithoutRights(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", self, "-test.run=^TestRefusals$")
	cmd.Env = append(os.Environ(), restrictedEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
