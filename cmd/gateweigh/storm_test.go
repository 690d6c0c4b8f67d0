// Tests of storms: measurements in which many clients log in at once.

package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// begin starts a run of small.toml into the folder r, and returns after its first trial. leftovers lists what runs of
// this test left behind: processes, links, rules and mounts. leftoversSoon lists the processes, links, rules and mounts
// that runs of this test left behind. withPath makes a command find programs in its folder.

// storms reads the run in dir and returns its storms by device. A storm is a measurement in which all clients get their
// leases and log in at once, or at a given rate.
func storms(t *testing.T, dir string) map[string][]logins.Storm {
	t.Helper()
	run, err := measure.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string][]logins.Storm{}
	for _, s := range result.RecordsOf[logins.Storm](run.MeasureRecords) {
		by[s.DUT] = append(by[s.DUT], *s)
	}
	return by
}

// gatewayd builds the program gatewayd once and returns its bytes.
var gatewayd = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "gateweigh-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", dir, "../gatewayd").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building gatewayd: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "gatewayd"))
})

// withGatewayd puts gatewayd into a folder, in which withPath finds it.
func withGatewayd(t *testing.T, dir string) {
	t.Helper()
	program, err := gatewayd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gatewayd"), program, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestStormOfLogins: 30 clients log in at once at two devices. Each storm has a record with times and CPU of leases and
// logins, and all report files show it. RADIUS works only for gatewayd (the device gateway-ebpf).
func TestStormOfLogins(t *testing.T) {
	dir := t.TempDir()
	withGatewayd(t, dir)
	write(t, dir, "bell.toml",
		"measure = \"logins\"\nduts = [\"gateway-ebpf\", \"opennds\"]\nclients = [30]\nblocks = 1\nredo = 0\n")
	e := finish(t, withPath(command(t, dir, "run", "bell.toml", "--out", "r")))
	measured(t, e)
	for _, want := range []string{
		"30 clients", "all at once", "logins/s", "CPU/login", "gateway-ebpf", "opennds", "r/report.html"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, e.stdout)
		}
	}
	by := storms(t, filepath.Join(dir, "r"))
	for _, dut := range []string{"gateway-ebpf", "opennds"} {
		if len(by[dut]) != 1 {
			t.Fatalf("%d storms over %s, want 1\n%s", len(by[dut]), dut, e.stderr)
		}
		s := by[dut][0]
		for name, p := range map[string]logins.Phase{"lease": s.Lease, "login": s.Login} {
			if p.Asked != 30 || len(p.Ms) != 30 || p.Through+len(p.GaveUp) != 30 || p.Tries < p.Asked {
				t.Errorf("%s, %s: %d asked, %d through, %d gave up, %d times, %d tries", dut, name, p.Asked, p.Through,
					len(p.GaveUp), len(p.Ms), p.Tries)
			}
			if p.NAPINs+p.ProcessNs <= 0 || p.RoleNs[result.RoleClient] <= 0 || p.RouterBusy <= 0 || p.ClientBusy <= 0 ||
				p.Limit == "" {
				t.Errorf("%s, %s: without CPU: %+v", dut, name, p)
			}
			if p.P50Ms > p.P90Ms || p.P99Ms > p.MaxMs || p.MaxMs > 1000*p.ThroughSeconds+1 || p.PerSecond <= 0 {
				t.Errorf("%s, %s: times %g %g %g %g ms in %g s", dut, name, p.P50Ms, p.P90Ms, p.P99Ms, p.MaxMs, p.ThroughSeconds)
			}
		}
		if s.IdlePSSMiB <= 0 || s.LoggedPSSMiB <= 0 || !s.DeviceLeases || len(s.Died) > 0 {
			t.Errorf("%s: memory %g to %g MiB, leases itself %v, died %v", dut, s.IdlePSSMiB, s.LoggedPSSMiB, s.DeviceLeases,
				s.Died)
		}
	}
	gateway := by["gateway-ebpf"][0].Login
	if gateway.Through != 30 || gateway.RoleNs[result.RoleRadius] <= 0 ||
		by["opennds"][0].Login.RoleNs[result.RoleRadius] != 0 {
		t.Errorf("gateway-ebpf let %d of 30 in; RADIUS used %d ns, with opennds %d ns", gateway.Through,
			gateway.RoleNs[result.RoleRadius], by["opennds"][0].Login.RoleNs[result.RoleRadius])
	}
	checkStormFiles(t, dir)
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// checkStormFiles checks the report files of the run in dir/r.
func checkStormFiles(t *testing.T, dir string) {
	t.Helper()
	s := summaryOf(t, dir)
	if s.Measure != logins.Name || len(s.Cells) != 2 {
		t.Errorf("summary.json: measure %q, %d cells, want 2", s.Measure, len(s.Cells))
	}
	for _, c := range s.Cells {
		if dut := c.Dimensions.Text(result.DUT); c.Dimensions != result.NewCell(
			result.DUT, dut, result.Clients, 30, logins.LoginRate, 0) {
			t.Errorf("summary.json has a cell %s", c.Dimensions)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(string(read(t, dir, "r/summary.csv")))).ReadAll()
	if err != nil || len(rows) != 3 || len(rows[0]) != len(rows[1]) {
		t.Errorf("summary.csv: %v, %d rows", err, len(rows))
	}
	rebuilt := finish(t, command(t, dir, "report", "r", "--json"))
	if rebuilt.code != 0 || rebuilt.stdout != string(read(t, dir, "r/summary.json")) {
		t.Errorf("report --json: exit %d, differs from summary.json", rebuilt.code)
	}
	compared := finish(t, command(t, dir, "compare", "r", "r"))
	if compared.code != 0 || !strings.Contains(compared.stdout, "opennds") ||
		!strings.Contains(compared.stdout, "clients/s") {
		t.Errorf("compare: exit %d: %s%s", compared.code, compared.stdout, compared.stderr)
	}
}

// anyLogin is an experiment with a device that admits every client that logs in. Clients have the lab's addresses.
const anyLogin = `measure = "logins"
duts = ["doors"]
clients = [5]
login_rates = [0, 50]
blocks = 3
redo = 0
[dut.doors]
start = "true"
open = true
login = "true"
`

// TestKilledStormsResume: a killed run of anyLogin keeps its storms, and a resume measures the others once.
func TestKilledStormsResume(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", anyLogin)
	cmd := begin(t, dir).cmd
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	labtest.Await(t, "everything of the run to go", func() bool { return leftovers(t) == "" })
	kept := len(storms(t, filepath.Join(dir, "r"))["doors"])
	e := finish(t, command(t, dir, "run", "--resume", "r"))
	measured(t, e)
	count := map[[2]float64]int{}
	sittings := map[int]int{}
	for _, s := range storms(t, filepath.Join(dir, "r"))["doors"] {
		count[[2]float64{s.LoginRate, float64(s.Block)}]++
		sittings[s.Sitting]++
		if s.DeviceLeases || s.Login.Through != 5 || s.LoginRate > 0 && s.Login.Seconds < 4/s.LoginRate {
			t.Errorf("storm %+v", s)
		}
	}
	if len(count) != 6 || sittings[0] != kept || sittings[1] != 6-kept || kept == 0 {
		t.Errorf("%d storms of 6, by sitting %v, %d before the kill", len(count), sittings, kept)
	}
	for at, n := range count {
		if n != 1 {
			t.Errorf("storm %v was measured %d times", at, n)
		}
	}
}

// breakingDevices is an experiment with three devices: one dies under its clients, one lets half of them in, one has no
// login.
const breakingDevices = `measure = "logins"
duts = ["dies", "half", "allowlist"]
clients = [4]
blocks = 1
redo = 0
[dut.dies]
daemon = "sleep 2; echo out of memory; exit 9"
ready = "true"
open = true
login = "sleep 3"
[dut.half]
start = "true"
open = true
login = '[ $((GATEWEIGH_CLIENT % 2)) -eq 0 ] || { echo "no room for $GATEWEIGH_CLIENT"; exit 7; }'
`

// TestDevicesThatBreakAreReportedAsTheyBroke: of breakingDevices, the report tells the device's last output, the
// clients that gave up and their reasons, and why a device without logins is skipped.
func TestDevicesThatBreakAreReportedAsTheyBroke(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.toml", breakingDevices)
	e := finish(t, command(t, dir, "run", "b.toml", "--out", "r"))
	measured(t, e)
	by := storms(t, filepath.Join(dir, "r"))
	if len(by["dies"]) != 1 || len(by["dies"][0].Died) != 1 || !strings.Contains(by["dies"][0].Died[0], "out of memory") {
		t.Errorf("of the device that died: %+v", by["dies"])
	}
	if want := "dies, 4 clients, block 1: the device has ended"; strings.Count(e.stderr, want) != 1 {
		t.Errorf("%q is not said once while its clients wait:\n%s", want, e.stderr)
	}
	if len(by["half"]) != 1 || by["half"][0].Login.Through != 2 || by["half"][0].Login.Tries != 2+2*8 {
		t.Fatalf("of the device that lets half in: %+v", by["half"])
	}
	login := by["half"][0].Login
	if len(login.Failures) != 1 || login.Failures[0].Count != 2 ||
		!strings.Contains(login.Failures[0].First, "exit status 7") || login.GaveUp[0] != 0 || login.GaveUp[1] != 2 {
		t.Errorf("failures %+v of clients %v", login.Failures, login.GaveUp)
	}
	for _, want := range []string{"dies", "half", "Skipped: allowlist", "its clients do not log in themselves"} {
		if !strings.Contains(strings.Join(strings.Fields(e.stdout), " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, e.stdout)
		}
	}
}

// TestBadStormsAreRefused: run refuses keys that have no meaning for storms of logins, with file, line and key.
func TestBadStormsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"load": {anyLogin[:len("measure = \"logins\"\n")] +
			"duts = [\"opennds\"]\nclients = [5]\noffered_mbps = [5]\n", "bad.toml:4: offered_mbps: has no meaning"},
		"clean": {"measure = \"logins\"\nduts = [\"clean\"]\nclients = [5]\n", "bad.toml:2: duts"},
		"rate alone": {"duts = [\"opennds\"]\nclients = [5]\noffered_mbps = [5]\nlogin_rates = [1]\n",
			"bad.toml:4: login_rates: needs measure"},
	} {
		write(t, dir, "bad.toml", c.text)
		if e := finish(t, command(t, dir, "run", "bad.toml")); e.code != exitUsage || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%s: exit %d, want %d and %q in:\n%s", name, e.code, exitUsage, c.want, e.stderr)
		}
	}
	if e := finish(t, command(t, dir, "run", "quick", "--set", "measure=logins")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "quick.toml:6: offered_mbps") {
		t.Errorf("quick as a storm: exit %d: %s", e.code, e.stderr)
	}
}
