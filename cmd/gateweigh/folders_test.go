// Tests of reports of run folders: moved, damaged, old, or on a full disk.

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device
// costs ratio times as much as the clean router. small is an experiment of a few seconds with the device allowlist.

// shell makes a command of gateweigh run a shell script instead. The script calls the program as $gateweigh.
func shell(cmd *exec.Cmd, script string) *exec.Cmd {
	cmd.Env = append(cmd.Env, "gateweigh="+cmd.Path)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-e", "-c", script}
	return cmd
}

// private is shell with a mount namespace of its own.
func private(cmd *exec.Cmd, script string) *exec.Cmd {
	cmd = shell(cmd, "mount --make-rprivate /\n"+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// reportFiles are what gateweigh report makes.
var reportFiles = []string{report.SummaryFile, report.CSVFile, report.HTMLFile}

// sameReports compares the report files of two folders byte by byte.
func sameReports(t *testing.T, dir, a, b string) {
	t.Helper()
	for _, name := range reportFiles {
		if one, other := read(t, dir, filepath.Join(a, name)), read(t, dir, filepath.Join(b, name)); len(one) == 0 ||
			!bytes.Equal(one, other) {
			t.Errorf("%s of %s and %s differ (%d and %d bytes)", name, a, b, len(one), len(other))
		}
	}
}

// profiled adds the profile of one cell to a simulated run.
func profiled(t *testing.T, run string) {
	t.Helper()
	side := func(ns float64, functions ...string) profile.Side {
		const packets = 170_000
		s := profile.Side{
			Seconds: 2, Packets: packets, DeliveredMbps: 1000,
			Accounts: []profile.Account{
				{Name: "napi/lan", Ns: int64(ns * packets), Samples: 200, SampledNs: int64(ns * packets)}},
		}
		for _, f := range functions {
			s.Stacks = append(s.Stacks, profile.Stack{
				Frames:      []profile.Frame{{Func: "napi/lan"}, {Func: f, Module: profile.Kernel}},
				NsPerPacket: ns / float64(len(functions)),
			})
		}
		return s
	}
	p := profile.Profile{
		Cell: result.NewCell(result.DUT, "allowlist", result.Clients, 20, result.OfferedMbps, 1000, result.Direction,
			"up", result.Profile, "per-packet"),
		FrequencyHz: 997, UserStacks: profile.UnwindFP, DUT: side(1200, "ip_forward", "nft_do_chain"),
		Clean: side(1000, "ip_forward"),
	}
	if err := profile.Write(run, p); err != nil {
		t.Fatal(err)
	}
}

// TestReportOfABundleIsTheSame: report and explain print the same for a run's folder and for its bundle. A bundle
// cannot be resumed, and no report is written over another run.
func TestReportOfABundleIsTheSame(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	profiled(t, filepath.Join(dir, "r"))
	for _, args := range []string{"report r", "bundle r -o sent.tar.gz", "report sent.tar.gz", "report sent.tar.gz",
		"report sent.tar.gz -o elsewhere", "report r -o third"} {
		if e := finish(t, command(t, dir, strings.Fields(args)...)); e.code != 0 {
			t.Fatalf("%s: %+v", args, e)
		}
	}
	for _, other := range []string{"sent", "elsewhere", "third"} {
		sameReports(t, dir, "r", other)
	}
	here, there := finish(t, command(t, dir, "explain", "r", "allowlist")),
		finish(t, command(t, dir, "explain", "sent.tar.gz", "allowlist"))
	if here.code != 0 || !strings.Contains(here.stdout, "nft_do_chain") || here.stdout != there.stdout {
		t.Errorf("explain says of the run:\n%s%sand of its bundle:\n%s%s", here.stdout, here.stderr, there.stdout,
			there.stderr)
	}
	printed := finish(t, command(t, dir, "report", "sent.tar.gz", "--json"))
	if printed.code != 0 || printed.stdout != string(read(t, dir, "r/summary.json")) {
		t.Errorf("report --json of a bundle: exit %d, %s", printed.code, printed.stderr)
	}
	simulated(t, dir, "other", 2, 1.2)
	if e := finish(t, command(t, dir, "run", "--resume", "sent.tar.gz")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "unpack it (tar xzf sent.tar.gz") {
		t.Errorf("a bundle resumed: exit %d, %s", e.code, e.stderr)
	}
	for _, args := range []string{"report sent.tar.gz -o other", "report r -o other"} {
		if e := finish(t, command(t, dir, strings.Fields(args)...)); e.code == 0 ||
			!strings.Contains(e.stderr, "choose another folder with -o") {
			t.Errorf("%s: exit %d, %s", args, e.code, e.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "other", report.SummaryFile)); err == nil {
		t.Error("a report was written over another run")
	}
}

// TestReportOfAReadOnlyRun: report of a run on a read-only file system prints its table, and advises -o DIR for the
// files. With -o, report and bundle work.
func TestReportOfAReadOnlyRun(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	if e := finish(t, command(t, dir, "report", "r", "-o", "want")); e.code != 0 {
		t.Fatalf("%+v", e)
	}
	e := finish(t, private(command(t, dir), `mount --bind r r; mount -o remount,ro,bind r
		"$gateweigh" report r -o out >/dev/null
		"$gateweigh" bundle r -o r.tar.gz >/dev/null
		"$gateweigh" report r`))
	if e.code != exitFailed || !strings.Contains(e.stdout, "allowlist") {
		t.Errorf("exit %d without the table:\n%s", e.code, e.stdout)
	}
	for _, want := range []string{"r/summary.json", "read-only file system", "-o DIR"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("stderr lacks %q: %s", want, e.stderr)
		}
	}
	sameReports(t, dir, "want", "out")
	if e := finish(t, command(t, dir, "report", "r.tar.gz", "-o", "unpacked")); e.code != 0 {
		t.Errorf("bundle of a read-only run: %+v", e)
	}
}

// TestReportOnAFullDisk: report prints its table although the files do not fit, says why, and leaves no half file.
func TestReportOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	e := finish(t, private(command(t, dir), `mkdir full; mount -t tmpfs -o size=16k none full
		"$gateweigh" report r -o full || code=$?
		ls -A full; exit $code`))
	if e.code != exitFailed || !strings.Contains(e.stdout, "allowlist") ||
		!strings.Contains(e.stderr, "no space left on device") || !strings.Contains(e.stderr, "-o DIR") {
		t.Errorf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
	if strings.Contains(e.stdout, ".report.html.") || strings.Contains(e.stdout, ".summary.json.") {
		t.Errorf("half a file left behind:\n%s", e.stdout)
	}
}

// TestFullDiskEndsARunThatCanGoOn: a run ends when its disk is full, and continues once there is room.
func TestFullDiskEndsARunThatCanGoOn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", strings.Replace(small, "windows = 2", "windows = 6", 1))
	e := finish(t, private(command(t, dir), `mkdir r; mount -t tmpfs -o size=64k none r
		"$gateweigh" run small.toml --out r || echo "first exit $?"
		cp r/trials.jsonl r/environment.json .
		mount -o remount,size=16m r
		"$gateweigh" run --resume r || echo "second exit $?"
		cp -r r copy`))
	if e.code != 0 || !strings.Contains(e.stdout, "first exit 1") {
		t.Fatalf("exit %d\n%s%s", e.code, e.stdout, e.stderr)
	}
	for _, want := range []string{"no space left on device", "finished trials are kept: free some space", "--resume r"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, e.stderr)
		}
	}
	kept, now := read(t, dir, "trials.jsonl"), read(t, dir, "copy/trials.jsonl")
	if n := bytes.Count(kept, []byte("\n")); n == 0 || !bytes.HasSuffix(kept, []byte("\n")) ||
		!bytes.HasPrefix(now, kept) {
		t.Errorf("%d whole records before the disk was full, of %d bytes; all still there: %v", n, len(kept),
			bytes.HasPrefix(now, kept))
	}
	if first, err := result.ReadEnvironment(filepath.Join(dir, "environment.json")); err != nil || !first.Interrupted {
		t.Errorf("a run that could not write is said to have come to its end: %v, %v", first.Interrupted, err)
	}
	run, err := measure.ReadRun(filepath.Join(dir, "copy"))
	if err != nil || len(run.Trials) != 36 || run.Torn != 0 || run.Environment.Interrupted {
		t.Errorf("%d trials, want 36; %d torn bytes, interrupted %v, %v", len(run.Trials), run.Torn,
			run.Environment.Interrupted, err)
	}
}

