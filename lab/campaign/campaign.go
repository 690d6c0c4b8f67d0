// Package campaign spreads the blocks of experiments over the nodes of a scheduler, and makes one run of their results.
// A block is the building of an experiment's labs with all that is measured in them. All that is known of a campaign is
// in its folder, which all nodes share:
//
//	campaign.json                   what is measured, and how it was begun
//	bin/gateweigh                   the program that every node runs
//	experiments/NAME/               the experiment as it was begun, with the files that it names
//	submissions/000.json            which shares of the plan were handed to the scheduler together
//	blocks/NAME/00012-0/            attempt 0 at share 12: a run folder of its own, with attempt.json and, once it has
//	                                ended, end.json
//	ends.json                       what the scheduler said of jobs that did not come to their end
//	logs/                           what jobs printed
//
// A share is the part of an experiment's plan that one job measures: mostly one block (experiment.Shares). Its number
// alone decides what it measures, so the number of nodes and the order of jobs do not matter. If a job is lost, another
// attempt at its share is made. Only the process that has made an attempt's folder writes into it.
package campaign

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names in a campaign's folder.
const (
	campaignFile      = "campaign.json"
	programFile       = "bin/gateweigh"
	experimentsFolder = "experiments"
	submissionsFolder = "submissions"
	blocksFolder      = "blocks"
	endsFile          = "ends.json"
	logsFolder        = "logs"
	lockFile          = "local.lock"
)

// version of campaign.json.
const version = 1

// Campaign is a campaign's folder and the content of its campaign.json.
type Campaign struct {
	Dir     string    `json:"-"`       // absolute
	Version int       `json:"version"` // of the format: 1
	ID      string    `json:"id"`      // tells its jobs from those of all others
	Command string    `json:"command"` // that began it
	Begun   time.Time `json:"begun"`   // UTC
	Local   int       `json:"local"`   // processes of this machine that stand for nodes; 0: nodes are Slurm's
	Parts   []Part    `json:"parts"`   // one an experiment
}

// Part is one experiment of a campaign.
type Part struct {
	Name   string           `json:"name"`   // of the experiment, also of its folder; no other part has it
	Shares int              `json:"shares"` // of its plan
	Blocks int              `json:"blocks"` // that these have together
	Slurm  experiment.Slurm `json:"slurm"`
}

// New has the settings of a campaign that Create makes.
type New struct {
	Dir         string // Create makes it; it must not exist, or be empty
	Experiments []*experiment.Experiment
	Slurm       experiment.Slurm // of the campaign file
	Local       int
	Command     string
	Program     string // path of the program that nodes run, which is copied
	// WriteExperiment writes an experiment with the files that it names into a folder.
	WriteExperiment func(dir string, e *experiment.Experiment) error
}

// Create makes a campaign's folder. campaign.json is written last: a folder without it is no campaign.
func Create(n New) (*Campaign, error) {
	dir, err := filepath.Abs(n.Dir)
	if err != nil {
		return nil, err
	}
	c := &Campaign{Dir: dir, Version: version, Command: n.Command, Begun: time.Now().UTC(), Local: n.Local}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	c.ID = hex.EncodeToString(id)
	names := map[string]bool{}
	for _, e := range n.Experiments {
		if names[e.Name] {
			return nil, fmt.Errorf("two experiments of the campaign are called %q: give one of them another name", e.Name)
		}
		names[e.Name] = true
		p := Part{Name: e.Name, Slurm: e.Slurm.WithDefaults(n.Slurm)}
		for _, places := range e.Shares() {
			p.Shares, p.Blocks = p.Shares+1, p.Blocks+len(places)
		}
		c.Parts = append(c.Parts, p)
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("%s is not empty: choose another --out", dir)
	}
	for _, folder := range []string{submissionsFolder, logsFolder, filepath.Dir(programFile)} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, fmt.Errorf("making the campaign's folder: %w: choose another with --out", err)
		}
	}
	for i, e := range n.Experiments {
		if err := os.MkdirAll(c.experimentFolder(i), 0o755); err != nil {
			return nil, err
		}
		if err := n.WriteExperiment(c.experimentFolder(i), e); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(c.blocks(i), 0o755); err != nil {
			return nil, err
		}
	}
	if err := copyProgram(n.Program, filepath.Join(dir, programFile)); err != nil {
		return nil, err
	}
	return c, writeJSON(filepath.Join(dir, campaignFile), c)
}

// Open reads the campaign in a folder.
func Open(dir string) (*Campaign, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &Campaign{}
	err = readJSON(filepath.Join(abs, campaignFile), c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not a campaign's folder: it has no %s", dir, campaignFile)
	case err != nil:
		return nil, err
	case c.Version > version:
		return nil, fmt.Errorf("%s: version %d: %w; use a newer gateweigh", dir, c.Version, result.ErrNewerVersion)
	}
	c.Dir = abs
	return c, nil
}

// Experiment reads the experiment of a part.
func (c *Campaign) Experiment(part int, catalogue experiment.Catalogue) (*experiment.Experiment, error) {
	return catalogue.Load(filepath.Join(c.experimentFolder(part), result.ExperimentFile))
}

// Program is the path of the program that nodes run.
func (c *Campaign) Program() string { return filepath.Join(c.Dir, programFile) }

func (c *Campaign) experimentFolder(part int) string {
	return filepath.Join(c.Dir, experimentsFolder, c.Parts[part].Name)
}

func (c *Campaign) blocks(part int) string {
	return filepath.Join(c.Dir, blocksFolder, c.Parts[part].Name)
}

// copyProgram copies a program, so that all nodes run the same one, whatever is installed on them.
func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying the program for the nodes: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying the program for the nodes: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying the program for the nodes: %w", err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return result.ReplaceFile(path, append(data, '\n'))
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
