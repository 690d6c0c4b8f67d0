// Package archive lists the runs in a folder: their machines, their states and how far they are. It only reads and
// takes no lock. For a run that it has read before, it reads again only what was replaced.
package archive

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// State is the state of a run.
type State string

// States of runs.
const (
	GoingOn     State = "going on"
	Finished    State = "finished"
	Interrupted State = "interrupted" // it ended in order before its plan did
	BrokenOff   State = "broken off"  // killed, or its machine went down
	Damaged     State = "damaged"     // its folder cannot be read
)

// silence is the time after which a silent run of another machine counts as broken off. For a run of this machine, the
// process decides.
const silence = 15 * time.Minute

// Entry is one run.
type Entry struct {
	Name        string // path below the archive with slashes; its name in addresses
	Dir         string
	State       State
	Fault       string // what is wrong with a damaged folder
	Environment result.Environment
	// Progress is the progress of a run that is not complete. nil: it reports none.
	Progress *result.Progress
	Changed  time.Time // last change of the folder or its trials
}

// TimeLeft estimates the remaining time of a run that is going on. ok is false where nothing is known.
func (e Entry) TimeLeft(now time.Time) (left time.Duration, ok bool) {
	if e.State != GoingOn || e.Progress == nil || e.Progress.Left <= 0 {
		return 0, false
	}
	left = time.Duration(e.Progress.Left*float64(time.Second)) - max(0, now.Sub(e.Progress.Updated))
	return max(0, left).Round(time.Second), true
}

// Archive is a folder of runs, or one run's folder. Several goroutines may use it.
type Archive struct {
	Dir string

	mu    sync.Mutex
	known map[string]known // by name
}

// known is a run as it was last read.
type known struct {
	folder time.Time // last change of the folder; replacing any of its files changes it
	entry  Entry
}

// Open opens an archive. The folder must exist.
func Open(dir string) (*Archive, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist: name the folder that runs are in, or begin one with gateweigh run", dir)
	case err != nil:
		return nil, fmt.Errorf("open the folder of runs: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a folder: name the one that runs are in; of a bundle, unpack it with gateweigh "+
			"report", dir)
	}
	return &Archive{Dir: dir, known: map[string]known{}}, nil
}

// Look lists the present runs, the latest first. It also looks into folders that are not runs, such as those of
// campaigns and of several kernels.
func (a *Archive) Look() ([]Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Entry
	seen := map[string]known{}
	if holdsRun(a.Dir) {
		list = append(list, a.look(".", seen))
	} else if err := a.into("", deepest, seen, &list); err != nil {
		return nil, fmt.Errorf("look for runs: %w", err)
	}
	a.known = seen // forgets deleted runs
	slices.SortFunc(list, func(x, y Entry) int {
		return cmp.Or(y.began().Compare(x.began()), cmp.Compare(y.Name, x.Name))
	})
	return list, nil
}

// deepest is the largest depth of runs below the archive, in folders.
const deepest = 3

// into lists the runs below a folder of the archive.
func (a *Archive) into(folder string, depth int, seen map[string]known, list *[]Entry) error {
	below, err := os.ReadDir(filepath.Join(a.Dir, filepath.FromSlash(folder)))
	if err != nil {
		return err
	}
	for _, d := range below {
		name := d.Name()
		if folder != "" {
			name = folder + "/" + name
		}
		dir := filepath.Join(a.Dir, filepath.FromSlash(name))
		info, err := os.Stat(dir) // Stat follows links to folders
		switch {
		case err != nil, !info.IsDir(), strings.HasPrefix(d.Name(), "."):
		case holdsRun(dir):
			*list = append(*list, a.look(name, seen))
		case depth > 1 && info.Mode().Type()&fs.ModeSymlink == 0:
			_ = a.into(name, depth-1, seen, list) // a folder that cannot be read has no runs to show
		}
	}
	return nil
}

// holdsRun reports whether a folder is a run's. A run that has just begun may lack trials, and a copy may lack its
// environment.
func holdsRun(dir string) bool {
	return slices.ContainsFunc([]string{result.EnvironmentFile, result.TrialsFile}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// look reads a run, or returns what is known of it if its folder has not changed.
func (a *Archive) look(name string, seen map[string]known) Entry {
	dir := filepath.Join(a.Dir, filepath.FromSlash(name))
	info, err := os.Stat(dir)
	if err != nil { // the run was deleted meanwhile
		return Entry{Name: name, Dir: dir, State: Damaged, Fault: "it is gone"}
	}
	k, seenBefore := a.known[name]
	if !seenBefore || !k.folder.Equal(info.ModTime()) || time.Since(info.ModTime()) < time.Second {
		// Folder times are coarse, so a folder that has just changed may change again with the same time.
		k = known{info.ModTime(), read(name, dir)}
	}
	k.entry.Changed = k.folder
	if k.entry.State != Finished && k.entry.State != Interrupted && k.entry.State != Damaged {
		if trials, err := os.Stat(filepath.Join(dir, result.TrialsFile)); err == nil {
			k.entry.Changed = later(k.entry.Changed, trials.ModTime())
		}
		k.entry.State = unfinished(k.entry)
	}
	seen[name] = k
	return k.entry
}

// read reads a run's folder.
func read(name, dir string) Entry {
	e := Entry{Name: name, Dir: dir}
	if name == "." {
		e.Name = filepath.Base(absolute(dir))
	}
	err := result.CheckFiles(dir)
	if err == nil {
		e.Environment, err = result.ReadEnvironment(filepath.Join(dir, result.EnvironmentFile))
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // else its files may be pipes
		err = cmp.Or(firstRecord(dir), err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.State = Finished // a copy without its environment
		return e
	case err != nil:
		e.State, e.Fault = Damaged, err.Error()
		return e
	}
	if p, err := result.ReadProgress(dir); err == nil { // runs of early versions have none
		e.Progress = &p
	}
	switch env := e.Environment; {
	case !env.End.IsZero() && !env.Interrupted:
		e.State, e.Progress = Finished, nil
	case !env.End.IsZero():
		e.State = Interrupted
	default: // the run is going on, or was cut off
		e.State = BrokenOff
	}
	return e
}

// firstRecord returns what is wrong with the first line of a run's trials. A run that has just begun has none, or a
// part of it. The other lines are read where the run is shown.
func firstRecord(dir string) error {
	file, err := os.Open(filepath.Join(dir, result.TrialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	const longest = 16 << 20
	line, err := bufio.NewReader(io.LimitReader(file, longest)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return nil
	}
	var head struct{ Version int }
	if err == nil {
		err = json.Unmarshal(line, &head)
	}
	if err == nil && head.Version == 0 {
		err = errors.New("it has no version")
	}
	if err != nil {
		return fmt.Errorf("%s:1: not a record: %w", result.TrialsFile, err)
	}
	return nil
}

// unfinished tells whether a run is going on or broke off.
func unfinished(e Entry) State {
	heard := e.Changed
	if e.Progress != nil {
		if alive, known := e.Progress.Process.Alive(); known {
			if alive {
				return GoingOn
			}
			return BrokenOff
		}
		heard = later(heard, e.Progress.Updated)
	}
	if time.Since(heard) < silence {
		return GoingOn
	}
	return BrokenOff
}

// began returns when a run began, or another time by which it can be sorted.
func (e Entry) began() time.Time {
	if e.Environment.Start.IsZero() {
		return e.Changed
	}
	return e.Environment.Start
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func absolute(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir
}
