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

// collectedFile marks a run folder that was collected: it may be collected again while it is as it was.
const collectedFile = "collected.json"

// mark is collected.json.
type mark struct {
	Campaign string `json:"campaign"` // its ID
	Bytes    int64  `json:"bytes"`    // of the trials
}

// notesKept bounds the notes of a collected run: those of its blocks are mostly alike.
const notesKept = 20

// Collected is what became of a part.
type Collected struct {
	Dir     string // the run folder
	Shares  int    // with trials
	Missing int    // shares that are not done
	Left    int    // attempts that were left out, because another one at their share counts
}

// Collect makes one run folder of a part's attempts. Of a share it takes the first attempt that came to its end, or
// where none did, what the longest one has. Attempts are copied one after the other, so it needs little memory.
func (c *Campaign) Collect(part int, out string, catalogue experiment.Catalogue,
	writeExperiment func(string, *experiment.Experiment) error) (Collected, error) {
	got := Collected{Dir: out}
	e, err := c.Experiment(part, catalogue)
	if err != nil {
		return got, err
	}
	tries, err := c.attempts(part)
	if err != nil {
		return got, err
	}
	if err := c.mayCollect(out); err != nil {
		return got, err
	}
	m := merging{e: e, shares: e.Shares(), campaign: c, nodes: map[string]*result.Node{}, notes: map[string]*note{},
		able: map[string]bool{}}
	for n := range c.Parts[part].Shares {
		if chosen, done := choose(tries[n]); chosen != nil {
			got.Left += len(tries[n]) - 1
			m.add(*chosen, n, done)
		} else {
			m.lack(tries[n])
		}
	}
	got.Missing = m.missing
	if len(m.taken) == 0 {
		return got, fmt.Errorf("no node has measured anything of %s yet", e.Name)
	}
	if err := os.MkdirAll(filepath.Join(out, result.LogsFolder), 0o755); err != nil {
		return got, fmt.Errorf("making the run's folder: %w", err)
	}
	if err := writeExperiment(out, e); err != nil {
		return got, err
	}
	size, err := m.copyTrials(out)
	if err != nil {
		return got, err
	}
	got.Shares = len(m.taken)
	env := m.environment()
	return got, errors.Join(
		result.WriteEnvironment(out, env), writeJSON(filepath.Join(out, collectedFile), mark{c.ID, size}))
}

// mayCollect refuses a folder that holds anything else than what was collected of this campaign.
func (c *Campaign) mayCollect(out string) error {
	list, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var m mark
	if err := readJSON(filepath.Join(out, collectedFile), &m); err != nil || m.Campaign != c.ID {
		return fmt.Errorf("%s holds something else than this campaign's run: choose another --out", out)
	}
	if info, err := os.Stat(filepath.Join(out, result.TrialsFile)); err == nil && info.Size() != m.Bytes {
		return fmt.Errorf("%s was resumed since it was collected: choose another --out", out)
	}
	return nil
}

// choose is the attempt at a share that counts, nil where no attempt has trials.
func choose(tries []tried) (chosen *tried, done bool) {
	longest := int64(0)
	for i, t := range tries {
		if t.ended && t.Error == "" {
			return &tries[i], true
		}
		if info, err := os.Stat(filepath.Join(t.dir, result.TrialsFile)); err == nil && info.Size() > longest {
			chosen, longest = &tries[i], info.Size()
		}
	}
	return chosen, false
}

// taken is an attempt of a collected run.
type taken struct {
	dir   string
	share int
	begun time.Time
}

// note is a remark of some blocks' environments.
type note struct {
	text   string // as one has it
	blocks int
	order  int
}

// merging makes one environment of many.
type merging struct {
	e        *experiment.Experiment
	shares   [][]int
	campaign *Campaign
	taken    []taken
	missing  int
	env      result.Environment // the first one, with what others add
	begun    bool               // env is set
	nodes    map[string]*result.Node
	notes    map[string]*note
	skipped  []result.Skip   // devices that could not run on some node
	able     map[string]bool // devices that ran on one
}

