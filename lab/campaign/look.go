package campaign

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// lostAfter is the time without a write after which Look takes an attempt for lost.
const lostAfter = 15 * time.Minute

// IsCampaign reports whether a folder is a campaign's.
func IsCampaign(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, campaignFile))
	return err == nil && info.Mode().IsRegular()
}

// Look reads the campaign's status from its folder. It does not ask the scheduler and writes nothing. Therefore shares
// that wait for a node count as open, and an attempt counts as running if it has written something within lostAfter.
func (c *Campaign) Look() (Status, error) {
	status := Status{Dir: c.Dir, ID: c.ID, Begun: c.Begun, Nodes: []NodeStatus{}, Problems: []Problem{}}
	reasons, nodes := map[string]int{}, map[string]*NodeStatus{}
	for part, p := range c.Parts {
		attempts, err := c.attempts(part)
		if err != nil {
			return status, err
		}
		status.Shares, status.Blocks = status.Shares+p.Shares, status.Blocks+p.Blocks
		for n := range p.Shares {
			share, job := Share{part, n}, Job{}
			if k := len(attempts[n]); k > 0 && !attempts[n][k-1].ended && writtenLately(attempts[n][k-1].dir) {
				job.State = "RUNNING"
			}
			status.count(share, attempts[n], job, lostJob{}, reasons)
			if err := tally(nodes, fmt.Sprintf("%s %d", p.Name, n), attempts[n], job); err != nil {
				return status, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		status.Nodes = append(status.Nodes, *nodes[name])
	}
	for _, text := range slices.Sorted(maps.Keys(reasons)) {
		status.Problems = append(status.Problems, Problem{text, reasons[text]})
	}
	slices.SortStableFunc(status.Problems, func(a, b Problem) int { return cmp.Compare(b.Shares, a.Shares) })
	return status, nil
}

// writtenLately reports whether an attempt's folder or file of trials has changed within lostAfter.
func writtenLately(dir string) bool {
	return slices.ContainsFunc([]string{dir, filepath.Join(dir, result.TrialsFile)}, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && time.Since(info.ModTime()) < lostAfter
	})
}
