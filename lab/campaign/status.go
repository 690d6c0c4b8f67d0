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

// Status is how far a campaign is.
type Status struct {
	Dir     string    `json:"dir"`
	ID      string    `json:"id"`
	Begun   time.Time `json:"begun"`
	Shares  int       `json:"shares"`  // of all experiments
	Blocks  int       `json:"blocks"`  // that these have together
	Done    int       `json:"done"`    // shares; so are the next counts
	Running int       `json:"running"` // now
	Waiting int       `json:"waiting"` // for a node
	Failed  int       `json:"failed"`  // ended without all their results
	Open    int       `json:"open"`    // no job carries them out: not handed out, stopped, or lost with their job
	// Again counts attempts that were not the first at their share.
	Again int `json:"again"`
	// Nodes are those that carried out attempts, by name.
	Nodes []NodeStatus `json:"nodes"`
	// Problems say why shares wait, failed or are open, each once with how many shares it is of.
	Problems []Problem `json:"problems"`
	// Unanswered says why the scheduler could not be asked; empty: it answered. What runs or waits is then not known.
	Unanswered string `json:"unanswered,omitempty"`

	failed, open []Share
	notShared    []string // nodes that lack the campaign's folder
	jobs         []Job
}

// NodeStatus is what a node did.
type NodeStatus struct {
	Name    string `json:"name"`
	Done    int    `json:"done"`    // shares
	Running string `json:"running"` // the share that it carries out now, "quick 12"; empty: none
	Broken  int    `json:"broken"`  // attempts that did not come to a good end
}

// Problem is why shares are not done.
type Problem struct {
	Text   string `json:"text"`
	Shares int    `json:"shares"`
}

// Finished reports whether nothing runs or waits.
func (s Status) Finished() bool { return s.Unanswered == "" && s.Running+s.Waiting == 0 }

// Complete reports whether all shares are done.
func (s Status) Complete() bool { return s.Done == s.Shares }

// Missing are the shares that a resume hands out again.
func (s Status) Missing() []Share { return append(slices.Clone(s.open), s.failed...) }

// Avoid are nodes that cannot take part, because they do not see the campaign's folder.
func (s Status) Avoid() []string { return s.notShared }

// Jobs are those that Slurm has of the campaign.
func (s Status) Jobs() []Job { return s.jobs }

// lost is what the scheduler said of a job that did not come to its end: Slurm forgets it after minutes.
type lost struct {
	Share
	Text      string `json:"text"`
	Node      string `json:"node,omitempty"`
	NotShared bool   `json:"not_shared,omitempty"` // the node lacks the campaign's folder
}

// Survey reads how far the campaign is, and asks its scheduler. A scheduler that does not answer is no error.
func (c *Campaign) Survey(ctx context.Context) (Status, error) {
	s := Status{Dir: c.Dir, ID: c.ID, Begun: c.Begun, Nodes: []NodeStatus{}, Problems: []Problem{}}
	jobs, err := c.ask(ctx)
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	if err != nil {
		s.Unanswered = err.Error()
	}
	s.jobs = slices.Collect(maps.Values(jobs))
	ends, err := c.noteEnds(jobs)
	if err != nil {
		return s, err
	}
	why, nodes := map[string]int{}, map[string]*NodeStatus{}
	for part, p := range c.Parts {
		tries, err := c.attempts(part)
		if err != nil {
			return s, err
		}
		s.Shares, s.Blocks = s.Shares+p.Shares, s.Blocks+p.Blocks
		for n := range p.Shares {
			share := Share{part, n}
			s.count(share, tries[n], jobs[share], ends[share], why)
			if err := tally(nodes, fmt.Sprintf("%s %d", p.Name, n), tries[n], jobs[share]); err != nil {
				return s, err
			}
		}
	}
	for _, end := range ends {
		if end.NotShared && !slices.Contains(s.notShared, end.Node) {
			s.notShared = append(s.notShared, end.Node)
		}
	}
	slices.Sort(s.notShared)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		s.Nodes = append(s.Nodes, *nodes[name])
	}
	for _, text := range slices.Sorted(maps.Keys(why)) {
		s.Problems = append(s.Problems, Problem{text, why[text]})
	}
	slices.SortStableFunc(s.Problems, func(a, b Problem) int { return cmp.Compare(b.Shares, a.Shares) })
	return s, nil
}

