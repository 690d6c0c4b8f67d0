// Tests of the priority of senders' threads. engines are the two ways of sending; newPair makes two namespaces with a
// link; carryOut sends a plan to its end, and steady is a plan with a constant gap (send_test.go, plans_test.go).

package send_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// restrictedEnv is an environment variable. With it the test runs in a process that may not raise its priority.
const restrictedEnv = "GATEWEIGH_TEST_RESTRICTED"

// TestPriorityOfThreads: with Config.Favoured, both threads of a sender have a higher priority than other programs
// (nice -20). Where that is not permitted, frames leave all the same.
func TestPriorityOfThreads(t *testing.T) {
	restricted := os.Getenv(restrictedEnv) != ""
	p := newPair(t)
	sender, err := start(t, p.Client, send.Config{
		Streams: streams(t, p, 1), Plan: &steady{gapNs: 1e6, sizes: []int{60}, streams: 1}, Rests: true, Favoured: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"gw-plan": -20, "gw-frames": -20}
	if restricted { // as the test's process has it
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		want = map[string]int32{"gw-plan": attr.Nice, "gw-frames": attr.Nice}
	}
	labtest.Await(t, "frames", func() bool { return sender.Stats().Offered > 0 })
	if sender.Stats().Favoured == restricted || realtime.Permitted() == restricted {
		t.Errorf("with the priority: %v, restricted: %v", sender.Stats().Favoured, restricted)
	}
	if got := niceness(t, want); got != len(want) {
		t.Errorf("%d of %d threads have their niceness", got, len(want))
	}
	if restricted {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "prlimit", "--rtprio=0", self,
		"-test.run=^TestPriorityOfThreads$", "-test.v")
	cmd.Env = append(os.Environ(), restrictedEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("without the permission: %v\n%s", err, out)
	}
}

// niceness counts the threads of this process whose name is in want and that have the niceness given there.
func niceness(t *testing.T, want map[string]int32) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range names {
		name, err := os.ReadFile(file)
		nice, known := want[strings.TrimSpace(string(name))]
		if err != nil || !known {
			continue
		}
		tid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_NORMAL && attr.Nice == nice {
			n++
		}
	}
	return n
}

// TestSenderContinuesAfterDelay: another program has the CPU of a sender for 200 ms. The sender (Config.Loses) then
// does not send all late frames at once, which would overrun a link, but goes on at its plan's rate. So frames that are
// due at its end have not been sent: they are intended and not offered.
func TestSenderContinuesAfterDelay(t *testing.T) {
	const gap, held = 10 * time.Microsecond, 200 * time.Millisecond
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			cpu := firstCPU(t)
			p := newPair(t)
			sender, err := start(t, p.Client, send.Config{
				Streams: streams(t, p, 1), Plan: &steady{gapNs: int64(gap), sizes: []int{60}, streams: 1}, CPUs: []int{cpu},
				Loses: true, Engine: e, MaxFor: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			labtest.Await(t, "frames", func() bool { return sender.Stats().Offered > 0 })
			occupyCPU(t, cpu, held)
			if err := sender.Stop(); err != nil {
				t.Fatal(err)
			}
			sent := sender.Stats()
			if missing := sent.Intended - sent.Offered; missing < int64(held/gap)/4 {
				// the kernel may have given the sender 50 ms of each second all the same
				t.Errorf("%s: %d of %d frames were not offered, want a good part of the %d that were due meanwhile", sent.Engine,
					missing, sent.Intended, held/gap)
			}
		})
	}
}

// firstCPU returns the first CPU that this process may use.
func firstCPU(t *testing.T) (cpu int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for !set.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// occupyCPU takes a CPU for a time.
func occupyCPU(t *testing.T, cpu int, length time.Duration) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		var one unix.CPUSet
		one.Set(cpu)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			err = realtime.Give(0, realtime.Receiver)
		}
		for start := time.Now(); err == nil && time.Since(start) < length; {
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
