package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/vm"
)

// TestMain: the test binary also is gateweigh and its agents, so that tests can start them as processes.
func TestMain(m *testing.M) {
	agent.Sources = testSources // of agents for other processors too: see smallBox
	vm.RunAs(os.Args)
	agent.RunAs(os.Args)
	if os.Getenv("GATEWEIGH_TEST_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testSources replaces the hash of the sources in labs and agents of these tests.
const testSources = "of-these-tests"

// command prepares a call of gateweigh with the working directory dir. The program is the test binary.
func command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GATEWEIGH_TEST_MAIN=1", mark)
	return cmd
}

// withPath makes a command find programs in its working directory first.
func withPath(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "PATH="+cmd.Dir+":"+os.Getenv("PATH"))
	return cmd
}

// mark is in the environment of every process that this test process starts. By it tests tell their own labs from
// others on the machine.
var mark = fmt.Sprintf("GATEWEIGH_TEST_PROCESS=%d", os.Getpid())

// ended is what a command left when it ended.
type ended struct {
	code           int
	stdout, stderr string
}

// finish runs a command to its end, whatever its exit code.
func finish(t testing.TB, cmd *exec.Cmd) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// small is an experiment that takes a few seconds.
const small = `duts = ["allowlist"]
clients = [3]
offered_mbps = [10, 20]
blocks = 2
aa_blocks = 1
windows = 2
window = "300ms"
warmup = "200ms"
redo = 0
`

// write writes a file and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// measured requires a run to have gone through its plan. Trials may be rejected, because other tests keep the machine
// busy.
func measured(t *testing.T, e ended) {
	t.Helper()
	if e.code != 0 && e.code != exitRejected {
		t.Fatalf("exit code %d\n%s%s", e.code, e.stdout, e.stderr)
	}
}

// trials returns trials.jsonl of the run in a folder; nil if there is none yet.
func trials(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, result.TrialsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return b
}

// TestRunLeavesACompleteFolder: a run of small leaves all records and report files, with the device in both labs in
// turn. A second run does not write into its folder, and report makes the same summary again.
func TestRunLeavesACompleteFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	e := finish(t, command(t, dir, "run", "small.toml", "--out", "r"))
	measured(t, e)
	for _, want := range []string{"allowlist", "overhead", "r/report.html"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, e.stdout)
		}
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != 12 || len(run.Blocks) != 3 {
		t.Errorf("%d trials in %d blocks, want 12 in 3 (2 + 1 A/A, 2 loads, 2 windows)", len(run.Trials), len(run.Blocks))
	}
	labs := map[string]int{}
	for _, tr := range run.Trials {
		labs[tr.DUTLab]++
		if s := cost.SidesOf(tr); min(s.DUT.NAPINs, s.Clean.NAPINs, s.DUT.Packets, int64(s.DUT.RTT.Probes)) <= 0 {
			t.Errorf("trial without figures: %+v", tr)
		} else if idle := cost.IdleP50Us; min(s.DUT.Metrics[idle], s.Clean.Metrics[idle]) <= 0 {
			t.Errorf("trial without round-trip times of idle labs: %v, %v", s.DUT.Metrics, s.Clean.Metrics)
		}
	}
	checkCourses(t, run)
	if labs["a"] == 0 || labs["b"] == 0 {
		t.Errorf("sides were not swapped: %v", labs)
	}
	for _, b := range run.Blocks {
		if s := cost.StayOf(b); b.Error != "" || min(s.LeaseSeconds, s.LoginSeconds) <= 0 || len(s.LoginMs) != 0 {
			t.Errorf("block record: %+v", b)
		}
	}
	if s := summaryOf(t, dir); len(s.Cells) != 2 || s.Measure != cost.Name {
		t.Errorf("summary.json: measure %q, %d cells, want 2", s.Measure, len(s.Cells))
	}
	for _, name := range []string{"report.html", "summary.csv", "environment.json", "experiment.toml"} {
		if len(read(t, dir, filepath.Join("r", name))) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	again := finish(t, command(t, dir, "run", "small.toml", "--out", "r"))
	if again.code != exitUsage || !strings.Contains(again.stderr, "--resume r") {
		t.Errorf("a second run into the same folder: exit %d, %s", again.code, again.stderr)
	}
	rebuilt := finish(t, command(t, dir, "report", "r", "--json"))
	if rebuilt.code != 0 || rebuilt.stdout != string(read(t, dir, "r/summary.json")) {
		t.Errorf("report --json: exit %d, differs from summary.json", rebuilt.code)
	}
	if err := os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(filepath.Join(dir, "r"))); err != nil {
		t.Fatal(err)
	}
	if with := finish(t, command(t, dir, "report", "r", "--with", "copy", "--json")); with.code != 0 ||
		with.stdout != rebuilt.stdout {
		t.Errorf("a run completed by its copy: exit %d, or another summary", with.code)
	}
	if lost := finish(t, command(t, dir, "report", "r", "--with", "nowhere")); lost.code != exitFailed ||
		!strings.Contains(lost.stderr, "nowhere is not a run folder") {
		t.Errorf("completed by no run: exit %d, %s", lost.code, lost.stderr)
	}
}

