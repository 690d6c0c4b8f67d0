package backend

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// connection is one to a machine, by the system's ssh: a first process that stays, and others that share what it
// opened.
type connection struct {
	address string
	config  string // for -F; empty: the user's
	socket  string // of the first process
	first   *process
}

// sshOptions go with every call. BatchMode: ssh never asks. A connection that is cut off ends after 12 s. What the
// user's configuration may say of forwardings and commands is for sessions by hand.
var sshOptions = []string{
	"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=3", "-o",
	"ServerAliveCountMax=4", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no",
	"-o",
	"ControlPersist=no", "-o", "EscapeChar=none", "-o", "LogLevel=ERROR",
}

// mark begins what a command prints: what a shell's start-up files print comes before.
const mark = "gateweigh: begin"

// opensWithin bounds the wait for the first words of a machine.
const opensWithin = time.Minute

// open connects, and reads what the machine is.
func (c *connection) open(ctx context.Context) (facts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, opensWithin, errors.New("it does not answer"))
	defer cancel()
	p, err := c.run("yes", factsScript, nil)
	if err != nil {
		return facts{}, err
	}
	c.first = p
	defer context.AfterFunc(ctx, p.kill)()
	f, err := readFacts(p.output)
	if err == nil {
		return f, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if how := p.ended(); how != "" {
		err = explained(how, p.said.String(), c.address)
	}
	return f, fmt.Errorf("connecting to %s by ssh: %w", c.address, err)
}

// start starts a command in the machine's sh. What it says goes to log as well.
func (c *connection) start(script string, log *os.File) (*process, error) {
	return c.run("no", script, log)
}

// close ends the connection, and with it all that use it.
func (c *connection) close() {
	if c.first != nil {
		c.first.input.Close()
		c.first.end(time.Second)
	}
}

// process is a command on a machine, and the ssh that carries it.
type process struct {
	cmd     *exec.Cmd
	address string
	input   io.WriteCloser
	output  io.ReadCloser // from the mark on
	said    *tail
	exited  chan struct{}
	status  string // valid once exited
}

// run calls ssh. The command is one word for the login shell of the user there, whichever that is, and a script of sh
// in it.
func (c *connection) run(master, script string, log *os.File) (*process, error) {
	var args []string
	if c.config != "" {
		args = append(args, "-F", c.config)
	}
	args = append(args, sshOptions...)
	script = strings.ReplaceAll(`echo; echo "`+mark+`"; `+script, "\n", " ") // csh has no lines in words
	args = append(args, "-o", "ControlMaster="+master, "-o", "ControlPath="+strings.ReplaceAll(c.socket, "%", "%%"), "--",
		c.address, "exec sh -c "+quoted(script))
	p := &process{cmd: exec.Command("ssh", args...), said: &tail{file: log}, address: c.address,
		exited: make(chan struct{})}
	// In a session of its own: Ctrl-C reaches the lab, which then ends its hosts in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.Stderr = p.said
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, end, err := os.Pipe() // not StdoutPipe, which Wait closes: the last words are read after the end
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = end
	err = p.cmd.Start()
	end.Close()
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w: install openssh-client", err)
	}
	if err != nil {
		output.Close()
		return nil, err
	}
	p.output = &afterMark{ReadCloser: output}
	go func() { // ends with the process
		defer close(p.exited)
		p.cmd.Wait() // how it ended is in its state
		p.status = p.cmd.ProcessState.String()
		if log != nil {
			log.Close()
		}
	}()
	return p, nil
}

// ended says how the process ended: what it said, or else its status; empty: it runs on, but does not answer.
func (p *process) ended() string {
	select {
	case <-p.exited:
	case <-time.After(2 * time.Second):
		return ""
	}
	if said := agent.LastLines(p.said.String()); said != "" {
		return strings.TrimPrefix(said, agent.ErrorPrefix)
	}
	return p.status
}

func (p *process) kill() { p.cmd.Process.Kill() }

// end waits for the end of a process whose input is closed.
func (p *process) end(within time.Duration) error {
	select {
	case <-p.exited:
		const lost = 255 // ssh's own, or a signal's
		if code := p.cmd.ProcessState.ExitCode(); code > 0 && code != lost {
			return fmt.Errorf("%s: %s", p.address, p.ended())
		}
		return nil
	case <-time.After(within):
		p.kill()
		<-p.exited
		return fmt.Errorf("%s: still running %s after its input was closed: the connection was cut", p.address, within)
	}
}

// quoted is a word for any shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
	file *os.File // also written to; may be nil
}

const longestTail = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		t.file.Write(b)
	}
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-longestTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// afterMark is an output from the line with the mark on.
type afterMark struct {
	io.ReadCloser
	buffered *bufio.Reader // nil until the mark is passed
	noise    bytes.Buffer
}

// longestNoise bounds what start-up files may print.
const longestNoise = 256 << 10

func (a *afterMark) Read(b []byte) (int, error) {
	if a.buffered == nil {
		in := bufio.NewReaderSize(a.ReadCloser, 64<<10)
		for {
			line, err := in.ReadString('\n')
			if strings.TrimSpace(line) == mark {
				break
			}
			if a.noise.Len() < longestNoise {
				a.noise.WriteString(line)
			}
			if err != nil {
				return 0, err
			}
			if a.noise.Len() >= longestNoise {
				return 0, errors.New("its shell prints and prints before it runs a command: see its start-up files (~/.bashrc)")
			}
		}
		a.buffered = in
	}
	return a.buffered.Read(b)
}
