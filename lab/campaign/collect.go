// Makes one run of a campaign's results.

package campaign

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// collectedFile marks a run folder that Collect has made. Collect may replace the run while nobody has resumed it.
const collectedFile = "collected.json"

// collectedMark is collected.json.
type collectedMark struct {
	Campaign string `json:"campaign"` // its ID
	Bytes    int64  `json:"bytes"`    // size of the trials' file
}

// maxNotes bounds the notes of a collected run. Most shares have the same notes.
const maxNotes = 20

// Collected describes the collected run of a part.
type Collected struct {
	Dir     string // the run folder
	Shares  int    // number of shares with trials
	Missing int    // number of shares that are not done
	Left    int    // number of attempts left out, because another attempt at the same share was taken
}

// Collect makes one run folder of a part's attempts. Of each share it takes the first attempt that has ended without an
// error, or else the one with the longest file of trials. It copies one attempt at a time, so it needs little memory.
func (c *Campaign) Collect(part int, out string, catalogue experiment.Catalogue,
	writeExperiment func(string, *experiment.Experiment) error) (Collected, error) {
	collected := Collected{Dir: out}
	exp, err := c.Experiment(part, catalogue)
	if err != nil {
		return collected, err
	}
	attempts, err := c.attempts(part)
	if err != nil {
		return collected, err
	}
	if err := c.mayCollect(out); err != nil {
		return collected, err
	}
	merged := merger{experiment: exp, shares: exp.Shares(), campaign: c, nodes: map[string]*result.Node{},
		notes:        map[string]*note{},
		ranSomewhere: map[string]bool{}}
	for n := range c.Parts[part].Shares {
		if chosen, done := choose(attempts[n]); chosen != nil {
			collected.Left += len(attempts[n]) - 1
			merged.add(*chosen, n, done)
		} else {
			merged.countMissing(attempts[n])
		}
	}
	collected.Missing = merged.missing
	if len(merged.taken) == 0 {
		return collected, fmt.Errorf("no node has measured anything of %s yet", exp.Name)
	}
	if err := os.MkdirAll(filepath.Join(out, result.LogsFolder), 0o755); err != nil {
		return collected, fmt.Errorf("making the run's folder: %w", err)
	}
	if err := writeExperiment(out, exp); err != nil {
		return collected, err
	}
	size, err := merged.copyTrials(out)
	if err != nil {
		return collected, err
	}
	collected.Shares = len(merged.taken)
	env := merged.environment()
	return collected, errors.Join(
		result.WriteEnvironment(out, env), writeJSON(filepath.Join(out, collectedFile), collectedMark{c.ID, size}))
}

// mayCollect returns an error unless the folder is absent, empty, or has this campaign's collected run.
func (c *Campaign) mayCollect(out string) error {
	list, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var m collectedMark
	if err := readJSON(filepath.Join(out, collectedFile), &m); err != nil || m.Campaign != c.ID {
		return fmt.Errorf("%s holds something else than this campaign's run: choose another --out", out)
	}
	if info, err := os.Stat(filepath.Join(out, result.TrialsFile)); err == nil && info.Size() != m.Bytes {
		return fmt.Errorf("%s was resumed since it was collected: choose another --out", out)
	}
	return nil
}

// choose returns the attempt at a share that Collect takes, nil when no attempt has trials. done reports that the
// attempt has ended without an error.
func choose(attempts []readAttempt) (chosen *readAttempt, done bool) {
	longest := int64(0)
	for i, attempt := range attempts {
		if attempt.ended && attempt.Error == "" {
			return &attempts[i], true
		}
		if info, err := os.Stat(filepath.Join(attempt.dir, result.TrialsFile)); err == nil && info.Size() > longest {
			chosen, longest = &attempts[i], info.Size()
		}
	}
	return chosen, false
}

// takenAttempt is an attempt that Collect takes.
type takenAttempt struct {
	dir   string
	share int
	begun time.Time
}

// note is a note of the environments of some shares.
type note struct {
	text   string // from the first of them
	shares int    // number of shares with the note
	order  int    // number of notes before it
}

// merger makes the collected run's records and environment from those of the attempts.
type merger struct {
	experiment   *experiment.Experiment
	shares       [][]int
	campaign     *Campaign
	taken        []takenAttempt
	missing      int
	env          result.Environment // the first attempt's, with the earliest start and the latest end
	begun        bool               // env is set
	nodes        map[string]*result.Node
	notes        map[string]*note
	skipped      []result.Skip   // devices that some node could not run
	ranSomewhere map[string]bool // devices that some node could run
}