// checkCourses requires each trial to have a course, and its points to agree with the figures of the window.
func checkCourses(t *testing.T, run result.Run) {
	t.Helper()
	courses := map[result.TrialKey]result.Course{}
	if err := result.EachCourse(run.Dir, func(c result.Course) { courses[c.Key()] = c }); err != nil {
		t.Fatal(err)
	}
	var cpu, rate []float64 // by the course over by the window
	for _, tr := range run.Trials {
		c, s := courses[tr.Key()], cost.SidesOf(tr)
		for _, side := range []struct {
			course result.SideCourse
			window cost.Measurement
		}{{c.Device, s.DUT}, {c.Clean, s.Clean}} {
			if n := len(side.course.CorePct); n == 0 || n > 3 || len(side.course.LinkMbps) != n {
				t.Fatalf("a window of 300 ms has the course %+v", side.course)
			}
			for i, pct := range side.course.CorePct {
				cpu = append(cpu, pct/side.window.CPUCorePct())
				rate = append(rate, side.course.LinkMbps[i]/side.window.LinkMbps)
			}
		}
	}
	slices.Sort(cpu)
	slices.Sort(rate)
	for what, list := range map[string][]float64{"CPU": cpu, "rate": rate} {
		if middle := result.Quantile(list, 0.5); middle < 0.6 || middle > 1.6 { // windows are short, and machines busy
			t.Errorf("%s by courses is %.2f times that of the windows: %.2f", what, middle, list)
		}
	}
	for _, file := range []string{report.CourseCSVFile, report.HTMLFile} {
		text, err := os.ReadFile(filepath.Join(run.Dir, file))
		if err != nil || len(text) == 0 || file == report.HTMLFile && !strings.Contains(string(text), "Within a window") {
			t.Errorf("%s: %d bytes, %v", file, len(text), err)
		}
	}
}

// read returns the contents of dir/name.
func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// summary is the part of summary.json that tests read.
type summary struct {
	Measure      string
	Cells        []struct{ Dimensions result.Cell }
	Limits       []analysis.Limit
	FailedBlocks []analysis.FailedBlock `json:"failed_blocks"`
}

// summaryOf reads the summary of the run in dir/r.
func summaryOf(t *testing.T, dir string) (s summary) {
	t.Helper()
	if err := json.Unmarshal(read(t, dir, "r/summary.json"), &s); err != nil {
		t.Fatalf("summary.json: %v", err)
	}
	return s
}

// endless is small with more blocks than a test waits for: a run of it goes on until it is interrupted.
var endless = strings.Replace(small, "blocks = 2", "blocks = 99", 1)

// begin starts a run of dir/small.toml into dir/r, and returns it once the first record is on the disk.
func begin(t *testing.T, dir string) background {
	t.Helper()
	run := start(t, dir, command(t, dir, "run", "small.toml", "--out", "r"))
	run.recorded(t, dir, "")
	return run
}

