package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names in an attempt's folder, beside those of a run folder.
const (
	attemptFile = "attempt.json"
	endFile     = "end.json"
)

// mostAttempts bounds the attempts at a share, so that a fault which ends every job ends the campaign at last.
const mostAttempts = 100

// Share names a share of a campaign's plan.
type Share struct {
	Part   int // its experiment
	Number int // counts from 0 within it
}

// Attempt says where an attempt at a share began: attempt.json.
type Attempt struct {
	Node  string    `json:"node"`          // the scheduler's name of the machine
	Host  string    `json:"host"`          // the machine's own
	PID   int       `json:"pid"`           // of the process that carries it out
	Job   string    `json:"job,omitempty"` // the scheduler's number
	Begun time.Time `json:"begun"`         // UTC
}

// End says how an attempt ended: end.json. An attempt that was killed has no such file.
type End struct {
	Ended    time.Time `json:"ended"`           // UTC
	Accepted int       `json:"accepted"`        // windows with an accepted trial
	Missing  int       `json:"missing"`         // planned windows without one
	Error    string    `json:"error,omitempty"` // why the share is not done; empty: it is
	// Skipped are devices that cannot run on the node.
	Skipped []result.Skip `json:"skipped,omitempty"`
}

// Work says what one attempt at a share has to measure.
type Work struct {
	Experiment *experiment.Experiment
	Blocks     []int  // places in the plan
	Sitting    int    // number for the records, which no other share has
	Node       string // for the records
	Dir        string // the attempt's own run folder
}

// Carry carries out an attempt at a share in a folder of its own by measure, which returns how it ended. A share that
// is done already is left as it is. The error says why it is not done then; it is in end.json as well, unless the
// process was killed.
func (c *Campaign) Carry(ctx context.Context, s Share, catalogue experiment.Catalogue, a Attempt,
	measure func(context.Context, Work) (End, error)) error {
	if s.Part < 0 || s.Part >= len(c.Parts) || s.Number < 0 || s.Number >= c.Parts[s.Part].Shares {
		return fmt.Errorf("the campaign %s has no share %d of its experiment %d", c.Dir, s.Number, s.Part)
	}
	if c.done(s) {
		return nil
	}
	e, err := c.Experiment(s.Part, catalogue)
	if err != nil {
		return err
	}
	dir, err := c.begin(s, a)
	if err != nil {
		return err
	}
	end, err := measure(ctx, Work{Experiment: e, Blocks: e.Shares()[s.Number], Sitting: s.Number, Node: a.Node, Dir: dir})
	if err != nil {
		end.Error = err.Error()
	}
	end.Ended = time.Now().UTC()
	return errors.Join(err, writeJSON(filepath.Join(dir, endFile), end))
}

// begin makes the folder of the next attempt at a share. Making a folder succeeds for one process alone, also on a
// shared disk.
func (c *Campaign) begin(s Share, a Attempt) (dir string, err error) {
	for n := range mostAttempts {
		dir = c.folder(s, n)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = writeJSON(filepath.Join(dir, attemptFile), a)
		}
		if err != nil {
			return "", fmt.Errorf("beginning %s: %w", filepath.Base(dir), err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("share %d was begun %d times and never came to its end: see %s", s.Number, mostAttempts, dir)
}

func (c *Campaign) folder(s Share, attempt int) string {
	return filepath.Join(c.blocks(s.Part), fmt.Sprintf("%05d-%d", s.Number, attempt))
}

// done reports whether an attempt at a share has ended without an error.
func (c *Campaign) done(s Share) bool {
	for n := range mostAttempts {
		dir := c.folder(s, n)
		if _, err := os.Stat(dir); err != nil {
			return false
		}
		if end, ended, err := readEnd(dir); err == nil && ended && end.Error == "" {
			return true
		}
	}
	return false
}

// readEnd reads how an attempt ended. ended is false for an attempt that goes on or was killed.
func readEnd(dir string) (end End, ended bool, err error) {
	err = readJSON(filepath.Join(dir, endFile), &end)
	if errors.Is(err, fs.ErrNotExist) {
		return end, false, nil
	}
	return end, err == nil, err
}

// tried is an attempt, as read from the campaign's folder.
type tried struct {
	number int // of the attempt
	dir    string
	End
	ended bool
}

// attempts reads the attempts at all shares of a part, those at a share in their order.
func (c *Campaign) attempts(part int) (map[int][]tried, error) {
	entries, err := os.ReadDir(c.blocks(part))
	if err != nil {
		return nil, fmt.Errorf("reading a campaign's attempts: %w", err)
	}
	list := map[int][]tried{}
	for _, entry := range entries {
		share, attempt, ok := strings.Cut(entry.Name(), "-")
		s, err := strconv.Atoi(share)
		n, err2 := strconv.Atoi(attempt)
		if !ok || err != nil || err2 != nil || s >= c.Parts[part].Shares {
			continue
		}
		t := tried{number: n, dir: filepath.Join(c.blocks(part), entry.Name())}
		if t.End, t.ended, err = readEnd(t.dir); err != nil {
			return nil, err
		}
		list[s] = append(list[s], t)
	}
	for _, tries := range list {
		slices.SortFunc(tries, func(a, b tried) int { return cmp.Compare(a.number, b.number) })
	}
	return list, nil
}
