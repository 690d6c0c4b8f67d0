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

// silent is how long an attempt may write nothing before Look takes it for lost.
const silent = 15 * time.Minute

// IsCampaign reports whether a folder is a campaign's.
func IsCampaign(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, campaignFile))
	return err == nil && info.Mode().IsRegular()
}

// Look reads how far the campaign is from its folder alone: it asks no scheduler and writes nothing. So shares that
// wait for a node count as open, and an attempt counts as running if it has written something lately.
func (c *Campaign) Look() (Status, error) {
	s := Status{Dir: c.Dir, ID: c.ID, Begun: c.Begun, Nodes: []NodeStatus{}, Problems: []Problem{}}
	why, nodes := map[string]int{}, map[string]*NodeStatus{}
	for part, p := range c.Parts {
		tries, err := c.attempts(part)
		if err != nil {
			return s, err
		}
		s.Shares, s.Blocks = s.Shares+p.Shares, s.Blocks+p.Blocks
		for n := range p.Shares {
			share, job := Share{part, n}, Job{}
			if k := len(tries[n]); k > 0 && !tries[n][k-1].ended && fresh(tries[n][k-1].dir) {
				job.State = "RUNNING"
			}
			s.count(share, tries[n], job, lost{}, why)
			if err := tally(nodes, fmt.Sprintf("%s %d", p.Name, n), tries[n], job); err != nil {
				return s, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		s.Nodes = append(s.Nodes, *nodes[name])
	}
	for _, text := range slices.Sorted(maps.Keys(why)) {
		s.Problems = append(s.Problems, Problem{text, why[text]})
	}
	slices.SortStableFunc(s.Problems, func(a, b Problem) int { return cmp.Compare(b.Shares, a.Shares) })
	return s, nil
}

// fresh reports whether something was written in an attempt's folder within the time silent.
func fresh(dir string) bool {
	return slices.ContainsFunc([]string{dir, filepath.Join(dir, result.TrialsFile)}, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && time.Since(info.ModTime()) < silent
	})
}
