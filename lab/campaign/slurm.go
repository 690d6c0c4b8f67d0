package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/quote"
)

// answersWithin bounds how long a command of Slurm's may take: without its controller some retry for long.
const answersWithin = 30 * time.Second

// exitNotShared is the exit code of a job that does not find the campaign's folder on its node.
const exitNotShared = 72

// exitNoContainer is that of a job that Slurm has started outside of the container it was to run in.
const exitNoContainer = 73

// exitNoOutput is how Slurm's jobs end whose output file cannot be opened, by the number of a signal that there is not.
const exitNoOutput = 128 + 53

// defaultArray is the most jobs of an array where Slurm does not say (MaxArraySize).
const defaultArray = 1001

// releasedAfter is how long a job that was put back waits at least. A node refuses one that starts again within the
// second in which its first start was ended ("Job credential revoked"), and the job fails.
const releasedAfter = 3 * time.Second

// submission is an array of jobs: job i of it carries out share i of the list.
type submission struct {
	Part   int    `json:"part"`
	Shares []int  `json:"shares"`
	Array  string `json:"array"` // the scheduler's number; empty: not known, as when this program was killed meanwhile
}

// Job is what Slurm says of a share's job.
type Job struct {
	Share
	ID       string // the job's own number
	Array    string // number of its array: scancel takes ARRAY_TASK, and not the own number of a job of an array
	Task     int    // place in it
	State    string // "PENDING", "RUNNING", …
	Reason   string // why it does not run
	Node     string
	Restarts int
	// Submitted is when it was handed in, or put back into the queue.
	Submitted time.Time
	Exit      int // exit code of a job that ended; 128 and the signal where a signal ended it
}

// waits reports whether a job is to run yet, and goesOn whether it runs now.
func (j Job) waits() bool {
	return slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"}, j.State)
}

func (j Job) goesOn() bool {
	return slices.Contains([]string{"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING",
		"STAGE_OUT", "RESIZING"}, j.State)
}

// comment marks the jobs of a submission. Slurm may forget a job and give its number to another: its numbers alone do
// not tell whose a job is.
func (c *Campaign) comment(number int) string { return fmt.Sprintf("gateweigh/%s/%d", c.ID, number) }