// leftovers lists what runs of this test process still have on the machine: agents, links, namespaces, rules and
// mounts. Links in namespaces without names are not listed: they end with the agents.
func leftovers(t *testing.T) string {
	t.Helper()
	var found []string
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		raw, err := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		ours := slices.Contains(strings.Split(string(env), "\x00"), mark)
		if args := strings.Split(string(raw), "\x00"); err == nil && ours && len(args) > 1 &&
			(args[1] == agent.Subcommand || args[1] == agent.InitCommand || args[1] == agent.WorkerCommand) {
			found = append(found, "process "+d.Name()+" "+strings.Join(args, " "))
		}
	}
	for _, c := range []string{"ip -o link", "ip netns", "nft list ruleset", "cat /proc/self/mounts"} {
		out, _ := exec.Command("sh", "-c", c).Output()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "-c0") || strings.Contains(line, "-r0") || strings.Contains(line, "gateweigh") ||
				strings.Contains(line, "allowlist") {
				found = append(found, c+": "+line)
			}
		}
	}
	return strings.Join(found, "\n")
}

// TestKilledRunLeavesNothingAndResumes: after SIGKILL and clean nothing of a run is left on the machine. A resume keeps
// the finished trials and measures each other window once.
func TestKilledRunLeavesNothingAndResumes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	cmd := begin(t, dir).cmd
	if leftovers(t) == "" {
		t.Fatal("agents of a run that goes on are not found")
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	kept := trials(t, filepath.Join(dir, "r"))
	if e := finish(t, command(t, dir, "clean")); e.code != 0 {
		t.Fatalf("clean: %+v", e)
	}
	// The kernel removes namespaces and their threads some time later.
	labtest.Await(t, "everything of the run to go", func() bool { return leftovers(t) == "" })
	e := finish(t, command(t, dir, "run", "--resume", "r"))
	measured(t, e)
	now := trials(t, filepath.Join(dir, "r"))
	whole := kept[:bytes.LastIndexByte(kept, '\n')+1]
	if !bytes.HasPrefix(now, whole) {
		t.Error("a finished trial of the killed run is gone")
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	windows, first := map[string]int{}, 0
	for _, tr := range run.Trials {
		key, _ := json.Marshal([]any{tr.Cell, tr.AA, tr.Block, tr.Window})
		windows[string(key)]++
		if tr.Sitting == 0 {
			first++
		}
	}
	if want := bytes.Count(whole, []byte(`"kind":"trial"`)); first != want {
		t.Errorf("%d trials say that they are of the first sitting, %d are", first, want)
	}
	if len(windows) != 12 || len(run.Trials) != 12 {
		t.Errorf("%d trials of %d windows after the resume, want 12 of 12", len(run.Trials), len(windows))
	}
}

// TestInterruptKeepsTrialsAndSaysHowToGoOn: a run ended by Ctrl-C removes its labs, reports the finished trials and
// names the option --resume.
func TestInterruptKeepsTrialsAndSaysHowToGoOn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", endless)
	run := begin(t, dir)
	if err := run.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	run.cmd.Wait()
	if code := run.cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(run.said(t), "--resume r") {
		t.Errorf("exit %d: %s", code, run.said(t))
	}
	labtest.Await(t, "everything of the run to go", func() bool { return leftovers(t) == "" })
	if len(read(t, dir, "r/report.html")) == 0 {
		t.Error("no report of the finished trials")
	}
}

// TestSecondRunIsToldWhoMeasures: a run beside another one is refused, with the process and folder of the other.
func TestSecondRunIsToldWhoMeasures(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", endless)
	begin(t, dir)
	e := finish(t, command(t, dir, "run", "small.toml", "--out", "other"))
	if e.code != exitFailed || !strings.Contains(e.stderr, "another run measures on this machine (process ") ||
		!strings.Contains(e.stderr, "folder r)") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
}
