package result

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CourseFile in a run folder has the courses of all trials: what happened step by step within each trial's windows. It
// is a gzip file of JSON lines, each compressed by itself (zcat prints them). Runs of old versions have no such file.
const CourseFile = "course.jsonl.gz"

// Course is what happened within the windows of one trial. Its first keys are those of the trial's record and name the
// trial.
type Course struct {
	Cell    Cell       `json:"cell"`
	AA      bool       `json:"aa,omitempty"`
	Block   int        `json:"block"`
	Window  int        `json:"window"`
	Attempt int        `json:"attempt"`
	Sitting int        `json:"sitting,omitempty"`
	Node    string     `json:"node,omitempty"`
	StepMs  float64    `json:"step_ms"` // length of the step that one element of the lists describes
	Device  SideCourse `json:"dut"`
	Clean   SideCourse `json:"clean,omitzero"` // the clean router's
}

// SideCourse is the course of one window, the device's or the clean router's. Each list has an element for each step
// since the window's beginning; it may lack the last steps.
type SideCourse struct {
	LinkMbps []float64 `json:"link_mbps,omitempty"`    // rate on the router's outgoing link, counted by the frames' bytes
	CorePct  []float64 `json:"cpu_core_pct,omitempty"` // router's CPU, % of a core
	RTTUs    []float64 `json:"rtt_us,omitempty"`       // median of the round trips that ended in the step; 0: none ended
}

// CourseOf returns an empty course with the keys of a trial.
func CourseOf(t Trial) Course {
	return Course{Cell: t.Cell, AA: t.AA, Block: t.Block, Window: t.Window, Attempt: t.Attempt, Sitting: t.Sitting,
		Node: t.Node}
}

// TrialKey names a trial in its run.
type TrialKey struct {
	cell                            Cell
	aa                              bool
	block, window, attempt, sitting int
	node                            string
}

// Key names the trial.
func (t Trial) Key() TrialKey {
	return TrialKey{t.Cell, t.AA, t.Block, t.Window, t.Attempt, t.Sitting, t.Node}
}

// Key names the course's trial.
func (c Course) Key() TrialKey {
	return TrialKey{c.Cell, c.AA, c.Block, c.Window, c.Attempt, c.Sitting, c.Node}
}

// AppendCourse writes the course of a trial, before the trial's own record, and fills in Node. It does not wait for the
// disk, so a crash of the machine may lose the course.
func (w *Writer) AppendCourse(c Course) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("course of block %d of %s: %w", c.Block, c.Cell.Text(DUT), err)
		}
	}()
	c.Node = w.Node
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(z).Encode(c), z.Close()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.courses == nil {
		if err := w.openCourses(); err != nil {
			return err
		}
	}
	if _, err := w.courses.WriteAt(packed.Bytes(), w.coursesSize); err != nil {
		// A full disk leaves half a record; the next one must not follow it.
		return errors.Join(err, w.courses.Truncate(w.coursesSize))
	}
	w.coursesSize += int64(packed.Len())
	return nil
}

// openCourses opens the file of courses, and cuts off a last record that a crash cut short.
func (w *Writer) openCourses() error {
	file, err := os.OpenFile(filepath.Join(w.dir, CourseFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	size, err := eachCourse(file, nil)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	w.courses, w.coursesSize = file, size
	return nil
}

// EachCourse calls fn for every course of a run folder, in the order of measuring. A folder without courses is no
// error. EachCourse ends without an error at the first record that cannot be read, such as one that a crash cut short.
func EachCourse(dir string, fn func(Course)) error {
	file, err := openCourses(dir)
	if file == nil {
		return err
	}
	defer file.Close()
	_, err = eachCourse(file, fn)
	return err
}

// openCourses opens the courses of a run folder for reading. It returns nil if the folder has none.
func openCourses(dir string) (*os.File, error) {
	path := filepath.Join(dir, CourseFile)
	info, err := os.Stat(path) // Stat comes first, because opening a pipe may take for ever
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read courses: %w", err)
	}
	return file, nil
}

// Bounds of what is read, in bytes: of one course (ten times the size of a course of ten minutes), and of all courses
// of a run.
const (
	mostOfCourse  = 4 << 20
	mostOfCourses = 1 << 30
)

// eachCourse reads whole records from the beginning and returns where the last of them ends. fn may be nil.
func eachCourse(r io.Reader, fn func(Course)) (size int64, err error) {
	counted := &countingReader{Reader: bufio.NewReader(r)}
	var z gzip.Reader
	for read := 0; read < mostOfCourses; {
		if err := z.Reset(counted); err != nil {
			return size, nil // the end of the file, or bytes that begin no record
		}
		z.Multistream(false)
		line, err := io.ReadAll(io.LimitReader(&z, mostOfCourse+1))
		if err != nil || len(line) > mostOfCourse {
			return size, nil
		}
		read += len(line)
		var c Course
		if json.Unmarshal(line, &c) != nil {
			return size, nil
		}
		size = counted.n
		if fn != nil {
			fn(c)
		}
	}
	return size, nil
}

// countingReader counts the bytes read through it. It implements io.ByteReader, so gzip reads no byte beyond the end of
// a record.
type countingReader struct {
	*bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.Reader.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// CopyCourses copies the courses of a run folder, without a last one that is cut short. It copies nothing if the folder
// has none.
func CopyCourses(w io.Writer, dir string) error {
	file, err := openCourses(dir)
	if file == nil {
		return err
	}
	defer file.Close()
	size, err := eachCourse(file, nil)
	if err == nil {
		_, err = io.Copy(w, io.NewSectionReader(file, 0, size))
	}
	return err
}
