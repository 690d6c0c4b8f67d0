package result_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// courseOf returns a course (what happened within a trial, by steps of 100 ms) of the trial with this number of its
// window. trial and open (a writer for a run folder) are in writer_test.go.
func courseOf(window int) result.Course {
	c := result.CourseOf(trial(window))
	c.StepMs = 100
	c.Device = result.SideCourse{LinkMbps: []float64{98.5, 101}, CorePct: []float64{1.25, 1.5}, RTTUs: []float64{310, 0}}
	c.Clean = result.SideCourse{LinkMbps: []float64{100}}
	return c
}

// readCourses reads all courses of a run folder.
func readCourses(t *testing.T, dir string) (all []result.Course) {
	t.Helper()
	if err := result.EachCourse(dir, func(c result.Course) { all = append(all, c) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// writeCourses appends two courses to an empty run folder, and returns the file's bytes and where each record ends.
func writeCourses(t *testing.T, dir string) (whole []byte, ends []int) {
	t.Helper()
	w := open(t, dir, 0)
	w.Node = "n1"
	for window := range 2 {
		err := w.AppendCourse(courseOf(window))
		if err == nil {
			whole, err = os.ReadFile(filepath.Join(dir, result.CourseFile))
		}
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, len(whole))
	}
	w.Close()
	if err := w.AppendCourse(courseOf(2)); err == nil {
		t.Error("a course was appended to a closed writer")
	}
	return whole, ends
}

// TestCoursesSurviveACrash: a record that was cut short at any byte is left out, and a resume appends behind the whole
// ones.
func TestCoursesSurviveACrash(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, result.CourseFile)
	if all := readCourses(t, dir); len(all) != 0 {
		t.Errorf("a run without courses has %d", len(all))
	}
	whole, ends := writeCourses(t, dir)
	want := []result.Course{courseOf(0), courseOf(1)}
	for i := range want {
		want[i].Node = "n1"
	}
	if diff := cmp.Diff(want, readCourses(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for cut := ends[0]; cut < ends[1]; cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		if all := readCourses(t, dir); len(all) != 1 {
			t.Fatalf("cut at %d of %d bytes: %d records, want 1", cut, len(whole), len(all))
		}
	}
	w := open(t, dir, 0)
	if err := w.AppendCourse(courseOf(5)); err != nil {
		t.Fatal(err)
	}
	if all := readCourses(t, dir); len(all) != 2 || all[1].Window != 5 {
		t.Errorf("after the resume: %+v", all)
	}
	var copied bytes.Buffer
	if err := result.CopyCourses(&copied, dir); err != nil || copied.Len() == 0 {
		t.Errorf("copied %d bytes: %v", copied.Len(), err)
	}
}

// TestCoursesOfStrangers: a file that holds no courses gives none. Reading does not wait for a pipe.
func TestCoursesOfStrangers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, result.CourseFile)
	if err := os.WriteFile(path, []byte("no gzip"), 0o644); err != nil {
		t.Fatal(err)
	}
	if all := readCourses(t, dir); len(all) != 0 {
		t.Errorf("%d records of a file that is not compressed", len(all))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	err := result.EachCourse(dir, func(result.Course) {})
	if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("of a pipe: %v", err)
	}
}
