package send_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

const asRestricted = "GATEWEIGH_TEST_RESTRICTED"

// TestFavoured: both threads have the priority where it is permitted, and frames leave all the same where it is not.
func TestFavoured(t *testing.T) {
	restricted := os.Getenv(asRestricted) != ""
	p := newPair(t)
	sender, err := start(t, p.Client, send.Config{
		Streams: streams(t, p, 1), Plan: &steady{gapNs: 1e6, sizes: []int{60}, streams: 1}, Rests: true, Favoured: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"gw-plan": -20, "gw-frames": -20}
	if restricted {
		want = map[string]int32{"gw-plan": 0, "gw-frames": 0}
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
	cmd := exec.Command("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "prlimit", "--rtprio=0", self, "-test.run=^TestFavoured$", "-test.v")
	cmd.Env = append(os.Environ(), asRestricted+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("without the permission: %v\n%s", err, out)
	}
}

// niceness counts this process's threads of those names that have theirs.
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