// ask returns the newest job of each share.
func (c *Campaign) ask(ctx context.Context) (map[Share]Job, error) {
	var found []Job
	var err error
	if c.Local > 0 {
		found, err = c.localJobs()
	} else {
		found, err = c.Jobs(ctx)
	}
	jobs := map[Share]Job{}
	for _, j := range found { // in the order of Slurm's numbers, but for a job that is alive
		if old, known := jobs[j.Share]; !known || !old.waits() && !old.goesOn() {
			jobs[j.Share] = j
		}
	}
	return jobs, err
}

// count counts a share. why counts the reasons of those that are not done.
func (s *Status) count(share Share, tries []tried, job Job, end lost, why map[string]int) {
	s.Again += max(0, len(tries)-1)
	i := slices.IndexFunc(tries, func(t tried) bool { return t.ended && t.Error == "" })
	failed := len(tries) > 0 && tries[len(tries)-1].ended
	switch {
	case i >= 0:
		s.Done++
	case job.goesOn():
		s.Running++
	case job.waits():
		s.Waiting++
		if job.Reason != "" && job.Reason != "None" {
			why["waits: "+reasonText(job.Reason)]++
		}
	case failed:
		s.Failed++
		s.failed = append(s.failed, share)
		why[tries[len(tries)-1].Error]++
	default:
		s.Open++
		s.open = append(s.open, share)
		switch {
		case end.Text != "":
			why[end.Text]++
		case len(tries) > 0 && s.Unanswered == "":
			why["its process ended in the middle of it, and no job of it is left"]++
		}
	}
}

// reasonText explains the reasons of Slurm's that a user can do something about.
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

// tally counts what nodes did for a share.
func tally(nodes map[string]*NodeStatus, share string, tries []tried, job Job) error {
	of := func(name string) *NodeStatus {
		if nodes[name] == nil {
			nodes[name] = &NodeStatus{Name: name}
		}
		return nodes[name]
	}
	for i, t := range tries {
		var a Attempt
		err := readJSON(filepath.Join(t.dir, attemptFile), &a)
		if errors.Is(err, fs.ErrNotExist) { // just begun, or its node was lost that moment
			continue
		}
		if err != nil {
			return err
		}
		n := of(a.Node)
		switch alive := i == len(tries)-1 && job.goesOn(); {
		case t.ended && t.Error == "":
			n.Done++
		case alive && !t.ended:
			n.Running = share
		default:
			n.Broken++
		}
	}
	return nil
}

// noteEnds keeps what the scheduler says of jobs that ended without having done their share, and returns what it said
// at any time of jobs whose share nobody has carried out since.
func (c *Campaign) noteEnds(jobs map[Share]Job) (map[Share]lost, error) {
	path := filepath.Join(c.Dir, endsFile)
	var list []lost
	if err := readJSON(path, &list); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ends := map[Share]lost{}
	for _, end := range list {
		ends[end.Share] = end
	}
	changed := false
	for share, j := range jobs {
		if j.waits() || j.goesOn() || j.State == "COMPLETED" {
			continue
		}
		if end := c.endOf(j); ends[share] != end {
			ends[share], changed = end, true
		}
	}
	if !changed {
		return ends, nil
	}
	list = slices.SortedFunc(maps.Values(ends), func(a, b lost) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Number, b.Number))
	})
	return ends, writeJSON(path, list)
}

// endOf describes how a job ended.
func (c *Campaign) endOf(j Job) lost {
	end := lost{Share: j.Share, Node: j.Node}
	log := filepath.Join(c.Dir, logsFolder)
	switch {
	case j.Exit == exitNotShared || j.Exit == exitNoOutput:
		end.NotShared = true
		end.Text = fmt.Sprintf("%s does not see this campaign's folder: share %s with it, or leave it out", j.Node, c.Dir)
	case j.Exit == exitNoContainer:
		end.Text = j.Node +
			" starts jobs without the container of [slurm]: give its slurmd an oci.conf, or leave container out"
	case j.State == "CANCELLED":
		end.Text = "its job was cancelled"
	case j.State == "TIMEOUT":
		end.Text = "its job took longer than Slurm allows: raise time_limit in [slurm]"
	case j.State == "NODE_FAIL":
		end.Text = fmt.Sprintf("its node %s was lost, and Slurm does not requeue jobs here (JobRequeue)", j.Node)
	default:
		end.Text = fmt.Sprintf("its job ended as %s, exit code %d, on %s: see %s", j.State, j.Exit, cmp.Or(j.Node, "no node"),
			log)
	}
	return end
}
