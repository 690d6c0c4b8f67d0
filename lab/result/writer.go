package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Names in a run folder.
const (
	TrialsFile      = "trials.jsonl"
	TornFile        = "trials.jsonl.torn"
	EnvironmentFile = "environment.json"
	ExperimentFile  = "experiment.toml" // the experiment, resolved
	GuestFile       = "guest.json"      // only where the lab runs in a virtual machine: what goes on in which
	FramesFolder    = "frames"          // files of frame sizes that the experiment names
	ProfilesFolder  = "profiles"
	LogsFolder      = "logs"
)

// Names in the folder of a profile, a folder of ProfilesFolder.
const (
	ProfileFile     = "profile.json"
	DUTFoldedFile   = "dut.folded"
	CleanFoldedFile = "clean.folded"
	DUTPprofFile    = "dut.pb.gz"
	CleanPprofFile  = "clean.pb.gz"
)

// Writer appends records to a run's trials.jsonl. Each record is on the disk when its Append returns, so a crash loses
// at most the record being written. Several goroutines may use a Writer.
type Writer struct {
	// Node is the name of the campaign's node. Every record gets it.
	Node string

	mu   sync.Mutex
	dir  string
	file *os.File
	size int64 // end of the last whole record, bytes
	err  error // reason why no more can be appended

	courses     *os.File // nil: none was appended
	coursesSize int64
}

// OpenWriter opens DIR/trials.jsonl for appending and creates it when absent. If a crash cut the last line short, this
// line is moved to trials.jsonl.torn. torn is its length in bytes, 0 when the file ended with a whole line. The file is
// locked, so a second writer on the same folder gets an error.
func OpenWriter(dir string) (w *Writer, torn int, err error) {
	path := filepath.Join(dir, TrialsFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("open the trials of a run: %w", err)
	}
	w = &Writer{dir: dir, file: file}
	if torn, err = w.recover(dir); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open %s: %w", path, err), file.Close())
	}
	return w, torn, nil
}

// recover locks the file and cuts off an incomplete last line.
func (w *Writer) recover(dir string) (torn int, err error) {
	if err := syscall.Flock(int(w.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return 0, fmt.Errorf("lock (is another run writing here?): %w", err)
	}
	all, err := io.ReadAll(w.file)
	if err != nil {
		return 0, fmt.Errorf("look for a torn line: %w", err)
	}
	w.size = int64(bytes.LastIndexByte(all, '\n') + 1)
	tail := all[w.size:]
	if len(tail) > 0 {
		// The copy is safe on the disk before the original is cut.
		if err := appendTorn(filepath.Join(dir, TornFile), tail); err != nil {
			return 0, err
		}
		if err := w.file.Truncate(w.size); err != nil {
			return 0, fmt.Errorf("cut off a torn line: %w", err)
		}
	}
	if err := w.file.Sync(); err != nil {
		return 0, err
	}
	return len(tail), syncDir(dir)
}

func appendTorn(path string, tail []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep a torn line aside: %w", err)
	}
	_, werr := file.Write(append(tail[:len(tail):len(tail)], '\n'))
	if err := errors.Join(werr, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("keep a torn line aside: %w", err)
	}
	return nil
}

// AppendTrial writes one trial. It fills in Version, Kind and Node. NaN and infinities cannot be written and are an
// error.
func (w *Writer) AppendTrial(t Trial) error {
	t.Version, t.Kind, t.Node = Version, KindTrial, w.Node
	return w.append(t, KindTrial, t.Block, t.Cell.Text(DUT))
}

// AppendBlock writes the record of a block that ended. It fills in Version, Kind and Node.
func (w *Writer) AppendBlock(b Block) error {
	b.Version, b.Kind, b.Node = Version, KindBlock, w.Node
	return w.append(b, KindBlock, b.Block, b.DUT)
}

// Record is a record of a measure's own kind. Embedding Head makes it one.
type Record interface{ head() *Head }

func (h *Head) head() *Head { return h }

// HeadOf returns the head of a record.
func HeadOf(r Record) *Head { return r.head() }

// Append writes a record of a measure's own kind. It fills in Version, Kind and Node.
func (w *Writer) Append(kind string, r Record) error {
	h := r.head()
	h.Version, h.Kind, h.Node = Version, kind, w.Node
	return w.append(r, kind, h.Block, "the run")
}

func (w *Writer) append(record any, kind string, block int, device string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("record %s of block %d of %s: %w", kind, block, device, err)
		}
	}()
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if _, err = w.file.WriteAt(line, w.size); err != nil {
		// A full disk leaves half a line. The next record must not be appended to it.
		if terr := w.file.Truncate(w.size); terr != nil {
			w.err = fmt.Errorf("trials file left with a torn line: %w", terr)
		}
	} else if err = w.file.Sync(); err != nil {
		// After a failed fsync nobody knows what is on the disk.
		w.err = fmt.Errorf("trials file unreliable since an earlier fsync: %w", err)
	} else {
		w.size += int64(len(line))
	}
	return err
}

// Close closes the file and releases its lock. After that, Append returns an error.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	if w.courses != nil {
		err = errors.Join(err, w.courses.Close())
	}
	w.file = nil
	w.err = os.ErrClosed
	return err
}

// ReplaceFile writes a file of a run folder. A reader finds either the old content or the new, also after a crash. It
// writes a temporary file, calls fsync, renames it and calls fsync on the folder.
func ReplaceFile(path string, data []byte) error {
	return ReplaceBy(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReplaceBy is ReplaceFile for content that is produced while it is written.
func ReplaceBy(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(tmp.Name()) // after the rename there is nothing to remove
	if err := errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