// TestNewerRecords: commands refuse a run with a record of a newer format, and change nothing in it.
func TestNewerRecords(t *testing.T) {
	newer := `{"version":2,"kind":"trial","cell":["x"]}` + "\n"
	for place, index := range map[string]int{"in the middle": 3, "at the end": 0} {
		dir := t.TempDir()
		simulated(t, dir, "r", 1, 1.2)
		lines := strings.SplitAfter(string(trials(t, filepath.Join(dir, "r"))), "\n")
		lines = lines[:len(lines)-1]
		if index == 0 {
			index = len(lines)
		}
		text := strings.Join(lines[:index], "") + newer + strings.Join(lines[index:], "")
		write(t, dir, "r/trials.jsonl", text)
		where := "trials.jsonl:" + strconv.Itoa(index+1) + ": version 2"
		for _, args := range []string{"report r", "run --resume r", "bundle r", "compare r r"} {
			e := finish(t, command(t, dir, strings.Fields(args)...))
			if e.code != exitFailed || !strings.Contains(e.stderr, where) ||
				!strings.Contains(e.stderr, "use a newer gateweigh") {
				t.Errorf("%s, newer record %s: exit %d, %s", args, place, e.code, e.stderr)
			}
		}
		if string(trials(t, filepath.Join(dir, "r"))) != text {
			t.Errorf("newer record %s: the trials were changed", place)
		}
	}
}

