// Connections of the backend SSH: commands on other machines, by the system's ssh.

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

// connection is a connection to a machine by the system's ssh. A first ssh process opens it and stays. Others reach the
// first by a socket, and run their commands over its connection (ControlMaster in ssh_config(5)).
type connection struct {
	address string
	config  string // file for -F; empty: the user's
	socket  string // of the first process
	first   *process
}

// sshOptions are options of every call of ssh. With BatchMode ssh asks no questions. A connection that was cut off ends
// after 12 s. The user's configuration may have forwardings and commands for sessions by hand, which are switched off.
var sshOptions = []string{
	"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=3", "-o",
	"ServerAliveCountMax=4", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no",
	"-o",
	"ControlPersist=no", "-o", "EscapeChar=none", "-o", "LogLevel=ERROR",
}

// mark is the line after which the output of a command begins. A shell's start-up files may print something before.
const mark = "gateweigh: begin"

// connectTimeout bounds the wait for the facts of a machine.
const connectTimeout = time.Minute

// open connects, and reads the machine's facts.
func (c *connection) open(ctx context.Context) (facts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errors.New("it does not answer"))
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
		err = explained(how, p.messages.String(), c.address)
	}
	return f, fmt.Errorf("connecting to %s by ssh: %w", c.address, err)
}

// start runs a script in the machine's sh. Its error output goes to log too.
func (c *connection) start(script string, log *os.File) (*process, error) {
	return c.run("no", script, log)
}

// close ends the first process, and so all that use its connection.
func (c *connection) close() {
	if c.first != nil {
		c.first.input.Close()
		c.first.end(time.Second)
	}
}

// process is a command on a machine, and the ssh that carries it.
type process struct {
	cmd      *exec.Cmd
	address  string
	input    io.WriteCloser
	output   io.ReadCloser // after the mark
	messages *tail         // error output of the command and of ssh
	exited   chan struct{} // closed when ssh has ended
	status   string        // valid after exited
}

// run starts ssh with a script for sh. master is ssh's ControlMaster: "yes" opens the connection. The user's login
// shell on the machine may be any shell, so it gets the script as one quoted word, for an sh that it starts.
func (c *connection) run(master, script string, log *os.File) (*process, error) {
	var args []string
	if c.config != "" {
		args = append(args, "-F", c.config)
	}
	args = append(args, sshOptions...)
	script = strings.ReplaceAll(`echo; echo "`+mark+`"; `+script, "\n", " ") // csh allows no newline in a quoted word
	args = append(args, "-o", "ControlMaster="+master, "-o", "ControlPath="+strings.ReplaceAll(c.socket, "%", "%%"), "--",
		c.address, "exec sh -c "+quoted(script))
	p := &process{cmd: exec.Command("ssh", args...), messages: &tail{file: log}, address: c.address,
		exited: make(chan struct{})}
	// In a session of its own, ssh gets no Ctrl-C. It reaches the lab, which then ends its hosts in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.Stderr = p.messages
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, end, err := os.Pipe() // Wait would close a StdoutPipe, before the last output is read
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
		p.cmd.Wait() // its error is in ProcessState too
		p.status = p.cmd.ProcessState.String()
		if log != nil {
			log.Close()
		}
	}()
	return p, nil
}

// ended tells how the process ended: its last error output, or else its status. It is empty if the process still runs.
func (p *process) ended() string {
	select {
	case <-p.exited:
	case <-time.After(2 * time.Second):
		return ""
	}
	if said := agent.LastLines(p.messages.String()); said != "" {
		return strings.TrimPrefix(said, agent.ErrorPrefix)
	}
	return p.status
}

// kill ends the ssh process at once.
func (p *process) kill() { p.cmd.Process.Kill() }

// end waits for the end of a process whose input is closed, and kills it after a time.
func (p *process) end(within time.Duration) error {
	select {
	case <-p.exited:
		const lost = 255 // ssh's exit status when the connection was lost
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

// quoted quotes a word for any shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
	file *os.File // also written to; may be nil
}

// maxTail is the number of bytes that tail keeps.
const maxTail = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		t.file.Write(b)
	}
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// afterMark reads an output without the preamble, which ends with the line of the mark.
type afterMark struct {
	io.ReadCloser
	buffered *bufio.Reader // nil until the mark was read
	preamble bytes.Buffer
}

// maxPreamble bounds what a shell's start-up files may print, bytes.
const maxPreamble = 256 << 10

// Read implements io.Reader.
func (a *afterMark) Read(b []byte) (int, error) {
	if a.buffered == nil {
		in := bufio.NewReaderSize(a.ReadCloser, 64<<10)
		for {
			line, err := in.ReadString('\n')
			if strings.TrimSpace(line) == mark {
				break
			}
			if a.preamble.Len() < maxPreamble {
				a.preamble.WriteString(line)
			}
			if err != nil {
				return 0, err
			}
			if a.preamble.Len() >= maxPreamble {
				return 0, errors.New("its shell prints and prints before it runs a command: see its start-up files (~/.bashrc)")
			}
		}
		a.buffered = in
	}
	return a.buffered.Read(b)
}
