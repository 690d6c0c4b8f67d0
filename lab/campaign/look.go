package campaign

import (
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
	err := c.countShares(&status, func(_ Share, attempts []readAttempt) (job Job, lost lostJob) {
		if k := len(attempts); k > 0 && !attempts[k-1].ended && writtenLately(attempts[k-1].dir) {
			job.State = "RUNNING"
		}
		return job, lost
	})
	return status, err
}

// writtenLately reports whether an attempt's folder or file of trials has changed within lostAfter.
func writtenLately(dir string) bool {
	return slices.ContainsFunc([]string{dir, filepath.Join(dir, result.TrialsFile)}, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && time.Since(info.ModTime()) < lostAfter
	})
}
