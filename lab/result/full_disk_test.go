package result_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// onSmallDisk runs the calling test again in a child process with a mount namespace of its own. In the child it returns
// a folder that is a tmpfs of 64 KiB. In the parent it returns "" after the child has ended, and has failed the test if
// the child failed.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	const variable = "GATEWEIGH_TEST_SMALL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small disk: %v\n%s", err, out)
	}
	return ""
}

// fill writes a file into dir that takes all space of the disk but leave bytes.
func fill(t *testing.T, dir string, leave int64) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	for err == nil {
		_, err = file.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(info.Size() - leave); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestFullDiskCostsTheRecordBeingWritten: a record that does not fit is an error and leaves no part of it in the file.
// Earlier records stay, and later ones can be appended once there is space.
func TestFullDiskCostsTheRecordBeingWritten(t *testing.T) {
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	w := open(t, dir, 0)
	filler := fill(t, dir, 8192)
	written := 0
	var err error
	for ; err == nil; written++ {
		err = w.AppendTrial(trial(written))
	}
	written--
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), result.TrialsFile) || written < 2 {
		t.Fatalf("after %d trials: %v", written, err)
	}
	got, err := result.ReadTrials(filepath.Join(dir, result.TrialsFile), kinds...)
	if err != nil || len(got.Trials) != written || got.Torn != 0 {
		t.Fatalf("%d of %d trials, %d torn bytes, %v", len(got.Trials), written, got.Torn, err)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := w.AppendTrial(trial(99)); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	got, err = result.ReadTrials(filepath.Join(dir, result.TrialsFile), kinds...)
	if err != nil || len(got.Trials) != written+1 || got.Trials[written].Window != 99 {
		t.Errorf("with space again: %d trials, %v", len(got.Trials), err)
	}
}

// TestFullDiskKeepsTheOldFile: a file that is to be replaced stays as it was when the new one does not fit.
func TestFullDiskKeepsTheOldFile(t *testing.T) {
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	if err := result.WriteEnvironment(dir, result.Environment{Experiment: "old"}); err != nil {
		t.Fatal(err)
	}
	filler := fill(t, dir, 0)
	err := result.WriteEnvironment(dir, result.Environment{Experiment: "new"})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), result.EnvironmentFile) {
		t.Errorf("on a full disk: %v", err)
	}
	env, err := result.ReadEnvironment(filepath.Join(dir, result.EnvironmentFile))
	if err != nil || env.Experiment != "old" {
		t.Errorf("the old file: %+v, %v", env, err)
	}
	if _, err := result.WriteBundle(t.Context(), dir, filepath.Join(dir, "b.tar.gz"), false); !errors.Is(
		err, syscall.ENOSPC) {
		t.Errorf("bundle: %v", err)
	}
	filler.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestUnpackOntoAMount: the error says why a bundle cannot be unpacked into its folder.
func TestUnpackOntoAMount(t *testing.T) {
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	name := bundle(t, makeRun(t, runFiles), false)
	if err := result.UnpackBundle(t.Context(), name, dir); !errors.Is(err, syscall.EBUSY) ||
		strings.Contains(err.Error(), "is not the run") {
		t.Errorf("onto a mount: %v", err)
	}
}
