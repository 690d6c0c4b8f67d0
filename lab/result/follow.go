package result

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MostFollowed bounds the bytes of trials.jsonl that a Follower reads in one call.
const MostFollowed = 256 << 20

// Follower reads a run that may be going on, again and again: each time only what its trials.jsonl has grown by. It
// takes no lock and writes nothing.
type Follower struct {
	path    string
	file    os.FileInfo // as it was read last; nil: not yet
	lines   int         // whole ones that were read
	offset  int64       // of the next one
	seen    map[any]bool
	records Records
}

// Follow begins with the run in folder dir, of which nothing is read yet.
func Follow(dir string) *Follower {
	return &Follower{path: filepath.Join(dir, TrialsFile), seen: map[any]bool{}}
}

// Read is ReadRun of the folder as it is now. grew says whether there are more records than at the last call. A file
// that was replaced or cut is read from its begin. Lists of an earlier answer stay as they are. It refuses what is no
// regular file, which might never end, and a file that grew by more than MostFollowed. kinds are the same in all calls.
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
	if err = f.grow(kinds); err != nil && lines > 0 { // it may have been written anew, and be longer than it was
		*f = *Follow(dir)
		err = f.grow(kinds)
	}
	run, err = assemble(dir, env, envErr, f.records, err)
	return run, first || f.lines != lines, err
}

// grow reads what the file has more than before.
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

// readOfRuns are the files that readers of a run's folder open, besides TrialsFile.
var readOfRuns = []string{EnvironmentFile, ExperimentFile, ProgressFile}

// mostOfFile bounds these files, bytes.
const mostOfFile = 16 << 20

// CheckFiles refuses a folder of which a file cannot be read in bounded time and memory: a pipe, a device, or one that
// is too large. Files that are missing are no error.
func CheckFiles(dir string) error {
	for _, name := range append([]string{TrialsFile}, readOfRuns...) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case err != nil: // who opens it says what is wrong
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
		case name != TrialsFile && info.Size() > mostOfFile:
			return fmt.Errorf("%s has %d MiB, and at most %d are read", path, info.Size()>>20, mostOfFile>>20)
		}
	}
	return nil
}
