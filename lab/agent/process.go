package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/machine"
)

const (
	defaultTimeout = 30 * time.Second
	tailBytes      = 800 // an error quotes at most so many bytes of a program's output,
	tailLines      = 5   // and at most so many lines
)

// Command is a program for an agent to run on its host: inside the host's network,
// mount and process namespaces. Processes that it leaves behind end with the host.
type Command struct {
	// Name identifies a spawned process to End and in log file names. Unique on the host.
	Name string `json:"name,omitempty"`
	// Argv is the program and its arguments; a program without a slash is looked up on PATH.
	Argv []string `json:"argv"`
	// Label is the command's name in errors. Empty: Argv, with only the first line of a script.
	Label string `json:"label,omitempty"`
	// Env is added to the agent's own environment, "KEY=value" each.
	Env   []string `json:"env,omitempty"`
	Stdin string   `json:"stdin,omitempty"`
	// Timeout bounds Run; zero is 30 s. Spawned processes have no limit.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Support marks a process that is not part of the device under test, such as
	// a RADIUS server, or a DHCP server of the clean router. Its CPU time and
	// memory do not count, and it runs on the agent's CPUs.
	Support bool `json:"support,omitempty"`
	// Abrupt makes End send only SIGKILL. It is for daemons that take long to end
	// by themselves, to undo changes that end with the host anyway.
	Abrupt bool `json:"abrupt,omitempty"`
	// CPUs that the program may run on; empty: Options.ProgramCPUs, or AgentCPUs for a support program.
	CPUs []int `json:"cpus,omitempty"`
	// Client is the number, from 1, of the client in whose network namespace the program runs; zero: in the host's.
	Client int `json:"client,omitempty"`
}

// String is the command in a line, for messages.
func (c Command) String() string {
	if c.Label != "" {
		return c.Label
	}
	words := slices.Clone(c.Argv)
	for i, w := range words {
		if first, _, more := strings.Cut(strings.TrimSpace(w), "\n"); more {
			words[i] = first + " …"
		}
	}
	return strings.Join(words, " ")
}

// Output is what a finished command printed.
type Output struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}

// spawned is a long-running program of the host.
type spawned struct {
	*exec.Cmd
	abrupt     bool
	log        string          // file of its output
	logStart   int64           // offset in log where its output begins, after that of earlier programs of the same name
	ended      context.Context // done when the program has ended; then ProcessState and groupEmpty are valid
	groupEmpty bool            // its process group was empty when it ended
}

// environ is the environment of the host's programs. It is the agent's without TMPDIR, which may name a folder that
// the jail, with its private /tmp, does not have.
func (a *Agent) environ() []string {
	if a.jail.init == nil {
		return os.Environ()
	}
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
}

// start starts c in the jail and in the network namespace ns (nil: the host's). Its output
// goes to stdout and stderr.
func (a *Agent) start(ctx context.Context, c Command, ns *os.File, stdout, stderr io.Writer) (*exec.Cmd, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("empty command")
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(a.environ(), c.Env...)
	cmd.Dir = a.jail.scratch
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A process group of its own lets a signal end a script together with all that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a process that c left behind may hold the output open
	cpus := a.opts.ProgramCPUs
	if c.Support {
		cpus = a.opts.AgentCPUs
	}
	if len(c.CPUs) > 0 {
		cpus = c.CPUs
	}
	if c.Client > 0 {
		pool := a.pool.Load()
		if pool == nil || c.Client > len(pool.Clients) {
			return nil, fmt.Errorf("there is no client %d", c.Client)
		}
		ns = pool.Clients[c.Client-1].NetNS()
	}
	return cmd, a.jail.start(cmd, cpus, ns)
}

