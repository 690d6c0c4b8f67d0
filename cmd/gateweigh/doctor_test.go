// Tests of gateweigh doctor, which examines a machine.

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/roaming"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist. begin starts a run of small.toml
// into the folder r, and returns after its first trial. leftovers lists what runs of this test left behind: processes,
// links, rules and mounts.

// TestDoctorsManual runs every command of the page on doctor.
func TestDoctorsManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, ran := t.TempDir(), 0
	for _, part := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			args := strings.Fields(strings.TrimPrefix(line, "sudo "))
			if len(args) == 0 {
				continue
			}
			if args[0] != "gateweigh" {
				t.Errorf("%q is no command of gateweigh", line)
				continue
			}
			measures := args[1] == "doctor" && !slices.Contains(args, "--quick")
			if measures { // its figures are wanted
				args = append(args, "--json")
			}
			e := finish(t, command(t, dir, args[1:]...))
			ran++
			if e.code != 0 {
				t.Errorf("%s: exit %d\n%s%s", line, e.code, e.stdout, e.stderr)
			}
			if measures {
				checkMeasured(t, reportOf(t, e.stdout))
			}
		}
	}
	if ran < 4 {
		t.Errorf("only %d commands found", ran)
	}
	labtest.Await(t, "everything of the examination to go", func() bool { return leftovers(t) == "" })
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("the examination left %v", entries)
	}
}

// reportOf reads the output of doctor --json and returns the checks by key.
func reportOf(t *testing.T, text string) map[string]doctor.Check {
	t.Helper()
	var r doctor.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if r.Version != doctor.Version || r.Verdict == "" {
		t.Errorf("version %d, verdict %q", r.Version, r.Verdict)
	}
	lines := map[string]doctor.Check{}
	for _, g := range r.Groups {
		for _, l := range g.Checks {
			lines[l.Key] = l
		}
	}
	return lines
}

// checkMeasured requires plausible figures from the measured part of doctor's report.
func checkMeasured(t *testing.T, lines map[string]doctor.Check) {
	t.Helper()
	if aa := lines["noise.aa"]; aa.State == doctor.Warn && len(aa.Figures) == 0 {
		// Trials may be rejected on a busy machine.
		if !strings.Contains(aa.Found, "trials passed") {
			t.Errorf("A/A pair: %s", aa.Found)
		}
		return
	}
	for key, bounds := range map[string]map[string][2]float64{
		"noise.aa":     {"ratio": {0.5, 2}, "resolution_pct": {0, 1000}},
		"metering.gap": {"router_exact_pct": {1, 100}, "router_thread_ticks_pct": {0, 110}, "cpu_awake_pct": {1, 110}},
	} {
		for figure, b := range bounds {
			v, found := lines[key].Figures[figure]
			if !found || !(float64(v) >= b[0] && float64(v) <= b[1]) {
				t.Errorf("%s: %s is %v of %v: %s", key, figure, v, b, lines[key].Found)
			}
		}
	}
}

// TestDoctorWithoutRoot: as the user nobody, doctor says what it did not examine, and that nothing can run.
func TestDoctorWithoutRoot(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gateweigh-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "gateweigh")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, program)
	const nobody = 65534
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"doctor", "--quick"}, exitNothingRan,
			[]string{"not tried without root", "sudo gateweigh doctor", "sudo gateweigh run", "opennds", "missing  root"}},
		{[]string{"list"}, 0, []string{"takes about", "needs root"}},
		{[]string{"check", "allowlist"}, 0,
			[]string{"1 cell in 8 blocks", "allowlist runs here", "sudo gateweigh run allowlist"}},
	} {
		cmd := command(t, dir, c.args...)
		cmd.Path, cmd.Args[0] = program, program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		e := finish(t, cmd)
		if e.code != c.code {
			t.Errorf("%v: exit %d, want %d: %s", c.args, e.code, c.code, e.stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(e.stdout, want) {
				t.Errorf("%v: no %q in:\n%s", c.args, want, e.stdout)
			}
		}
	}
}

