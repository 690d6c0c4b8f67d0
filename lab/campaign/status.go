// The progress of a campaign, from its folder and from the scheduler.

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// Status is the progress of a campaign.
type Status struct {
	Dir     string    `json:"dir"`
	ID      string    `json:"id"`
	Begun   time.Time `json:"begun"`
	Shares  int       `json:"shares"`  // number of shares of all experiments
	Blocks  int       `json:"blocks"`  // number of blocks of all shares
	Done    int       `json:"done"`    // shares that are done
	Running int       `json:"running"` // shares that a job measures now
	Waiting int       `json:"waiting"` // shares whose job waits for a node
	Failed  int       `json:"failed"`  // shares whose last attempt has ended with an error
	Open    int       `json:"open"`    // shares without a job: not submitted, stopped, or lost with their job
	// Repeated is the number of attempts that were not the first at their share.
	Repeated int `json:"again"`
	// Nodes are the nodes that made attempts, sorted by name.
	Nodes []NodeStatus `json:"nodes"`
	// Problems say why shares wait, have failed or are open, the most frequent first.
	Problems []Problem `json:"problems"`
	// Unanswered says why the scheduler did not answer; empty when it did. Without an answer the counts of running and
	// waiting shares are wrong.
	Unanswered string `json:"unanswered,omitempty"`

	failed, open []Share
	notShared    []string // nodes that lack the campaign's folder
	jobs         []Job
}

// NodeStatus counts the attempts of a node.
type NodeStatus struct {
	Name    string `json:"name"`
	Done    int    `json:"done"`    // shares that it has done
	Running string `json:"running"` // the share that it measures now, "quick 12"; empty: none
	Broken  int    `json:"broken"`  // attempts that were lost or have ended with an error
}

// Problem is a reason why shares are not done.
type Problem struct {
	Text   string `json:"text"`
	Shares int    `json:"shares"` // number of shares with this reason
}

// Finished reports whether nothing runs or waits.
func (s Status) Finished() bool { return s.Unanswered == "" && s.Running+s.Waiting == 0 }

// Complete reports whether all shares are done.
func (s Status) Complete() bool { return s.Done == s.Shares }

// Missing returns the shares that are open or have failed. A resume submits them again.
func (s Status) Missing() []Share { return append(slices.Clone(s.open), s.failed...) }

// Avoid returns the nodes that do not see the campaign's folder.
func (s Status) Avoid() []string { return s.notShared }

// Jobs returns the newest job of each share.
func (s Status) Jobs() []Job { return s.jobs }

// lostJob describes the end of a job that did not do its share. The campaign keeps it in ends.json, because Slurm
// forgets a job some minutes after its end.
type lostJob struct {
	Share
	Text      string `json:"text"`
	Node      string `json:"node,omitempty"`
	NotShared bool   `json:"not_shared,omitempty"` // the node lacks the campaign's folder
}

// Survey reads the campaign's status from its folder and asks the scheduler for its jobs. It returns no error when the
// scheduler does not answer, but sets Status.Unanswered.
func (c *Campaign) Survey(ctx context.Context) (Status, error) {
	status := Status{Dir: c.Dir, ID: c.ID, Begun: c.Begun, Nodes: []NodeStatus{}, Problems: []Problem{}}
	jobs, err := c.newestJobs(ctx)
	if ctx.Err() != nil {
		return status, context.Cause(ctx)
	}
	if err != nil {
		status.Unanswered = err.Error()
	}
	status.jobs = slices.Collect(maps.Values(jobs))
	ends, err := c.recordLostJobs(jobs)
	if err != nil {
		return status, err
	}
	for _, end := range ends {
		if end.NotShared && !slices.Contains(status.notShared, end.Node) {
			status.notShared = append(status.notShared, end.Node)
		}
	}
	slices.Sort(status.notShared)
	err = c.countShares(&status, func(share Share, _ []readAttempt) (Job, lostJob) { return jobs[share], ends[share] })
	return status, err
}