// add takes an attempt.
func (m *merging) add(t tried, share int, done bool) {
	if !done {
		m.missing++
	}
	var a Attempt
	_ = readJSON(filepath.Join(t.dir, attemptFile), &a) // one that lacks it has no node's name
	m.taken = append(m.taken, taken{t.dir, share, a.Begun})
	env, err := result.ReadEnvironment(filepath.Join(t.dir, result.EnvironmentFile))
	if err != nil {
		return // killed before it was written
	}
	node := m.nodes[a.Node]
	if node == nil {
		node = &result.Node{
			Name: a.Node, Kernel: env.Kernel, CPUModel: env.CPUModel, CPUs: env.CPUs, MemoryMiB: env.MemoryMiB}
		m.nodes[a.Node] = node
		m.differences(*node, env)
	}
	node.Blocks += len(m.shares[share])
	for _, text := range env.Notes {
		m.remark(text)
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
	for _, device := range m.e.DUTs {
		m.able[device] = m.able[device] ||
			!slices.ContainsFunc(env.Skipped, func(s result.Skip) bool { return s.DUT == device })
	}
}

// lack counts a share of which nothing was measured.
func (m *merging) lack(tries []tried) {
	if len(tries) > 0 {
		if last := tries[len(tries)-1]; len(last.Skipped) > 0 {
			m.skipped = append(m.skipped, last.Skipped...)
			return
		}
	}
	m.missing++
}

// differences notes in what a node is not like the first one.
func (m *merging) differences(n result.Node, env result.Environment) {
	if !m.begun {
		return
	}
	for _, v := range []struct{ what, first, here string }{
		{"kernel", m.env.Kernel, env.Kernel}, {"CPU", m.env.CPUModel, env.CPUModel},
		{"number of CPUs", fmt.Sprint(m.env.CPUs), fmt.Sprint(env.CPUs)}, {"placement", m.env.Placement, env.Placement},
	} {
		if v.first != v.here {
			m.remark(fmt.Sprintf("Node %s has another %s than the first node: %s, not %s.", n.Name, v.what, v.here, v.first))
		}
	}
}

// remark keeps a note, once for all blocks that have it.
func (m *merging) remark(text string) {
	key := result.DigitsHidden(text)
	if strings.HasPrefix(text, "Node ") {
		key = text
	}
	if m.notes[key] == nil {
		m.notes[key] = &note{text: text, order: len(m.notes)}
	}
	m.notes[key].blocks++
}

// copyTrials writes the records of all attempts, in the order they began, and returns how many bytes these are. A last
// record that was cut short is left out.
func (m *merging) copyTrials(out string) (size int64, err error) {
	slices.SortStableFunc(m.taken, func(a, b taken) int { return a.begun.Compare(b.begun) })
	path := filepath.Join(out, result.TrialsFile)
	err = result.ReplaceBy(path, func(w io.Writer) error {
		for _, t := range m.taken {
			data, err := os.ReadFile(filepath.Join(t.dir, result.TrialsFile))
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
	for _, t := range m.taken {
		if err := copyFolder(
			filepath.Join(t.dir, result.ProfilesFolder), filepath.Join(out, result.ProfilesFolder)); err != nil {
			return size, err
		}
	}
	return size, nil
}

// copyCourses writes what happened within the trials of all attempts; without any there is no file.
func (m *merging) copyCourses(out string) error {
	has := func(t taken) bool {
		_, err := os.Stat(filepath.Join(t.dir, result.CourseFile))
		return err == nil
	}
	if !slices.ContainsFunc(m.taken, has) {
		return nil
	}
	return result.ReplaceBy(filepath.Join(out, result.CourseFile), func(w io.Writer) error {
		for _, t := range m.taken {
			if err := result.CopyCourses(w, t.dir); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyFolder copies what a folder holds into another one; without the first, nothing. What is there stays.
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

// environment is that of the collected run.
func (m *merging) environment() result.Environment {
	env := m.env
	env.Command, env.Interrupted = m.campaign.Command, m.missing > 0
	env.Skipped, env.Notes = nil, nil
	for _, s := range m.skipped {
		listed := slices.ContainsFunc(env.Skipped, func(k result.Skip) bool { return k.DUT == s.DUT })
		if !m.able[s.DUT] && !listed {
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
	for _, n := range notes[:min(len(notes), notesKept)] {
		if len(m.taken) > 1 && !strings.HasPrefix(n.text, "Node ") {
			n.text += fmt.Sprintf(" (%d of %s say so.)", n.blocks, words.Counted(len(m.taken), "share"))
		}
		env.Notes = append(env.Notes, n.text)
	}
	return env
}