// copyFile copies a program.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestListFollowsThePrograms: list marks what this machine can measure. Without any program on PATH, only devices that
// need none are marked, and the others name a reason.
func TestListFollowsThePrograms(t *testing.T) {
	list := func(path string, args ...string) listing {
		cmd := command(t, t.TempDir(), append([]string{"list", "--json"}, args...)...)
		cmd.Env = append(cmd.Env, "PATH="+path)
		if path != os.Getenv("PATH") {
			withoutSbin(cmd)
		}
		e := finish(t, cmd)
		var l listing
		if err := json.Unmarshal([]byte(e.stdout), &l); err != nil || e.code != 0 {
			t.Fatalf("exit %d, %v: %s", e.code, err, e.stdout)
		}
		return l
	}
	with, without := list(os.Getenv("PATH")), list(t.TempDir())
	if len(with.Experiments) != len(measure.Catalogue().Builtins()) || len(with.Experiments) != len(without.Experiments) {
		t.Fatalf("%d and %d experiments", len(with.Experiments), len(without.Experiments))
	}
	quick, bare := with.Experiments[0], without.Experiments[0]
	if quick.Name != "quick" || len(quick.Here) == 0 || quick.EstimatedSeconds <= 0 || quick.Cells != 2*len(quick.Here) {
		t.Errorf("quick here: %+v", quick)
	}
	gatewayd := slices.ContainsFunc(with.Devices, func(d listedDevice) bool { return d.Name == "gateway-ebpf" && d.Here })
	// They send as much as passes, or as little as the measure says.
	unpaced := []string{throughput.Name, rate.Name, transfer.Name, failover.Name, roaming.Name}
	for _, e := range with.Experiments {
		if !slices.Contains(unpaced, e.Measure) && len(e.OfferedMbps)+len(e.PerClient)+len(e.Kpps)+len(e.LoginRates) == 0 {
			t.Errorf("no load: %+v", e)
		}
		if e.Name == "gateway-scale" && len(e.Here) > 0 != gatewayd {
			t.Errorf("with gatewayd %v: %+v", gatewayd, e)
		}
	}
	if len(bare.Here) != 0 || bare.Cells != 0 || bare.EstimatedSeconds != 0 {
		t.Errorf("quick without any program: %+v", bare)
	}
	for _, d := range without.Devices {
		if d.Here != (len(d.Needs) == 0) || d.Here == (d.Reason != "") {
			t.Errorf("without any program: %+v", d)
		}
	}
	one := list(os.Getenv("PATH"), "opennds")
	if len(one.Experiments) != 0 || len(one.Devices) != 1 ||
		one.Devices[0].Admission != "each client clicks through a splash page" {
		t.Errorf("list opennds: %+v", one)
	}
	if e := finish(t, command(t, t.TempDir(), "list", "openNDS")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "opennds") {
		t.Errorf("an unknown name: exit %d, %s", e.code, e.stderr)
	}
}

// TestDoctorBesideARun: beside a run, doctor names it and its folder. It does not count the run's programs as other
// programs.
func TestDoctorBesideARun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", endless)
	cmd := begin(t, dir).cmd
	text, data := finish(t, command(t, dir, "doctor", "--quick")),
		finish(t, command(t, dir, "doctor", "--quick", "--json"))
	want := fmt.Sprintf("gateweigh run (process %d, folder r)", cmd.Process.Pid)
	lines := reportOf(t, data.stdout)
	if message := strings.Join(strings.Fields(text.stdout), " "); !strings.Contains(message, want+" measures now") ||
		!strings.Contains(message, "First: wait for the other run") {
		t.Errorf("%q is not named first:\n%s", want, text.stdout)
	}
	if found := lines["machine.run"].Found; !strings.Contains(found, want) {
		t.Errorf("a run: %q, want %q", found, want)
	}
	// Runs of other tests count as other programs.
	if found := lines["machine.load"].Found; strings.Contains(found, fmt.Sprintf("(process %d)", cmd.Process.Pid)) {
		t.Errorf("other programs are %q", found)
	}
	for line := range strings.Lines(text.stdout) {
		if rest, is := strings.CutPrefix(line, "  ok "); is && !strings.Contains(rest, " devices ") {
			t.Errorf("nothing is to be done about %q", line)
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
}

// TestDoctorsSideBySide: two examinations at a time do not take each other's processes and links for leftovers.
func TestDoctorsSideBySide(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if e := finish(t, command(t, dir, "doctor", "--quick", "--json")); e.code != 0 {
				t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
			}
		})
	}
}