// TestTornRecord: report, compare and explain name the line of trials.jsonl that is cut short, and leave that record
// out.
func TestTornRecord(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	profiled(t, filepath.Join(dir, "r"))
	text := string(trials(t, filepath.Join(dir, "r")))
	text = text[:len(text)-20]
	write(t, dir, "r/trials.jsonl", text)
	want := fmt.Sprintf("trials.jsonl:%d: the last line is cut short", strings.Count(text, "\n")+1)
	for _, args := range []string{"report r", "compare r r", "explain r allowlist"} {
		e := finish(t, command(t, dir, strings.Fields(args)...))
		message := strings.Join(strings.Fields(e.stdout+e.stderr), " ")
		if e.code != 0 || strings.Count(message, want) != 1 || !strings.Contains(message, "that record is left out") {
			t.Errorf("%s: exit %d, want %q once\n%s%s", args, e.code, want, e.stdout, e.stderr)
		}
	}
	if string(trials(t, filepath.Join(dir, "r"))) != text {
		t.Error("a report changed the trials")
	}
}

// TestMissingFiles: report says which files a run's folder lacks. resume refuses a run without its experiment file.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	reported := func() string {
		e := finish(t, command(t, dir, "report", "r"))
		if e.code != 0 {
			t.Fatalf("exit %d\n%s", e.code, e.stderr)
		}
		return strings.Join(strings.Fields(e.stdout), " ")
	}
	const missing = "is missing from the run's folder"
	if text := reported(); strings.Contains(text, missing) {
		t.Error(text)
	}
	for _, file := range []string{result.ExperimentFile, result.EnvironmentFile} {
		if err := os.Remove(filepath.Join(dir, "r", file)); err != nil {
			t.Fatal(err)
		}
		if text := reported(); !strings.Contains(text, file+" "+missing) {
			t.Errorf("nothing of %s:\n%s", file, text)
		}
		e := finish(t, command(t, dir, "run", "--resume", "r"))
		if e.code != exitUsage ||
			!strings.Contains(e.stderr, "experiment.toml is missing from r, so what was planned is not known: bring it back") {
			t.Errorf("resumed without %s: exit %d, %s", file, e.code, e.stderr)
		}
	}
	if e := finish(t, command(t, dir, "report", "r", "--with", "./r")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "that is the run itself") {
		t.Errorf("completed with itself: exit %d, %s", e.code, e.stderr)
	}
	if err := os.Remove(filepath.Join(dir, "r", result.TrialsFile)); err != nil {
		t.Fatal(err)
	}
	e := finish(t, command(t, dir, "run", "--resume", "r"))
	if e.code != exitUsage || !strings.Contains(e.stderr, "r is not a run folder") {
		t.Errorf("resumed where no run is: exit %d, %s", e.code, e.stderr)
	}
}

// TestClockSteps: somebody set the clock during a run. The report's durations do not come from that clock.
func TestClockSteps(t *testing.T) {
	begin := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for name, step := range map[string]time.Duration{"years ahead": 40 * 365 * 24 * time.Hour, "back": -3 * time.Hour} {
		dir := t.TempDir()
		run := analysistest.Run(analysistest.Spec{
			Seed: 1, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: 1.2}}, Clients: []int{20}, Offered: []float64{500},
			Blocks: 4, Windows: 3, AABlocks: 2, BlockSD: 0.01, WindowSD: 0.01,
		})
		half := len(run.Trials) / 2
		for i := range run.Trials[half:] {
			run.Trials[half+i].Start = run.Trials[half+i].Start.Add(step)
		}
		run.Environment.End = begin.Add(step)
		if err := analysistest.Write(dir, run); err != nil {
			t.Fatal(err)
		}
		e := finish(t, command(t, dir, "report", "."))
		if e.code != 0 {
			t.Fatalf("%s: %+v", name, e)
		}
		page := string(read(t, dir, report.HTMLFile))
		if !strings.Contains(page, "took 36 s") || strings.Contains(page, "took -") || strings.Contains(page, "350400h") {
			_, took, _ := strings.Cut(page, "took ")
			t.Errorf("%s: the report says it took %.20q", name, took)
		}
	}
}