// Submit hands shares to Slurm, as arrays of one job a share. Nodes in avoid get none of them.
func (c *Campaign) Submit(ctx context.Context, shares []Share, avoid []string) error {
	most := arrayLimit(ctx)
	for part := range c.Parts {
		var list []int
		for _, s := range shares {
			if s.Part == part {
				list = append(list, s.Number)
			}
		}
		for chunk := range slices.Chunk(list, most) {
			if err := c.submit(ctx, submission{Part: part, Shares: chunk}, avoid); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrayLimit is the most jobs of an array.
func arrayLimit(ctx context.Context) int {
	out, err := slurm(ctx, nil, "scontrol", "show", "config")
	found := regexp.MustCompile(`(?m)^MaxArraySize\s*=\s*(\d+)`).FindSubmatch(out)
	if err != nil || found == nil {
		return defaultArray
	}
	n, _ := strconv.Atoi(string(found[1]))
	return max(1, n)
}

func (c *Campaign) submit(ctx context.Context, s submission, avoid []string) error {
	all, err := c.submissions()
	if err != nil {
		return err
	}
	number := len(all)
	file := filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", number))
	if err := writeJSON(file, s); err != nil { // first: a job that starts at once reads it
		return err
	}
	out, err := slurm(ctx, strings.NewReader(c.script(s.Part, number)), "sbatch", c.request(s, number, avoid)...)
	if err != nil {
		return fmt.Errorf("handing %d jobs to Slurm: %w: once it takes them, %s hands out what is missing",
			len(s.Shares), err, quote.Command("gateweigh", "campaign", "resume", c.Dir))
	}
	s.Array, _, _ = strings.Cut(strings.TrimSpace(string(out)), ";")
	return writeJSON(file, s)
}

// request are the arguments of sbatch.
func (c *Campaign) request(s submission, number int, avoid []string) []string {
	o := c.Parts[s.Part].Slurm
	tasks := fmt.Sprintf("0-%d", len(s.Shares)-1)
	if o.Nodes > 0 {
		tasks += fmt.Sprintf("%%%d", o.Nodes)
	}
	args := []string{
		"--parsable", "--array=" + tasks, "--nodes=1", "--exclusive", "--requeue", "--job-name=" + c.Parts[s.Part].Name,
		"--comment=" + c.comment(number), "--chdir=/", "--open-mode=append",
		"--output=" + filepath.Join(c.Dir, logsFolder, "%A_%a.out"),
	}
	for _, option := range []struct{ name, value string }{
		{"partition", o.Partition}, {"account", o.Account}, {"constraint", o.Constraint}, {"container", o.Container},
		{"exclude", strings.Join(avoid, ",")}, {"time", minutes(o.TimeLimit)},
	} {
		if option.value != "" {
			args = append(args, "--"+option.name+"="+option.value)
		}
	}
	return args
}

// minutes is a limit as Slurm takes it.
func minutes(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(limit.Minutes())))
}

// script is what a job runs. The node's folder of that name may be another one, which is not of this campaign.
func (c *Campaign) script(part, number int) string {
	return "#!/bin/sh\n" + c.contained(part) +
		"grep -qs " + c.ID + " " + quote.Word(filepath.Join(c.Dir, campaignFile)) + " || {\n" +
		"\techo \"$SLURMD_NODENAME has no folder \"" + quote.Word(c.Dir) + "\" of this campaign\" >&2\n" +
		"\texit " + strconv.Itoa(exitNotShared) + "\n}\n" +
		"exec " + quote.Command(c.Program(), "campaign", "block", c.Dir, "--submission", strconv.Itoa(number)) +
		" --task \"$SLURM_ARRAY_TASK_ID\"\n"
}

// contained ends a job that is to run in a container and does not: slurmd without an oci.conf starts it on the node
// itself, and says so in its log alone. Such a job is a child of slurmstepd, and sees the same mounts.
func (c *Campaign) contained(part int) string {
	if c.Parts[part].Slurm.Container == "" {
		return ""
	}
	return `if [ "$(cat /proc/$PPID/comm 2>/dev/null)" = slurmstepd ] &&
	[ "$(readlink /proc/$PPID/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; then
	echo "$SLURMD_NODENAME has started this job without its container" >&2
	exit ` + strconv.Itoa(exitNoContainer) + "\nfi\n"
}

// Task is the share of a submission's job.
func (c *Campaign) Task(number, task int) (Share, error) {
	var s submission
	if err := readJSON(filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", number)), &s); err != nil {
		return Share{}, err
	}
	if task < 0 || task >= len(s.Shares) {
		return Share{}, fmt.Errorf("submission %d of %s has no job %d", number, c.Dir, task)
	}
	return Share{s.Part, s.Shares[task]}, nil
}

// submissions reads all, in their order.
func (c *Campaign) submissions() (list []submission, err error) {
	for {
		var s submission
		err := readJSON(filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", len(list))), &s)
		if errors.Is(err, os.ErrNotExist) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
}

// Jobs asks Slurm for the campaign's jobs. Slurm forgets those that ended, after minutes.
func (c *Campaign) Jobs(ctx context.Context) ([]Job, error) {
	submissions, err := c.submissions()
	if err != nil {
		return nil, err
	}
	// squeue --json ends well, and without jobs, where the controller does not answer.
	if ping, err := slurm(ctx, nil, "scontrol", "ping"); err != nil || !bytes.Contains(ping, []byte(" is UP")) {
		return nil, errors.Join(errors.New("slurmctld does not answer (scontrol ping)"), err)
	}
	out, err := slurm(ctx, nil, "squeue", "--json")
	if err != nil {
		return nil, err
	}
	return c.readJobs(bytes.NewReader(out), submissions)
}

// slurmJob is one of squeue's jobs, as far as it is looked at.
type slurmJob struct {
	ID       int64  `json:"job_id"`
	Array    int64  `json:"array_job_id"`
	Task     *int   `json:"array_task_id"`
	Tasks    string `json:"array_task_string"` // of an array that is not split up yet: "3-9,12%2"
	State    string `json:"job_state"`
	Reason   string `json:"state_reason"`
	Nodes    string `json:"nodes"`
	Exit     int    `json:"exit_code"` // as wait has it
	Restarts int    `json:"restart_cnt"`
	Submit   int64  `json:"submit_time"` // s since 1970
	Comment  string `json:"comment"`
}

// readJobs finds the campaign's jobs in what squeue --json prints, one after the other: there may be many of others.
func (c *Campaign) readJobs(r io.Reader, submissions []submission) (list []Job, err error) {
	d := json.NewDecoder(r)
	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
		}
		if token == "jobs" {
			break
		}
	}
	if _, err := d.Token(); err != nil { // the list's bracket
		return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
	}
	for d.More() {
		var j slurmJob
		if err := d.Decode(&j); err != nil {
			return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
		}
		number, found := strings.CutPrefix(j.Comment, "gateweigh/"+c.ID+"/")
		n, err := strconv.Atoi(number)
		if !found || err != nil || n < 0 || n >= len(submissions) {
			continue
		}
		s := submissions[n]
		for _, task := range j.tasks() {
			if task < len(s.Shares) {
				list = append(list, Job{
					Share: Share{s.Part, s.Shares[task]}, ID: strconv.FormatInt(j.ID, 10),
					Array: strconv.FormatInt(j.Array, 10), Task: task, State: j.State, Reason: j.Reason,
					Node: j.Nodes, Restarts: j.Restarts, Exit: exitCode(j.Exit), Submitted: time.Unix(j.Submit, 0),
				})
			}
		}
	}
	return list, nil
}

// tasks are the array's tasks that a row stands for.
func (j slurmJob) tasks() (list []int) {
	text, _, _ := strings.Cut(j.Tasks, "%")
	if text == "" {
		if j.Task != nil {
			list = []int{*j.Task}
		}
		return list
	}
	for _, span := range strings.Split(text, ",") {
		from, to, several := strings.Cut(span, "-")
		first, err := strconv.Atoi(from)
		last := first
		if several && err == nil {
			last, err = strconv.Atoi(to)
		}
		for n := first; err == nil && n <= last; n++ {
			list = append(list, n)
		}
	}
	return list
}

// exitCode is a wait status as a shell shows it.
func exitCode(status int) int {
	if signal := status & 0x7f; signal != 0 {
		return 128 + signal
	}
	return status >> 8
}

// Release lets jobs that were put back into the queue start, once that is some seconds ago: Slurm would have them wait
// for two minutes.
func (c *Campaign) Release(ctx context.Context, jobs []Job) error {
	var errs []error
	for _, j := range jobs {
		if j.waits() && j.Restarts > 0 && j.Reason == "BeginTime" && time.Since(j.Submitted) > releasedAfter {
			// A time ahead would not do: the scheduler looks for such jobs once a minute.
			_, err := slurm(ctx, nil, "scontrol", "update", "JobId="+j.ID, "StartTime=now")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Cancel ends the campaign's jobs, by their arrays.
func (c *Campaign) Cancel(ctx context.Context, jobs []Job) error {
	var ids []string
	for _, j := range jobs {
		if (j.waits() || j.goesOn()) && !slices.Contains(ids, j.Array) {
			ids = append(ids, j.Array)
		}
	}
	for chunk := range slices.Chunk(ids, 500) {
		if _, err := slurm(ctx, nil, "scancel", chunk...); err != nil {
			return err
		}
	}
	return nil
}

// slurm runs one of Slurm's commands. Its error says what the command said.
func slurm(ctx context.Context, in io.Reader, name string, args ...string) ([]byte, error) {
	ctx, done := context.WithTimeout(ctx, answersWithin)
	defer done()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s is not on PATH: install Slurm's commands (Debian: slurm-client), or use --local", name)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s does not answer within %s: is slurmctld running?", name, answersWithin)
	case err != nil:
		text := strings.Join(strings.FieldsFunc(said.String(), func(r rune) bool { return r == '\n' }), "; ")
		return nil, fmt.Errorf("%s: %s (%w)", name, text, err)
	}
	return out.Bytes(), nil
}
