package result

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MostFollowed is the largest number of bytes of trials.jsonl that a Follower reads in one call.
const MostFollowed = 256 << 20

// Follower reads a run again and again while the run may be going on. Each time it reads only what was appended to
// trials.jsonl since the last time. It takes no lock and writes nothing.
type Follower struct {
	path    string
	file    os.FileInfo // file info at the last read; nil before the first
	lines   int         // number of whole lines read
	offset  int64       // of the next line, bytes
	seen    map[any]bool
	records Records
}

// Follow returns a Follower of the run in folder dir. It has not read anything yet.
func Follow(dir string) *Follower {
	return &Follower{path: filepath.Join(dir, TrialsFile), seen: map[any]bool{}}
}

// Read returns the run like ReadRun, in its present state. grew reports whether there are more records than at the last
// call. A file that was replaced or shortened is read from its beginning. Lists that an earlier call returned do not
// change. Read refuses a file that is not regular, because reading it might never end, and a file that grew by more
// than MostFollowed. kinds must be the same in all calls.
func (f *Follower) Read(kinds ...Kind) (run Run, grew bool, err error) {
	dir := filepath.Dir(f.path)
	if err := CheckFiles(dir); err != nil {
		return Run{Dir: dir}, false, err
	}
	env, envErr := ReadEnvironment(filepath.Join(dir, EnvironmentFile))
	if envErr != nil && !errors.Is(envErr, fs.ErrNotExist) {
		return Run{Dir: dir}, false, envErr
	}
	lines, first := f.lines, f.file == nil
	if err = f.grow(kinds); err != nil && lines > 0 { // the file may have been rewritten, and be longer than before
		*f = *Follow(dir)
		err = f.grow(kinds)
	}
	run, err = assemble(dir, env, envErr, f.records, err)
	return run, first || f.lines != lines, err
}

// grow reads what was appended to the file.
func (f *Follower) grow(kinds []Kind) error {
	file, err := os.Open(f.path)
	if err != nil {
		*f = Follower{path: f.path, seen: map[any]bool{}}
		return fmt.Errorf("read trials: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read trials: %w", err)
	}
	if f.file != nil && (!os.SameFile(f.file, info) || info.Size() < f.offset) {
		*f = Follower{path: f.path, seen: map[any]bool{}}
	}
	f.file = info
	if ahead := info.Size() - f.offset; ahead > MostFollowed {
		return fmt.Errorf("read %s: %d MiB are ahead, and at most %d are read at once: use gateweigh report", f.path,
			ahead>>20, MostFollowed>>20)
	}
	return f.read(io.NewSectionReader(file, f.offset, info.Size()-f.offset), kinds)
}

// readOfRuns lists the files of a run's folder, besides TrialsFile, that readers open.
var readOfRuns = []string{EnvironmentFile, ExperimentFile, ProgressFile}

// mostOfFile is the largest size of these files, bytes.
const mostOfFile = 16 << 20

// CheckFiles refuses a folder with a file that cannot be read in bounded time and memory: a pipe, a device, or one that
// is too large. Missing files are no error.
func CheckFiles(dir string) error {
	for _, name := range append([]string{TrialsFile}, readOfRuns...) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case err != nil: // the later attempt to open the file reports this error
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
		case name != TrialsFile && info.Size() > mostOfFile:
			return fmt.Errorf("%s has %d MiB, and at most %d are read", path, info.Size()>>20, mostOfFile>>20)
		}
	}
	return nil
}