// add adds an attempt that Collect takes.
func (m *merger) add(attempt readAttempt, share int, done bool) {
	if !done {
		m.missing++
	}
	var origin Attempt
	_ = readJSON(filepath.Join(attempt.dir, attemptFile), &origin) // without the file the node has no name
	m.taken = append(m.taken, takenAttempt{attempt.dir, share, origin.Begun})
	env, err := result.ReadEnvironment(filepath.Join(attempt.dir, result.EnvironmentFile))
	if err != nil {
		return // the process was killed before it wrote the file
	}
	node := m.nodes[origin.Node]
	if node == nil {
		node = &result.Node{
			Name: origin.Node, Kernel: env.Kernel, CPUModel: env.CPUModel, CPUs: env.CPUs, MemoryMiB: env.MemoryMiB}
		m.nodes[origin.Node] = node
		m.noteDifferences(*node, env)
	}
	node.Blocks += len(m.shares[share])
	for _, text := range env.Notes {
		m.addNote(text)
	}
	if !m.begun {
		m.env, m.begun = env, true
	}
	if env.Start.Before(m.env.Start) {
		m.env.Start = env.Start
	}
	if env.End.After(m.env.End) {
		m.env.End = env.End
	}
	for _, device := range m.experiment.DUTs {
		m.ranSomewhere[device] = m.ranSomewhere[device] ||
			!slices.ContainsFunc(env.Skipped, func(s result.Skip) bool { return s.DUT == device })
	}
}

// countMissing counts a share without trials as missing, unless its devices cannot run on the node.
func (m *merger) countMissing(attempts []readAttempt) {
	if len(attempts) > 0 {
		if last := attempts[len(attempts)-1]; len(last.Skipped) > 0 {
			m.skipped = append(m.skipped, last.Skipped...)
			return
		}
	}
	m.missing++
}

// noteDifferences adds notes about the differences between a node and the first one.
func (m *merger) noteDifferences(n result.Node, env result.Environment) {
	if !m.begun {
		return
	}
	for _, v := range []struct{ what, first, here string }{
		{"kernel", m.env.Kernel, env.Kernel}, {"CPU", m.env.CPUModel, env.CPUModel},
		{"number of CPUs", fmt.Sprint(m.env.CPUs), fmt.Sprint(env.CPUs)}, {"placement", m.env.Placement, env.Placement},
	} {
		if v.first != v.here {
			m.addNote(fmt.Sprintf("Node %s has another %s than the first node: %s, not %s.", n.Name, v.what, v.here, v.first))
		}
	}
}

// addNote keeps a note once for all shares that have it, and counts these. Notes that differ only in digits count as
// one.
func (m *merger) addNote(text string) {
	key := result.DigitsHidden(text)
	if strings.HasPrefix(text, "Node ") {
		key = text
	}
	if m.notes[key] == nil {
		m.notes[key] = &note{text: text, order: len(m.notes)}
	}
	m.notes[key].shares++
}

// copyTrials writes the records of all attempts, in the order in which these began, and returns the number of bytes. It
// leaves out an incomplete last record.
func (m *merger) copyTrials(out string) (size int64, err error) {
	slices.SortStableFunc(m.taken, func(a, b takenAttempt) int { return a.begun.Compare(b.begun) })
	path := filepath.Join(out, result.TrialsFile)
	err = result.ReplaceBy(path, func(w io.Writer) error {
		for _, attempt := range m.taken {
			data, err := os.ReadFile(filepath.Join(attempt.dir, result.TrialsFile))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			n, err := w.Write(data[:bytes.LastIndexByte(data, '\n')+1])
			if size += int64(n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return size, err
	}
	if err := m.copyCourses(out); err != nil {
		return size, err
	}
	for _, attempt := range m.taken {
		if err := copyFolder(
			filepath.Join(attempt.dir, result.ProfilesFolder), filepath.Join(out, result.ProfilesFolder)); err != nil {
			return size, err
		}
	}
	return size, nil
}

// copyCourses writes the courses within the trials of all attempts. It makes no file when no attempt has courses.
func (m *merger) copyCourses(out string) error {
	has := func(attempt takenAttempt) bool {
		_, err := os.Stat(filepath.Join(attempt.dir, result.CourseFile))
		return err == nil
	}
	if !slices.ContainsFunc(m.taken, has) {
		return nil
	}
	return result.ReplaceBy(filepath.Join(out, result.CourseFile), func(w io.Writer) error {
		for _, attempt := range m.taken {
			if err := result.CopyCourses(w, attempt.dir); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyFolder copies the files of a folder, if it exists, into another one. It replaces no file.
func copyFolder(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if _, err := os.Stat(target); err == nil {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return result.ReplaceFile(target, data)
	})
}

// environment returns the environment of the collected run.
func (m *merger) environment() result.Environment {
	env := m.env
	env.Command, env.Interrupted = m.campaign.Command, m.missing > 0
	env.Skipped, env.Notes = nil, nil
	for _, s := range m.skipped {
		listed := slices.ContainsFunc(env.Skipped, func(k result.Skip) bool { return k.DUT == s.DUT })
		if !m.ranSomewhere[s.DUT] && !listed {
			env.Skipped = append(env.Skipped, s)
		}
	}
	for _, n := range m.nodes {
		env.Nodes = append(env.Nodes, *n)
	}
	slices.SortFunc(env.Nodes, func(a, b result.Node) int { return cmp.Compare(a.Name, b.Name) })
	var notes []note
	for _, n := range m.notes {
		notes = append(notes, *n)
	}
	slices.SortFunc(notes, func(a, b note) int { return cmp.Compare(a.order, b.order) })
	for _, n := range notes[:min(len(notes), maxNotes)] {
		if len(m.taken) > 1 && !strings.HasPrefix(n.text, "Node ") {
			n.text += fmt.Sprintf(" (%d of %s say so.)", n.shares, words.Counted(len(m.taken), "share"))
		}
		env.Notes = append(env.Notes, n.text)
	}
	return env
}