// TestRunWithoutAcceptedTrials: report, bundle and compare take a run whose trials are all rejected, and say so.
func TestRunWithoutAcceptedTrials(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "good", 1, 1.2)
	run := analysistest.Run(analysistest.Spec{
		Seed: 1, DUTs: []analysistest.DUT{{Name: "allowlist", Ratio: 1.2}}, Clients: []int{20}, Offered: []float64{500, 1000},
		Blocks: 2, Windows: 3, AABlocks: 1, RejectEvery: 1,
	})
	if err := analysistest.Write(filepath.Join(dir, "r"), run); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"report r", 0, "No trial was accepted"},
		{"bundle r", 0, "r.tar.gz"},
		{"compare good r", 0, "B has no accepted trial here (6 rejected)"},
		{"compare --max-regression 5% good r", exitUnanswered, "no cell could be judged"},
		{"compare --max-overhead 5% r", exitUnanswered, "no cell could be judged"},
	} {
		e := finish(t, command(t, dir, strings.Fields(tt.args)...))
		if e.code != tt.code || !strings.Contains(e.stdout+e.stderr, tt.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", tt.args, e.code, tt.code, tt.want, e.stdout, e.stderr)
		}
	}
}

// TestReportNamesFaultsAsCompareDoes: report has the same error as compare for a run that does not exist. report --with
// refuses a run of another measure and one whose labs differed otherwise.
func TestReportNamesFaultsAsCompareDoes(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	one, other := finish(t, command(t, dir, "report", "nowhere")), finish(t, command(t, dir, "compare", "nowhere", "r"))
	if one.code != exitFailed || other.code != exitFailed || one.stderr != other.stderr ||
		!strings.Contains(one.stderr, "nowhere is not a run folder, nor a bundle") {
		t.Errorf("report: exit %d, %s, compare: exit %d, %s", one.code, one.stderr, other.code, other.stderr)
	}
	storms := analysistest.Storms(7, []analysistest.LoginQueue{{Name: "allowlist", LoginMs: 2}}, []int{30}, 2)
	if err := analysistest.Write(filepath.Join(dir, "storms"), storms); err != nil {
		t.Fatal(err)
	}
	with := finish(t, command(t, dir, "report", "r", "--with", "storms"))
	for _, want := range []string{"--with storms", "logins", "cost"} {
		if with.code != exitUsage || !strings.Contains(with.stderr, want) {
			t.Errorf("another measure: exit %d, no %q in %s", with.code, want, with.stderr)
		}
	}
	simulated(t, dir, "sides", 2, 1.2)
	env, err := result.ReadEnvironment(filepath.Join(dir, "sides", result.EnvironmentFile))
	if err != nil {
		t.Fatal(err)
	}
	env.Sides = &result.Sides{Device: "clients of kind persona", Clean: "clients of kind macvlan"}
	if err := result.WriteEnvironment(filepath.Join(dir, "sides"), env); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"report", "r", "--with", "sides"}, {"report", "sides", "--with", "r"}} {
		if e := finish(t, command(t, dir, args...)); e.code != exitUsage ||
			!strings.Contains(e.stderr, "the labs of sides differ in more than the device") {
			t.Errorf("%v: exit %d, %s", args, e.code, e.stderr)
		}
	}
}

// TestProfilesOfLinks: profiles of cells that differ only in the rate of the link between two gateways have folders of
// their own. explain tells them apart by --link.
func TestProfilesOfLinks(t *testing.T) {
	dir := t.TempDir()
	simulated(t, dir, "r", 1, 1.2)
	run := filepath.Join(dir, "r")
	profiled(t, run)
	list, err := profile.ReadAll(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, mbps := range []float64{20, 50} {
		p := list[0]
		p.Cell = p.Cell.With(result.LinkMbps, mbps)
		if err := profile.Write(run, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(profile.Dir(run, list[0].Cell)); err != nil {
		t.Fatal(err)
	}
	if all, err := profile.ReadAll(run); err != nil || len(all) != 2 {
		t.Fatalf("%d profiles, %v", len(all), err)
	}
	if e := finish(t, command(t, dir, "explain", "r", "allowlist")); e.code != exitUsage ||
		!strings.Contains(e.stderr, "--link 20") || !strings.Contains(e.stderr, "--link 50") {
		t.Errorf("without a choice: %+v", e)
	}
	for _, mbps := range []string{"20", "50"} {
		if e := finish(t, command(t, dir, "explain", "r", "allowlist", "--link", mbps)); e.code != 0 ||
			!strings.Contains(e.stdout, "link of "+mbps+" Mbit/s") {
			t.Errorf("--link %s: %+v", mbps, e)
		}
	}
}
