// Package campaign spreads the blocks of experiments over the nodes of a scheduler, and makes one run of their results.
// The whole state of a campaign is in its folder, which all nodes share:
//
//	campaign.json                   the experiments, and the command that began the campaign
//	bin/gateweigh                   the program that every node runs
//	experiments/NAME/               a copy of the experiment, with the files that it names
//	submissions/000.json            the shares of one array of jobs
//	blocks/NAME/00012-0/            attempt 0 at share 12: a run folder with attempt.json and, once the attempt has
//	                                ended, end.json
//	ends.json                       the scheduler's reports about jobs that were lost
//	logs/                           the output of jobs
//
// A share is the part of an experiment's plan that one job measures: mostly one block (experiment.Shares). The share's
// number decides which blocks it has, so the number of nodes and the order of jobs do not matter. When a job is lost,
// another job makes a new attempt at its share. Only the process that has made an attempt's folder writes into it.
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
	ID      string    `json:"id"`      // marks the campaign's jobs at the scheduler
	Command string    `json:"command"` // the command that began it
	Begun   time.Time `json:"begun"`   // UTC
	Local   int       `json:"local"`   // number of processes on this machine that stand for nodes; 0: Slurm's nodes
	Parts   []Part    `json:"parts"`   // one for each experiment
}

// Part is one experiment of a campaign.
type Part struct {
	Name   string           `json:"name"`   // the experiment's name, unique in the campaign
	Shares int              `json:"shares"` // number of shares
	Blocks int              `json:"blocks"` // number of blocks of all shares
	Slurm  experiment.Slurm `json:"slurm"`
}

// New has the settings of a campaign that Create makes.
type New struct {
	Dir         string // Create makes it; it must not exist, or be empty
	Experiments []*experiment.Experiment
	Slurm       experiment.Slurm // options of the campaign file
	Local       int
	Command     string
	Program     string // path of the program to copy for the nodes
	// WriteExperiment writes an experiment with the files that it names into a folder.
	WriteExperiment func(dir string, exp *experiment.Experiment) error
}

// Create makes a campaign's folder. campaign.json is written last: a folder without it is no campaign.
func Create(settings New) (*Campaign, error) {
	dir, err := filepath.Abs(settings.Dir)
	if err != nil {
		return nil, err
	}
	opened := &Campaign{Dir: dir, Version: version, Command: settings.Command, Begun: time.Now().UTC(),
		Local: settings.Local}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	opened.ID = hex.EncodeToString(id)
	names := map[string]bool{}
	for _, exp := range settings.Experiments {
		if names[exp.Name] {
			return nil, fmt.Errorf("two experiments of the campaign are called %q: give one of them another name", exp.Name)
		}
		names[exp.Name] = true
		part := Part{Name: exp.Name, Slurm: exp.Slurm.WithDefaults(settings.Slurm)}
		for _, places := range exp.Shares() {
			part.Shares, part.Blocks = part.Shares+1, part.Blocks+len(places)
		}
		opened.Parts = append(opened.Parts, part)
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("%s is not empty: choose another --out", dir)
	}
	for _, folder := range []string{submissionsFolder, logsFolder, filepath.Dir(programFile)} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, fmt.Errorf("making the campaign's folder: %w: choose another with --out", err)
		}
	}
	for i, exp := range settings.Experiments {
		if err := os.MkdirAll(opened.experimentFolder(i), 0o755); err != nil {
			return nil, err
		}
		if err := settings.WriteExperiment(opened.experimentFolder(i), exp); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(opened.blocks(i), 0o755); err != nil {
			return nil, err
		}
	}
	if err := copyProgram(settings.Program, filepath.Join(dir, programFile)); err != nil {
		return nil, err
	}
	return opened, writeJSON(filepath.Join(dir, campaignFile), opened)
}

// Open reads the campaign in a folder.
func Open(dir string) (*Campaign, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	opened := &Campaign{}
	err = readJSON(filepath.Join(abs, campaignFile), opened)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not a campaign's folder: it has no %s", dir, campaignFile)
	case err != nil:
		return nil, err
	case opened.Version > version:
		return nil, fmt.Errorf("%s: version %d: %w; use a newer gateweigh", dir, opened.Version, result.ErrNewerVersion)
	}
	opened.Dir = abs
	return opened, nil
}

// Experiment reads the experiment of a part.
func (c *Campaign) Experiment(part int, catalogue experiment.Catalogue) (*experiment.Experiment, error) {
	return catalogue.Load(filepath.Join(c.experimentFolder(part), result.ExperimentFile))
}

// Program is the path of the program that nodes run.
func (c *Campaign) Program() string { return filepath.Join(c.Dir, programFile) }

// experimentFolder returns the folder with the experiment of a part, which is given by its index in Parts.
func (c *Campaign) experimentFolder(part int) string {
	return filepath.Join(c.Dir, experimentsFolder, c.Parts[part].Name)
}

// blocks returns the folder with the attempts at the shares of a part.
func (c *Campaign) blocks(part int) string {
	return filepath.Join(c.Dir, blocksFolder, c.Parts[part].Name)
}

// copyProgram copies the program into the campaign's folder, so that all nodes run the same version.
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

// writeJSON replaces a file by one with v as JSON.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return result.ReplaceFile(path, append(data, '\n'))
}

// readJSON reads a file of JSON into v, which is a pointer.
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
