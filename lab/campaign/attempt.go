// Attempts at the shares of a campaign: how a node carries one out, and what its folder tells.

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

// maxAttempts bounds the attempts at a share, so that a campaign ends although a fault ends each of its jobs.
const maxAttempts = 100

// Share names a share of a campaign's plan.
type Share struct {
	Part   int // index of the experiment in Campaign.Parts
	Number int // from 0 within the part
}

// Attempt says where an attempt at a share began: attempt.json.
type Attempt struct {
	Node  string    `json:"node"`          // the machine's name at the scheduler
	Host  string    `json:"host"`          // the machine's host name
	PID   int       `json:"pid"`           // process that carries the attempt out
	Job   string    `json:"job,omitempty"` // the scheduler's number of the job
	Begun time.Time `json:"begun"`         // UTC
}

// End says how an attempt ended: end.json. An attempt that was killed has no such file.
type End struct {
	Ended    time.Time `json:"ended"`           // UTC
	Accepted int       `json:"accepted"`        // windows with an accepted trial
	Missing  int       `json:"missing"`         // planned windows without one
	Error    string    `json:"error,omitempty"` // why the share is not done; empty when it is done
	// Skipped are devices that cannot run on the node.
	Skipped []result.Skip `json:"skipped,omitempty"`
}

// Work is the task of one attempt at a share.
type Work struct {
	Experiment *experiment.Experiment
	Blocks     []int  // indices in the plan
	Sitting    int    // the share's number, for the records
	Node       string // for the records
	Dir        string // the attempt's run folder
}

// CarryOut makes an attempt at a share: it makes the attempt's folder, calls measure, and writes end.json. It does
// nothing when the share is done already. It returns measure's error, which end.json has as well.
func (c *Campaign) CarryOut(ctx context.Context, share Share, catalogue experiment.Catalogue, attempt Attempt,
	measure func(context.Context, Work) (End, error)) error {
	if share.Part < 0 || share.Part >= len(c.Parts) || share.Number < 0 || share.Number >= c.Parts[share.Part].Shares {
		return fmt.Errorf("the campaign %s has no share %d of its experiment %d", c.Dir, share.Number, share.Part)
	}
	if c.done(share) {
		return nil
	}
	exp, err := c.Experiment(share.Part, catalogue)
	if err != nil {
		return err
	}
	dir, err := c.begin(share, attempt)
	if err != nil {
		return err
	}
	end, err := measure(ctx, Work{Experiment: exp, Blocks: exp.Shares()[share.Number], Sitting: share.Number,
		Node: attempt.Node, Dir: dir})
	if err != nil {
		end.Error = err.Error()
	}
	end.Ended = time.Now().UTC()
	return errors.Join(err, writeJSON(filepath.Join(dir, endFile), end))
}

// begin makes the folder of the next attempt at a share. Only one process can make a folder, also on a shared disk.
func (c *Campaign) begin(share Share, attempt Attempt) (dir string, err error) {
	for n := range maxAttempts {
		dir = c.folder(share, n)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = writeJSON(filepath.Join(dir, attemptFile), attempt)
		}
		if err != nil {
			return "", fmt.Errorf("beginning %s: %w", filepath.Base(dir), err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("share %d was begun %d times and never came to its end: see %s", share.Number, maxAttempts, dir)
}

// folder returns the folder of an attempt at a share. attempt counts from 0.
func (c *Campaign) folder(share Share, attempt int) string {
	return filepath.Join(c.blocks(share.Part), fmt.Sprintf("%05d-%d", share.Number, attempt))
}

// done reports whether an attempt at a share has ended without an error.
func (c *Campaign) done(share Share) bool {
	for n := range maxAttempts {
		dir := c.folder(share, n)
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

// readAttempt is an attempt as read from the campaign's folder.
type readAttempt struct {
	number int // from 0 within the share
	dir    string
	End
	ended bool
}

// attempts reads the attempts at all shares of a part. It returns them by the share's number, sorted by their own.
func (c *Campaign) attempts(part int) (map[int][]readAttempt, error) {
	entries, err := os.ReadDir(c.blocks(part))
	if err != nil {
		return nil, fmt.Errorf("reading a campaign's attempts: %w", err)
	}
	list := map[int][]readAttempt{}
	for _, entry := range entries {
		share, attempt, ok := strings.Cut(entry.Name(), "-")
		s, err := strconv.Atoi(share)
		n, err2 := strconv.Atoi(attempt)
		if !ok || err != nil || err2 != nil || s >= c.Parts[part].Shares {
			continue
		}
		t := readAttempt{number: n, dir: filepath.Join(c.blocks(part), entry.Name())}
		if t.End, t.ended, err = readEnd(t.dir); err != nil {
			return nil, err
		}
		list[s] = append(list[s], t)
	}
	for _, attempts := range list {
		slices.SortFunc(attempts, func(a, b readAttempt) int { return cmp.Compare(a.number, b.number) })
	}
	return list, nil
}
