package testbed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// kernelBill is the CPU time of all living processes of a name so far, from
// their own schedstat, and how many there are.
func kernelBill(t *testing.T, name string) (ns int64, n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		comm, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(comm)) != name {
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

// TestProgramsAreFollowedWithAllTheyStart: a device that works in children, in
// orphans it has put in the background, and in children of those is billed for
// all of them, also after they have ended.
func TestProgramsAreFollowedWithAllTheyStart(t *testing.T) {
	lab := build(t, testbed.Spec{})
	ctx := t.Context()
	// sha1sum of endless zeros is a name no other program of the machine has.
	const device = `mkfifo /tmp/go; read line < /tmp/go
		(sha1sum < /dev/zero &)
		sh -c 'sh -c "sha1sum < /dev/zero & wait" & sha1sum < /dev/zero & wait' & wait`
	if err := lab.Host("router").Spawn(ctx, agent.Command{Name: "device", Argv: []string{"sh", "-c", device}}); err != nil {
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
	labtest.Await(t, "the device's workers", func() bool { _, n := kernelBill(t, "sha1sum"); return n == workers })
	time.Sleep(time.Second)
	bill, _ := kernelBill(t, "sha1sum")
	after, err := lab.Host("router").Sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	used := processNs(after) - processNs(before)
	// The meter reads a moment later, and counts the shells as well.
	if off := float64(used)/float64(bill) - 1; off < -0.02 || off > 0.2 {
		t.Errorf("the meter says %d ns, the kernel bills the workers %d: %+.1f %%", used, bill, 100*off)
	}
	if _, err := lab.Host("router").Run(ctx, agent.Command{Argv: []string{"pkill", "sha1sum"}}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the workers to end", func() bool { _, n := kernelBill(t, "sha1sum"); return n == 0 })
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
