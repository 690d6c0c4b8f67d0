// Tests that the lab's threads go before other programs of the machine when CPUs are scarce. build makes a lab of
// network namespaces on this machine (lab_test.go).

package topology_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// TestLabsPrecede: the polling threads, agents and programs of all hosts go before the machine's other programs, also
// those that have made themselves daemons in sessions of their own.
func TestLabsPrecede(t *testing.T) {
	lab := build(t, topology.Spec{})
	router := lab.Host("router")
	first, second := fmt.Sprint(100_000+os.Getpid()), fmt.Sprint(200_000+os.Getpid()) // seconds that no other test sleeps
	for _, c := range []agent.Command{
		{Name: "plain", Argv: []string{"sleep", first}},
		{Name: "daemon", Argv: []string{"setsid", "sleep", second}},
	} {
		if err := router.Spawn(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Await(t, "the programs to run", func() bool { return len(sleeping(t, first))*len(sleeping(t, second)) == 1 })
	for _, h := range lab.Hosts { // from then on they go first
		if err := h.OpenMeter(t.Context(), agent.Meter{IfNames: h.Ifs}); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range lab.Hosts {
		hello, err := h.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantFirst(t, h.Name, hello.PID)
		threads, err := meter.ThreadsNamed(h.Ifs)
		if err != nil {
			t.Fatal(err)
		}
		for link, tids := range threads {
			if nice := niceOf(t, tids[0]); nice != -20 {
				t.Errorf("%s of %s is polled at nice %d, want -20", link, h.Name, nice)
			}
		}
	}
	for _, seconds := range []string{first, second} {
		for _, pid := range sleeping(t, seconds) {
			wantFirst(t, "sleep "+seconds, pid)
		}
	}
}

// sleeping are the processes that are sleep of a number of seconds, and not what will be that.
func sleeping(t *testing.T, seconds string) (found []int) {
	t.Helper()
	pids, err := meter.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // an error: it has ended
		if string(line) == "sleep\x00"+seconds+"\x00" {
			found = append(found, pid)
		}
	}
	return found
}

// wantFirst requires that a process and its session's group have nice -20.
func wantFirst(t *testing.T, what string, pid int) {
	t.Helper()
	if nice := niceOf(t, pid); nice != -20 {
		t.Errorf("%s runs at nice %d, want -20", what, nice)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
	if err == nil && !strings.HasSuffix(strings.TrimSpace(string(group)), "nice -20") {
		t.Errorf("the session of %s is %q, want nice -20", what, group)
	}
}

func niceOf(t *testing.T, tid int) int32 {
	t.Helper()
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr.Nice
}
