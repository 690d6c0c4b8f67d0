package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/nic"
)

// Guard is what starts an agent on a machine that is not the lab's. It stays beside the agent, and puts back what the
// agent's host took of the machine however the agent ends. When the guard is killed, the agent ends and puts it back
// itself.
//
//	sshd ── stdin, stdout ──► gateweigh agent-guard ──► gateweigh agent (in network, mount and UTS namespaces of its own)
//	                            keeps what interfaces were    │
//	                            pipe: the state, then its end ┘
//
// Nothing that the agent or its programs configure is of the machine's own network: the interfaces are moved into the
// host's namespace, and back. So a machine that is cut off undoes the same as one whose lab has ended.
type Guard struct {
	Agent Options `json:"agent"` // its LogDir is the guard's to make
	// Links are interfaces of the machine, to be moved into the host's network namespace; none: the agent answers for the
	// machine alone.
	Links []string `json:"links,omitempty"`
	// Folder is removed at the end: it has the agent's program. Empty: none.
	Folder string `json:"folder,omitempty"`
}

// Descriptors of a guarded agent beside its standard ones.
const (
	guardFD = 3 // what the interfaces were, as JSON; its end is that of the guard
	homeFD  = 4 // the machine's network namespace
)

// guardGrace is how long an agent may take to end once its input has ended.
const guardGrace = 3 * time.Second

// guardMain is the body of a guard. args are the Guard as JSON, and what sshd calls SSH_CONNECTION.
func guardMain(args []string) (err error) {
	const needed = 2
	if len(args) != needed {
		return errors.New("a guard is started by the lab")
	}
	var g Guard
	if err := json.Unmarshal([]byte(args[0]), &g); err != nil {
		return fmt.Errorf("reading what to guard: %w", err)
	}
	if g.Folder != "" {
		defer func() { err = errors.Join(err, removeProgram(g.Folder)) }()
	}
	raiseFiles()
	// What ends a session of ssh, or a lab that is interrupted, ends the agent first.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	unlock, err := lockLinks(g.Links, g.Agent.Run)
	if err != nil {
		return err
	}
	defer unlock()
	if g.Agent.LogDir, err = os.MkdirTemp("", "gateweigh-logs-"); err != nil {
		return fmt.Errorf("making a folder for the output of programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(g.Agent.LogDir)) }()
	states, err := readLinks(g.Links, args[1])
	if err != nil {
		return err
	}
	return g.run(states, ended)
}

// run starts the agent, lends it the interfaces, waits for its end, and puts all back.
func (g Guard) run(states []nic.State, signals <-chan os.Signal) error {
	state, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer tell.Close()
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	g.Agent.Guarded = true
	cmd := selfCommand(g.Agent.Args())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g.Agent.Isolated {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{state, home}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the agent in namespaces of its own (the kernel needs CONFIG_NET_NS): %w", err)
	}
	state.Close()
	exited := make(chan struct{})
	go func() { // ends with the agent
		defer close(exited)
		cmd.Wait()
	}()
	var lab *client.Namespace
	if g.Agent.Isolated {
		if lab, err = client.NamespaceOf(cmd.Process.Pid); err == nil {
			defer lab.Close()
			err = nic.Lend(states, lab.File())
		}
	}
	if err == nil {
		err = json.NewEncoder(tell).Encode(states)
	}
	if err != nil {
		tell.Close() // the agent ends
	}
	waitFor(cmd, exited, signals)
	if lab == nil {
		return err
	}
	back := nic.Return(states, lab.File(), home)
	lab.Do(client.EndConnections)
	return errors.Join(err, back)
}

// waitFor waits for the end of an agent, and sees to it once a signal has come or its input has ended.
func waitFor(cmd *exec.Cmd, exited <-chan struct{}, signals <-chan os.Signal) {
	select {
	case <-exited:
		return
	case <-signals:
		cmd.Process.Signal(syscall.SIGTERM)
	case <-inputEnd(exited):
	}
	select {
	case <-exited:
	case <-time.After(guardGrace): // one that was stopped does not notice
		cmd.Process.Kill()
		<-exited
	}
}

// inputEnd is closed when nobody can write to the standard input any more. What was written is left to the agent.
func inputEnd(exited <-chan struct{}) <-chan struct{} {
	end := make(chan struct{})
	go func() { // ends with the input, or with the agent
		defer close(end)
		fds := []unix.PollFd{{Fd: 0, Events: unix.POLLRDHUP}}
		for {
			const pause = 500 // ms
			n, err := unix.Poll(fds, pause)
			if n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR|unix.POLLNVAL) != 0 ||
				err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			select {
			case <-exited:
				return
			default:
			}
		}
	}()
	return end
}

// raiseFiles lifts the limit of open files for the agent, as far as that is permitted.
func raiseFiles() {
	const wanted = 1 << 20
	now := unix.Rlimit{}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &now) == nil && now.Max < wanted {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: now.Cur, Max: wanted}) // the agent says its limit
	}
}

