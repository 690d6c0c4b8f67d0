// Campaigns on Slurm: its commands submit, list and end the jobs of shares.

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

// answerTimeout bounds the time of a command of Slurm. Without the controller some commands retry for long.
const answerTimeout = 30 * time.Second

// exitNotShared is the exit code of a job that does not find the campaign's folder on its node.
const exitNotShared = 72

// exitNoContainer is the exit code of a job that Slurm has started outside of its container.
const exitNoContainer = 73

// exitNoOutput is Job.Exit of a job whose output file Slurm cannot open. Slurm reports it as a signal 53, which does
// not exist.
const exitNoOutput = 128 + 53

// defaultArrayLimit is Slurm's default for the largest number of jobs in an array (MaxArraySize).
const defaultArrayLimit = 1001

// minRequeueDelay is the least time that a requeued job waits. A job that starts again within the second in which its
// first start was ended fails: the node refuses it ("Job credential revoked").
const minRequeueDelay = 3 * time.Second

// submission is an array of jobs. Job i carries out share Shares[i].
type submission struct {
	Part   int    `json:"part"`
	Shares []int  `json:"shares"`
	Array  string `json:"array"` // Slurm's number of the array; empty when the program was killed before it knew it
}

// Job is Slurm's report about a share's job.
type Job struct {
	Share
	ID       string // the job's number
	Array    string // the array's number: scancel takes ARRAY_TASK, not the number of a job of an array
	Task     int    // index in the array
	State    string // "PENDING", "RUNNING", …
	Reason   string // why the job does not run
	Node     string
	Restarts int
	// Submitted is the time when the job was last put into the queue.
	Submitted time.Time
	Exit      int // exit code of a job that has ended; 128 plus the signal when a signal ended it
}

// waiting reports whether a job has not begun, or waits to begin again.
func (j Job) waiting() bool {
	return slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"}, j.State)
}

// running reports whether a job has begun and not ended.
func (j Job) running() bool {
	return slices.Contains([]string{"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING",
		"STAGE_OUT", "RESIZING"}, j.State)
}

// comment marks the jobs of a submission. The jobs' numbers are not enough, because Slurm may forget a job and give its
// number to another one.
func (c *Campaign) comment(number int) string { return fmt.Sprintf("gateweigh/%s/%d", c.ID, number) }

