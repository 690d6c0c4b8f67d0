// Tests that a router's CPU time is counted with all processes that it starts. build makes a lab of network namespaces
// on this machine (lab_test.go).

package topology_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// kernelBill is the CPU time of all living processes of a name on the lab's router so far,
// from their own schedstat, and how many there are.
func kernelBill(t *testing.T, lab *topology.Lab, name string) (ns int64, n int) {
	t.Helper()
	hello, err := lab.Host("router").Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	space := netns(strconv.Itoa(hello.PID))
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		comm, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(comm)) != name || netns(filepath.Base(filepath.Dir(file))) != space {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), "schedstat"))
		if err != nil {
			continue // it has ended
		}
		th, err := meter.ParseSchedstat(raw)
		if err != nil {
			t.Fatal(err)
		}
		ns, n = ns+th.RunNs, n+1
	}
	return ns, n
}

// netns names the network namespace of a process, "" when it has ended.
func netns(pid string) string {
	name, _ := os.Readlink("/proc/" + pid + "/ns/net")
	return name
}

// TestProgramsAreFollowedWithAllTheyStart: a device that works in children, in
// orphans it has put in the background, and in children of those is billed for
// all of them, also after they have ended.
func TestProgramsAreFollowedWithAllTheyStart(t *testing.T) {
	lab := build(t, topology.Spec{})
	ctx := t.Context()
	const device = `mkfifo /tmp/go; read line < /tmp/go
		(sha1sum < /dev/zero &)
		sh -c 'sh -c "sha1sum < /dev/zero & wait" & sha1sum < /dev/zero & wait' & wait`
	if err := lab.Host("router").Spawn(
		ctx, agent.Command{Name: "device", Argv: []string{"sh", "-c", device}}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the device to wait", func() bool {
		_, err := lab.Host("router").Run(ctx, agent.Command{Argv: []string{"test", "-p", "/tmp/go"}})
		return err == nil
	})
	if err := lab.Host("router").OpenMeter(ctx, agent.Meter{IfNames: lab.Host("router").Ifs, Follow: true}); err != nil {
		t.Fatal(err)
	}
	before, err := lab.Host("router").Sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Host("router").Run(ctx, agent.Command{Argv: []string{"sh", "-c", "echo > /tmp/go"}}); err != nil {
		t.Fatal(err)
	}
	const workers = 3
	labtest.Await(t, "the device's workers", func() bool { _, n := kernelBill(t, lab, "sha1sum"); return n == workers })
	var bill int64
	labtest.Await(t, "the workers to have worked", func() bool {
		bill, _ = kernelBill(t, lab, "sha1sum")
		return bill > 5e8
	})
	after, err := lab.Host("router").Sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	used := processNs(after) - processNs(before)
	billAfter, _ := kernelBill(t, lab, "sha1sum")
	// The meter reads between the two bills, and counts the shells as well.
	if float64(used) < 0.98*float64(bill) || float64(used) > 1.1*float64(billAfter) {
		t.Errorf("the meter says %d ns, the kernel bills the workers %d before and %d after", used, bill, billAfter)
	}
	if _, err := lab.Host("router").Run(ctx, agent.Command{Argv: []string{"pkill", "sha1sum"}}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the workers to end", func() bool { _, n := kernelBill(t, lab, "sha1sum"); return n == 0 })
	last, err := lab.Host("router").Sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if now := processNs(last) - processNs(before); now < used {
		t.Errorf("%d ns after the workers ended, %d before: %+v", now, used, last.Processes)
	}
}

func processNs(s meter.Sample) (ns int64) {
	for _, p := range s.Processes {
		ns += p.RunNs
	}
	return ns
}