// removeProgram removes the folder of the agent's program. Only the program and the folder itself: it is named by the
// lab.
func removeProgram(folder string) error {
	for _, name := range []string{ProgramFile, ProgramFile + ".new"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the agent's program: %w", err)
		}
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the folder of the agent's program: %w", err)
	}
	return nil
}

// ProgramFile is the name of an agent's program in a folder of its own.
const ProgramFile = "gateweigh-agent"

// lockLinks keeps another lab from taking the same interfaces: while its guard has them they are not there, and what
// has them is worth saying. A lock is an abstract socket, which ends with the guard.
func lockLinks(links []string, run string) (unlock func(), err error) {
	var locks []io.Closer
	unlock = func() {
		for _, l := range locks {
			l.Close()
		}
	}
	for _, name := range links {
		l, err := net.Listen("unix", lockName(name))
		if errors.Is(err, syscall.EADDRINUSE) {
			unlock()
			return nil, fmt.Errorf(
				"%s is %w: in use by another lab (%s): wait for it, or end that process", name, nic.ErrRefused,
				guardPID(name))
		}
		if err != nil {
			unlock()
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		locks = append(locks, l)
		go func() { // ends with the lock
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "run %s, process %d", run, os.Getpid())
				c.Close()
			}
		}()
	}
	return unlock, nil
}

func lockName(link string) string { return "@gateweigh-link-" + link }

// guardPID asks the guard that has an interface who it is.
func guardPID(link string) string {
	c, err := net.DialTimeout("unix", lockName(link), time.Second)
	if err != nil {
		return "which does not answer"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	const longest = 500
	text, err := io.ReadAll(io.LimitReader(c, longest))
	if err != nil || len(text) == 0 {
		return "which does not answer"
	}
	return strings.TrimSpace(string(text))
}

// guarded is what an agent has of its guard.
type guarded struct {
	linkStates     []nic.State
	home           *os.File
	connectionLost chan struct{} // closed when the guard has ended, and so the interfaces are the agent's to put back
}

// awaitGuard reads what the host's interfaces were, once they are the host's. An error is the guard's to explain.
func awaitGuard() (*guarded, error) {
	unix.CloseOnExec(guardFD)
	unix.CloseOnExec(homeFD)
	pipe, home := os.NewFile(guardFD, "guard"), os.NewFile(homeFD, "home")
	g := &guarded{home: home, connectionLost: make(chan struct{})}
	dec := json.NewDecoder(pipe)
	if err := dec.Decode(&g.linkStates); err != nil {
		return nil, errGuard
	}
	go func() { // ends with the guard
		defer close(g.connectionLost)
		io.Copy(io.Discard, pipe)
	}()
	return g, nil
}

// errGuard ends an agent whose guard has ended before it began.
var errGuard = errors.New("the guard has ended")

// putBack puts the interfaces back where the guard cannot.
func (g *guarded) putBack(logs string) {
	select {
	case <-g.connectionLost:
	default:
		return
	}
	if len(g.linkStates) > 0 {
		lab, err := os.Open("/proc/self/ns/net")
		if err == nil {
			err = nic.Return(g.linkStates, lab, g.home)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gateweigh agent:", err)
		}
	}
	os.RemoveAll(logs)
}

// watchedInput is a standard input that ends when the lab has sent nothing for a time: a connection that was cut off
// does not end by itself.
type watchedInput struct {
	*os.File
	patience time.Duration
	onEnd    <-chan struct{}
}

// watchInput is the standard input with a watchdog; patience 0 is none.
func watchInput(patience time.Duration, lost <-chan struct{}) io.Reader {
	if patience == 0 && lost == nil {
		return os.Stdin
	}
	if err := unix.SetNonblock(0, true); err != nil {
		return os.Stdin // a file
	}
	in := watchedInput{os.NewFile(0, "stdin"), patience, lost}
	if lost != nil {
		go func() { // ends with the guard, or the agent
			<-lost
			in.Close()
		}()
	}
	return in
}

// Read is as of a file; after too long a silence, and once the guard has ended, it is at its end.
func (in watchedInput) Read(b []byte) (int, error) {
	if in.patience > 0 {
		in.SetReadDeadline(time.Now().Add(in.patience))
	}
	n, err := in.File.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		fmt.Fprintf(os.Stderr, "gateweigh agent: nothing from the lab for %s: ending\n", in.patience)
		return n, io.EOF
	case errors.Is(err, os.ErrClosed):
		return n, io.EOF
	}
	return n, err
}