// Submit submits a job for each share to Slurm, in arrays. The jobs do not run on the nodes in avoid.
func (c *Campaign) Submit(ctx context.Context, shares []Share, avoid []string) error {
	most := arrayLimit(ctx)
	for part := range c.Parts {
		var list []int
		for _, share := range shares {
			if share.Part == part {
				list = append(list, share.Number)
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

// arrayLimit returns the largest number of jobs in an array.
func arrayLimit(ctx context.Context) int {
	out, err := slurm(ctx, nil, "scontrol", "show", "config")
	found := regexp.MustCompile(`(?m)^MaxArraySize\s*=\s*(\d+)`).FindSubmatch(out)
	if err != nil || found == nil {
		return defaultArrayLimit
	}
	n, _ := strconv.Atoi(string(found[1]))
	return max(1, n)
}

// submit hands one array of jobs to Slurm. It writes the file of the submission before, and again with the array's
// number afterwards.
func (c *Campaign) submit(ctx context.Context, submitted submission, avoid []string) error {
	all, err := c.submissions()
	if err != nil {
		return err
	}
	number := len(all)
	file := filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", number))
	if err := writeJSON(file, submitted); err != nil { // before sbatch, because jobs read it
		return err
	}
	out, err := slurm(ctx, strings.NewReader(c.script(submitted.Part, number)), "sbatch",
		c.sbatchArgs(submitted, number, avoid)...)
	if err != nil {
		return fmt.Errorf("handing %d jobs to Slurm: %w: once it takes them, %s hands out what is missing",
			len(submitted.Shares), err, quote.Command("gateweigh", "campaign", "resume", c.Dir))
	}
	submitted.Array, _, _ = strings.Cut(strings.TrimSpace(string(out)), ";")
	return writeJSON(file, submitted)
}

// sbatchArgs returns the arguments of sbatch.
func (c *Campaign) sbatchArgs(submitted submission, number int, avoid []string) []string {
	options := c.Parts[submitted.Part].Slurm
	tasks := fmt.Sprintf("0-%d", len(submitted.Shares)-1)
	if options.Nodes > 0 {
		tasks += fmt.Sprintf("%%%d", options.Nodes)
	}
	args := []string{
		"--parsable", "--array=" + tasks, "--nodes=1", "--exclusive", "--requeue",
		"--job-name=" + c.Parts[submitted.Part].Name,
		"--comment=" + c.comment(number), "--chdir=/", "--open-mode=append",
		"--output=" + filepath.Join(c.Dir, logsFolder, "%A_%a.out"),
	}
	for _, option := range []struct{ name, value string }{
		{"partition", options.Partition}, {"account", options.Account}, {"constraint", options.Constraint},
		{"container", options.Container},
		{"exclude", strings.Join(avoid, ",")}, {"time", minutes(options.TimeLimit)},
	} {
		if option.value != "" {
			args = append(args, "--"+option.name+"="+option.value)
		}
	}
	return args
}

// minutes formats a time limit for sbatch; "" for 0.
func minutes(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(limit.Minutes())))
}

// script returns a job's script. It checks the folder by the campaign's ID, because a node that does not share the disk
// may have another folder of the same name.
func (c *Campaign) script(part, number int) string {
	return "#!/bin/sh\n" + c.containerCheck(part) +
		"grep -qs " + c.ID + " " + quote.Word(filepath.Join(c.Dir, campaignFile)) + " || {\n" +
		"\techo \"$SLURMD_NODENAME has no folder \"" + quote.Word(c.Dir) + "\" of this campaign\" >&2\n" +
		"\texit " + strconv.Itoa(exitNotShared) + "\n}\n" +
		"exec " + quote.Command(c.Program(), "campaign", "block", c.Dir, "--submission", strconv.Itoa(number)) +
		" --task \"$SLURM_ARRAY_TASK_ID\"\n"
}

// containerCheck returns the part of a job's script that ends a job outside of its container: slurmd without an
// oci.conf starts such a job on the node itself and only logs it. The job is then a child of slurmstepd in its mount
// namespace.
func (c *Campaign) containerCheck(part int) string {
	if c.Parts[part].Slurm.Container == "" {
		return ""
	}
	return `if [ "$(cat /proc/$PPID/comm 2>/dev/null)" = slurmstepd ] &&
	[ "$(readlink /proc/$PPID/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; then
	echo "$SLURMD_NODENAME has started this job without its container" >&2
	exit ` + strconv.Itoa(exitNoContainer) + "\nfi\n"
}

// Task returns the share of a submission's job. task is the job's index in the array.
func (c *Campaign) Task(number, task int) (Share, error) {
	var submitted submission
	if err := readJSON(filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", number)), &submitted); err != nil {
		return Share{}, err
	}
	if task < 0 || task >= len(submitted.Shares) {
		return Share{}, fmt.Errorf("submission %d of %s has no job %d", number, c.Dir, task)
	}
	return Share{submitted.Part, submitted.Shares[task]}, nil
}

// submissions reads all submissions in their order.
func (c *Campaign) submissions() (list []submission, err error) {
	for {
		var submitted submission
		err := readJSON(filepath.Join(c.Dir, submissionsFolder, fmt.Sprintf("%03d.json", len(list))), &submitted)
		if errors.Is(err, os.ErrNotExist) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, submitted)
	}
}

// Jobs asks Slurm for the campaign's jobs. Slurm forgets a job some minutes after its end.
func (c *Campaign) Jobs(ctx context.Context) ([]Job, error) {
	submissions, err := c.submissions()
	if err != nil {
		return nil, err
	}
	// When the controller does not answer, squeue --json lists no jobs and reports no error.
	if ping, err := slurm(ctx, nil, "scontrol", "ping"); err != nil || !bytes.Contains(ping, []byte(" is UP")) {
		return nil, errors.Join(errors.New("slurmctld does not answer (scontrol ping)"), err)
	}
	out, err := slurm(ctx, nil, "squeue", "--json")
	if err != nil {
		return nil, err
	}
	return c.readJobs(bytes.NewReader(out), submissions)
}

// slurmJob has the fields of squeue's jobs that readJobs uses.
type slurmJob struct {
	ID       int64  `json:"job_id"`
	Array    int64  `json:"array_job_id"`
	Task     *int   `json:"array_task_id"`
	Tasks    string `json:"array_task_string"` // of an array that is not split up yet: "3-9,12%2"
	State    string `json:"job_state"`
	Reason   string `json:"state_reason"`
	Nodes    string `json:"nodes"`
	Exit     int    `json:"exit_code"` // wait status, see wait(2)
	Restarts int    `json:"restart_cnt"`
	Submit   int64  `json:"submit_time"` // s since 1970
	Comment  string `json:"comment"`
}

// readJobs finds the campaign's jobs in the output of squeue --json. It decodes one job at a time, because the output
// may have many jobs of others.
func (c *Campaign) readJobs(r io.Reader, submissions []submission) (list []Job, err error) {
	decoder := json.NewDecoder(r)
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
		}
		if token == "jobs" {
			break
		}
	}
	if _, err := decoder.Token(); err != nil { // the list's bracket
		return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
	}
	for decoder.More() {
		var row slurmJob
		if err := decoder.Decode(&row); err != nil {
			return nil, fmt.Errorf("reading what squeue --json prints: %w", err)
		}
		number, found := strings.CutPrefix(row.Comment, "gateweigh/"+c.ID+"/")
		n, err := strconv.Atoi(number)
		if !found || err != nil || n < 0 || n >= len(submissions) {
			continue
		}
		submitted := submissions[n]
		for _, task := range row.tasks() {
			if task < len(submitted.Shares) {
				list = append(list, Job{
					Share: Share{submitted.Part, submitted.Shares[task]}, ID: strconv.FormatInt(row.ID, 10),
					Array: strconv.FormatInt(row.Array, 10), Task: task, State: row.State, Reason: row.Reason,
					Node: row.Nodes, Restarts: row.Restarts, Exit: exitCode(row.Exit), Submitted: time.Unix(row.Submit, 0),
				})
			}
		}
	}
	return list, nil
}