// Run executes a command and waits for its end. An exit status other than 0 is an error.
func (a *Agent) Run(ctx context.Context, c Command) (Output, error) {
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("still running after %s", timeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd, err := a.start(ctx, c, nil, &stdout, &stderr)
	if err == nil {
		err = cmd.Wait()
	}
	out := Output{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: -1}
	if cmd != nil && cmd.ProcessState != nil {
		out.ExitCode = cmd.ProcessState.ExitCode()
	}
	if errors.Is(err, exec.ErrWaitDelay) && out.ExitCode == 0 {
		err = nil // the command succeeded, and left a daemon behind that holds its output open
	}
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if output := LastLines(out.Stdout + out.Stderr); output != "" {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return out, fmt.Errorf("%s: %w", c, err)
}

// Spawn starts a long-running command. Its output goes to its log file.
func (a *Agent) Spawn(_ context.Context, c Command) error {
	if c.Name == "" {
		return errors.New("a spawned command needs a name")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// A name can be used again when its program has ended.
	if old := a.programs[c.Name]; old != nil && old.ended.Err() == nil {
		return fmt.Errorf("%s runs already", c.Name)
	}
	path := filepath.Join(a.opts.LogDir, strings.ReplaceAll(c.Name, "/", "_")+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	defer log.Close()
	logStart, _ := log.Seek(0, io.SeekEnd) // succeeds on a file that was just opened
	// The program goes on after this request, so it must not end with the request's context.
	cmd, err := a.start(context.Background(), c, nil, log, log)
	if err != nil {
		return fmt.Errorf("starting %s: %w", c, err)
	}
	ended, end := context.WithCancel(context.Background())
	p := &spawned{Cmd: cmd, abrupt: c.Abrupt, log: path, logStart: logStart, ended: ended}
	a.programs[c.Name] = p
	if c.Support {
		a.support[cmd.Process.Pid] = true
	}
	go func() {
		defer end()
		cmd.Wait()
		p.groupEmpty = noGroup(cmd.Process.Pid)
	}()
	return nil
}

// Program is the state of a spawned command.
type Program struct {
	Name   string `json:"name"`
	Ended  bool   `json:"ended"`
	Status string `json:"how,omitempty"`    // exit status, once it has ended
	Output string `json:"output,omitempty"` // what it printed: of Programs the last lines, of End the last megabyte
	// Signal is the signal on which it ended, "SIGTERM"; empty where it had ended before.
	Signal string `json:"by,omitempty"`
}

// Programs returns the host's spawned programs that End has not ended, by name.
func (a *Agent) Programs(context.Context) (list []Program) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.programs)) {
		p := a.programs[name]
		s := Program{Name: name, Ended: p.ended.Err() != nil}
		if s.Ended {
			s.Status = p.ProcessState.String()
		}
		s.Output = p.lastOutput()
		list = append(list, s)
	}
	return list
}

// Logs reads the log files of the host, by their names: the last megabyte of each.
func (a *Agent) Logs(context.Context) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(a.opts.LogDir, "*.log"))
	logs := map[string]string{}
	for _, path := range files {
		if text := (&spawned{log: path}).outputEnd(endOutput); text != "" {
			logs[filepath.Base(path)] = text
		}
	}
	return logs, err
}

// lastOutput is the last lines that the program has printed. It reads only the end of the log: that may have
// megabytes, and the lab lists programs after each measurement.
func (p *spawned) lastOutput() string { return LastLines(p.outputEnd(2 * tailBytes)) }

// outputEnd is the end of what the program has printed, at most so many bytes.
func (p *spawned) outputEnd(most int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return "" // without a log, a program is still listed
	}
	defer f.Close()
	end, _ := f.Seek(0, io.SeekEnd) // succeeds on a file that was just opened
	from := max(p.logStart, end-most)
	text, _ := io.ReadAll(io.NewSectionReader(f, from, end-from)) // on an error, what was read is still useful
	return string(text)
}

// LastLines shortens a program's output for an error message: the last
// lines that are not blank, joined by " | ".
func LastLines(text string) string {
	if len(text) > tailBytes {
		text = "…" + strings.ToValidUTF8(text[len(text)-tailBytes:], "")
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
}

// WriteFile writes a file, and makes its directories. A program inside the jail does it, so that
// paths and symbolic links mean the same as for the host's other programs.
func (a *Agent) WriteFile(ctx context.Context, path string, data []byte, mode uint32) error {
	install := []string{"install", "-D", "-m", fmt.Sprintf("%o", mode), "/dev/stdin", path}
	_, err := a.Run(ctx, Command{Argv: install, Stdin: string(data), Support: true})
	return err
}

// Install returns a path by which the host's programs reach a program of the machine. A program in a
// folder that is private and empty in the jail, such as /tmp, is copied to dir. Others are used where they are.
func (a *Agent) Install(ctx context.Context, n machine.Need, dir string) (string, error) {
	path := n.Locate()
	if !slices.ContainsFunc(emptyFolders, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
		return cmp.Or(path, n.Program), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", n.Program, err)
	}
	to := filepath.Join(dir, n.Program)
	if err := a.WriteFile(ctx, to, data, 0o755); err != nil {
		return "", fmt.Errorf("copying %s to the host: %w", n.Program, err)
	}
	return to, nil
}
