package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	killGrace      = 3 * time.Second
	tailBytes      = 800 // of a program's output in an error,
	tailLines      = 5   // of which at most so many lines
)

// spawned is a long-running program of the host.
type spawned struct {
	name   string
	pid    int
	abrupt bool
	log    string
	from   int64 // where its output begins in log: earlier programs of the name may have written before
	done   chan struct{}
	status error // valid once done is closed
}

// command prepares cmd for the jail; its output goes to stdout and stderr.
func (a *Agent) command(ctx context.Context, c Command, stdout, stderr io.Writer) (*exec.Cmd, []int, *os.File, error) {
	if len(c.Argv) == 0 {
		return nil, nil, nil, errors.New("empty command")
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = Scratch
	}
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A group of its own: a script is ended with all it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe
	cpus := a.opts.ProgramCPUs
	if c.Support {
		cpus = a.opts.AgentCPUs
	}
	var ns *os.File
	if c.Client > 0 {
		pool := a.pool.Load()
		if pool == nil || c.Client > len(pool.Clients) {
			return nil, nil, nil, fmt.Errorf("there is no client %d", c.Client)
		}
		ns = pool.Clients[c.Client-1].NetNS()
	}
	return cmd, cpus, ns, nil
}

// run executes a command to its end.
func (a *Agent) run(ctx context.Context, c Command) (Output, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("still running after %s", timeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd, cpus, ns, err := a.command(ctx, c, &stdout, &stderr)
	if err != nil {
		return Output{}, err
	}
	if err = a.jail.start(cmd, cpus, ns); err == nil {
		err = cmd.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		err = nil // it left a daemon behind that holds its output open
	}
	out := Output{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: -1}
	if cmd.ProcessState != nil {
		out.ExitCode = cmd.ProcessState.ExitCode()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if said := lastLines(out.Stdout + out.Stderr); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return out, fmt.Errorf("%s: %w", strings.Join(c.Argv, " "), err)
	}
	return out, nil
}

// spawn starts a long-running command. Its output goes to its log file.
func (a *Agent) spawn(_ context.Context, c Command) (none, error) {
	if c.Name == "" {
		return none{}, errors.New("a spawned command needs a name")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// The name of one that has ended is free again.
	if old := a.programs[c.Name]; old != nil && !old.ended() {
		return none{}, fmt.Errorf("%s runs already", c.Name)
	}
	path := filepath.Join(a.opts.LogDir, strings.ReplaceAll(c.Name, "/", "_")+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return none{}, fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return none{}, fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	// Not the request's context: the program outlives the request.
	cmd, cpus, ns, err := a.command(context.Background(), c, log, log)
	if err != nil {
		return none{}, err
	}
	if err := a.jail.start(cmd, cpus, ns); err != nil {
		return none{}, fmt.Errorf("starting %s: %w", strings.Join(c.Argv, " "), err)
	}
	p := &spawned{name: c.Name, pid: cmd.Process.Pid, abrupt: c.Abrupt, log: path, from: from, done: make(chan struct{})}
	a.programs[c.Name] = p
	if c.Support {
		a.support[p.pid] = true
	}
	go func() {
		p.status = cmd.Wait()
		close(p.done)
	}()
	return none{}, nil
}

func (p *spawned) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends a spawned command: SIGTERM, then SIGKILL.
func (a *Agent) kill(ctx context.Context, name string) (none, error) {
	// Forgotten before it is ended: its death is wanted, and list must not tell of it.
	a.mu.Lock()
	p := a.programs[name]
	delete(a.programs, name)
	a.mu.Unlock()
	if p == nil || p.ended() {
		return none{}, nil
	}
	if !p.abrupt {
		syscall.Kill(-p.pid, syscall.SIGTERM)
		select {
		case <-p.done:
			return none{}, nil
		case <-ctx.Done():
		case <-time.After(killGrace):
		}
	}
	syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
	return none{}, nil
}

// Program is the state of a spawned command that was not killed.
type Program struct {
	Name   string `json:"name"`
	Ended  bool   `json:"ended"`
	How    string `json:"how,omitempty"`    // exit status, once it has ended
	Output string `json:"output,omitempty"` // the last lines it printed
}

// list returns the host's spawned programs by name.
func (a *Agent) list(context.Context, none) ([]Program, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Program
	for _, p := range a.programs {
		s := Program{Name: p.name, Ended: p.ended()}
		if s.Ended {
			s.How = "exit status 0"
			if p.status != nil {
				s.How = p.status.Error()
			}
		}
		text, _ := os.ReadFile(p.log) // a lost log costs the quotation only
		s.Output = lastLines(string(text[min(p.from, int64(len(text))):]))
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// lastLines is the end of a program's output, for an error message: its last
// lines that are not blank, joined by " | ".
func lastLines(text string) string {
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

// File is a file as the host's programs see it.
type File struct {
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
}

// writeFile works through a program inside the jail, so that symbolic links lead
// where the host's own programs would be led.
func (a *Agent) writeFile(ctx context.Context, f File) (none, error) {
	mode := fmt.Sprintf("%o", f.Mode)
	_, err := a.run(ctx, Command{Argv: []string{"install", "-D", "-m", mode, "/dev/stdin", f.Path}, Stdin: string(f.Data), Support: true})
	return none{}, err
}

// Install says which program the host's own programs are to reach, and in which folder
// there is room for a copy.
type Install struct {
	Need machine.Need `json:"need"`
	Dir  string       `json:"dir"`
}

// install returns the file by which the host's programs reach a program of the machine.
// One in a folder of which the host has its own, empty one is copied.
func (a *Agent) install(ctx context.Context, in Install) (string, error) {
	at := in.Need.Locate()
	hidden := slices.ContainsFunc(private, func(p privateDir) bool { return !p.overlay && strings.HasPrefix(at, p.path+"/") })
	if at == "" || !hidden {
		return cmp.Or(at, in.Need.Program), nil
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", in.Need.Program, err)
	}
	to := filepath.Join(in.Dir, in.Need.Program)
	if _, err := a.writeFile(ctx, File{to, data, 0o755}); err != nil {
		return "", fmt.Errorf("copying %s to the host: %w", in.Need.Program, err)
	}
	return to, nil
}

// Install returns the file by which the host's programs reach a program of its machine;
// where that takes a copy, it is put into dir.
func (c *Conn) Install(ctx context.Context, n machine.Need, dir string) (path string, err error) {
	err = c.call(ctx, "file.install", Install{n, dir}, &path)
	return path, err
}