// countShares fills in the status from the attempts in the campaign's folder. jobOf returns the newest job of a share
// and, if that job ended without doing the share, how it was lost.
func (c *Campaign) countShares(status *Status, jobOf func(Share, []readAttempt) (Job, lostJob)) error {
	reasons, nodes := map[string]int{}, map[string]*NodeStatus{}
	for part, p := range c.Parts {
		attempts, err := c.attempts(part)
		if err != nil {
			return err
		}
		status.Shares, status.Blocks = status.Shares+p.Shares, status.Blocks+p.Blocks
		for n := range p.Shares {
			share := Share{part, n}
			job, lost := jobOf(share, attempts[n])
			status.count(share, attempts[n], job, lost, reasons)
			if err := tally(nodes, fmt.Sprintf("%s %d", p.Name, n), attempts[n], job); err != nil {
				return err
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
	return nil
}

// newestJobs asks for the jobs and returns the newest one of each share. A job that waits or runs takes precedence.
func (c *Campaign) newestJobs(ctx context.Context) (map[Share]Job, error) {
	var found []Job
	var err error
	if c.Local > 0 {
		found, err = c.localJobs()
	} else {
		found, err = c.Jobs(ctx)
	}
	jobs := map[Share]Job{}
	for _, job := range found { // in the order of Slurm's numbers, but for a job that is alive
		if old, known := jobs[job.Share]; !known || !old.waiting() && !old.running() {
			jobs[job.Share] = job
		}
	}
	return jobs, err
}

// count adds a share to the status. reasons counts the shares by the reason why they are not done.
func (s *Status) count(share Share, attempts []readAttempt, job Job, end lostJob, reasons map[string]int) {
	s.Repeated += max(0, len(attempts)-1)
	i := slices.IndexFunc(attempts, func(attempt readAttempt) bool { return attempt.ended && attempt.Error == "" })
	failed := len(attempts) > 0 && attempts[len(attempts)-1].ended
	switch {
	case i >= 0:
		s.Done++
	case job.running():
		s.Running++
	case job.waiting():
		s.Waiting++
		if job.Reason != "" && job.Reason != "None" {
			reasons["waits: "+reasonText(job.Reason)]++
		}
	case failed:
		s.Failed++
		s.failed = append(s.failed, share)
		reasons[attempts[len(attempts)-1].Error]++
	default:
		s.Open++
		s.open = append(s.open, share)
		switch {
		case end.Text != "":
			reasons[end.Text]++
		case len(attempts) > 0 && s.Unanswered == "":
			reasons["its process ended in the middle of it, and no job of it is left"]++
		}
	}
}

// reasonText explains Slurm's reasons for which a user may have a remedy. It returns others as they are.
func reasonText(reason string) string {
	for _, r := range []struct{ reason, text string }{
		{"Resources", "no node is free"}, {"Priority", "jobs of higher priority go first"},
		{"BeginTime", "put back into the queue, its node was lost"},
		{"JobHeldUser", "held: scontrol release lets it go on"}, {"JobHeldAdmin", "held by an administrator"},
		{"JobArrayTaskLimit", "as many nodes as [slurm] nodes allows are at work"},
	} {
		if r.reason == reason {
			return r.text + " (" + reason + ")"
		}
	}
	return reason
}

// tally adds the attempts at a share to the statuses of their nodes, by name.
func tally(nodes map[string]*NodeStatus, share string, attempts []readAttempt, job Job) error {
	nodeOf := func(name string) *NodeStatus {
		if nodes[name] == nil {
			nodes[name] = &NodeStatus{Name: name}
		}
		return nodes[name]
	}
	for i, attempt := range attempts {
		var origin Attempt
		err := readJSON(filepath.Join(attempt.dir, attemptFile), &origin)
		if errors.Is(err, fs.ErrNotExist) { // the attempt has just begun, or its node was lost at that moment
			continue
		}
		if err != nil {
			return err
		}
		node := nodeOf(origin.Node)
		switch alive := i == len(attempts)-1 && job.running(); {
		case attempt.ended && attempt.Error == "":
			node.Done++
		case alive && !attempt.ended:
			node.Running = share
		default:
			node.Broken++
		}
	}
	return nil
}

// recordLostJobs adds the jobs that have ended without doing their share to ends.json, and returns all that are there,
// by share.
func (c *Campaign) recordLostJobs(jobs map[Share]Job) (map[Share]lostJob, error) {
	path := filepath.Join(c.Dir, endsFile)
	var list []lostJob
	if err := readJSON(path, &list); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ends := map[Share]lostJob{}
	for _, end := range list {
		ends[end.Share] = end
	}
	changed := false
	for share, job := range jobs {
		if job.waiting() || job.running() || job.State == "COMPLETED" {
			continue
		}
		if end := c.lostJobOf(job); ends[share] != end {
			ends[share], changed = end, true
		}
	}
	if !changed {
		return ends, nil
	}
	list = slices.SortedFunc(maps.Values(ends), func(a, b lostJob) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Number, b.Number))
	})
	return ends, writeJSON(path, list)
}

// lostJobOf describes the end of a job.
func (c *Campaign) lostJobOf(job Job) lostJob {
	end := lostJob{Share: job.Share, Node: job.Node}
	log := filepath.Join(c.Dir, logsFolder)
	switch {
	case job.Exit == exitNotShared || job.Exit == exitNoOutput:
		end.NotShared = true
		end.Text = fmt.Sprintf("%s does not see this campaign's folder: share %s with it, or leave it out", job.Node, c.Dir)
	case job.Exit == exitNoContainer:
		end.Text = job.Node +
			" starts jobs without the container of [slurm]: give its slurmd an oci.conf, or leave container out"
	case job.State == "CANCELLED":
		end.Text = "its job was cancelled"
	case job.State == "TIMEOUT":
		end.Text = "its job took longer than Slurm allows: raise time_limit in [slurm]"
	case job.State == "NODE_FAIL":
		end.Text = fmt.Sprintf("its node %s was lost, and Slurm does not requeue jobs here (JobRequeue)", job.Node)
	default:
		end.Text = fmt.Sprintf("its job ended as %s, exit code %d, on %s: see %s", job.State, job.Exit,
			cmp.Or(job.Node, "no node"),
			log)
	}
	return end
}