// tasks lists the array's tasks that a row of squeue stands for.
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

// exitCode converts a wait status to the exit code that a shell shows.
func exitCode(status int) int {
	if signal := status & 0x7f; signal != 0 {
		return 128 + signal
	}
	return status >> 8
}

// Release lets requeued jobs start after minRequeueDelay. Slurm alone would start them after two minutes.
func (c *Campaign) Release(ctx context.Context, jobs []Job) error {
	var errs []error
	for _, job := range jobs {
		if job.waiting() && job.Restarts > 0 && job.Reason == "BeginTime" && time.Since(job.Submitted) > minRequeueDelay {
			// StartTime is now, not a time ahead: the scheduler looks only once a minute for jobs that become due.
			_, err := slurm(ctx, nil, "scontrol", "update", "JobId="+job.ID, "StartTime=now")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Cancel ends the campaign's jobs, by their arrays.
func (c *Campaign) Cancel(ctx context.Context, jobs []Job) error {
	var ids []string
	for _, job := range jobs {
		if (job.waiting() || job.running()) && !slices.Contains(ids, job.Array) {
			ids = append(ids, job.Array)
		}
	}
	for chunk := range slices.Chunk(ids, 500) {
		if _, err := slurm(ctx, nil, "scancel", chunk...); err != nil {
			return err
		}
	}
	return nil
}

// slurm runs one of Slurm's commands and returns its output. The error quotes the command's error output.
func slurm(ctx context.Context, in io.Reader, name string, args ...string) ([]byte, error) {
	ctx, done := context.WithTimeout(ctx, answerTimeout)
	defer done()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s is not on PATH: install Slurm's commands (Debian: slurm-client), or use --local", name)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s does not answer within %s: is slurmctld running?", name, answerTimeout)
	case err != nil:
		text := strings.Join(strings.FieldsFunc(stderr.String(), func(r rune) bool { return r == '\n' }), "; ")
		return nil, fmt.Errorf("%s: %s (%w)", name, text, err)
	}
	return out.Bytes(), nil
}
