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

// Guard starts an agent on a machine that is not the lab's, and lends the machine's interfaces to the agent's host. It
// is a process of its own, so that it can put the interfaces back however the agent ends. If the guard is killed, the
// agent ends and puts them back.
//
//	sshd ── stdin, stdout ──► gateweigh agent-guard ──► gateweigh agent (in network, mount and UTS namespaces of its own)
//	                            keeps the interfaces' state     │
//	                            pipe: the state, then its end ──┘
//
// To lend interfaces is to move them into the network namespace of the host. Agent and programs configure only that
// namespace, so to undo all is to move the interfaces back and set them as before. That needs no connection to the lab.
type Guard struct {
	Agent Options `json:"agent"` // the guard sets LogDir, to a folder that it makes
	// Links are the interfaces to lend. Empty: the agent answers for the machine alone.
	Links []string `json:"links,omitempty"`
	// Folder holds the agent's program, and is removed at the end. Empty: none.
	Folder string `json:"folder,omitempty"`
}

// File descriptors that a guarded agent inherits beside its standard ones.
const (
	guardFD      = 3 // a pipe with the interfaces' states as JSON, which ends when the guard does
	machineNetFD = 4 // the machine's network namespace
)

// guardGrace is how long an agent may take to end after a signal, or after the end of its input.
const guardGrace = 3 * time.Second

// guardMain runs a guard. args are the Guard as JSON, and the value that sshd sets for SSH_CONNECTION.
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
	// These signals come when the ssh session ends or the lab is interrupted. The guard must outlive them, so that it can
	// end the agent first.
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

// run starts the agent, lends it the interfaces, waits for its end, and puts the interfaces back.
func (g Guard) run(states []nic.State, signals <-chan os.Signal) error {
	stateReader, stateWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stateWriter.Close()
	machineNet, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	defer machineNet.Close()
	cmd := g.agentCommand(stateReader, machineNet)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the agent in namespaces of its own (the kernel needs CONFIG_NET_NS): %w", err)
	}
	stateReader.Close()
	exited := make(chan struct{})
	go func() { // ends with the agent
		defer close(exited)
		cmd.Wait()
	}()
	var hostNet *client.Namespace
	if g.Agent.Isolated {
		if hostNet, err = client.NamespaceOf(cmd.Process.Pid); err == nil {
			defer hostNet.Close()
			err = nic.Lend(states, hostNet.File())
		}
	}
	if err == nil {
		err = json.NewEncoder(stateWriter).Encode(states)
	}
	if err != nil {
		stateWriter.Close() // without the states the agent ends
	}
	waitFor(cmd, exited, signals)
	if hostNet == nil {
		return err
	}
	back := nic.Return(states, hostNet.File(), machineNet)
	hostNet.Do(client.EndConnections) // open connections would keep the namespace alive
	return errors.Join(err, back)
}

// agentCommand is the agent's command, which inherits the two files as guardFD and machineNetFD.
func (g Guard) agentCommand(stateReader, machineNet *os.File) *exec.Cmd {
	g.Agent.Guarded = true
	cmd := selfCommand(g.Agent.Args())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g.Agent.Isolated {
		isolate(cmd.SysProcAttr)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{stateReader, machineNet}
	return cmd
}

// waitFor waits until an agent has ended. After a signal, or the end of the agent's input, it kills the agent that
// does not end by itself.
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
	case <-time.After(guardGrace): // for instance stopped by SIGSTOP
		cmd.Process.Kill()
		<-exited
	}
}

// inputEnd returns a channel that is closed when nobody can write to the standard input any more. It reads nothing: the
// input is the agent's.
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
		// Without permission the limit stays, and the agent reports it to the lab: Hello.MaxOpenFiles.
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: now.Cur, Max: wanted})
	}
}

// removeProgram removes the agent's program and its folder. It removes no other files, because the folder's name comes
// from the lab and might be wrong.
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

// lockLinks keeps other labs from taking the same interfaces. An interface that is lent is not in the machine's
// namespace, so without a lock another lab would only learn that it does not exist. A lock is an abstract Unix socket
// that answers with the run and process that hold it. It ends with the guard.
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

// guardPID asks the guard that has lent an interface for its run and process.
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

// guarded is what an agent needs to put interfaces back if its guard is killed.
type guarded struct {
	linkStates []nic.State   // as the interfaces were before they were lent
	machineNet *os.File      // the machine's network namespace
	pipe       *os.File      // ends with the guard
	guardEnded chan struct{} // closed when the guard has ended
}

// awaitGuard waits until the guard has lent the interfaces and has sent their states. On an error the guard has ended,
// and prints why.
func awaitGuard() (*guarded, error) {
	unix.CloseOnExec(guardFD)
	unix.CloseOnExec(machineNetFD)
	pipe, machineNet := os.NewFile(guardFD, "guard"), os.NewFile(machineNetFD, "machine network")
	g := &guarded{machineNet: machineNet, pipe: pipe, guardEnded: make(chan struct{})}
	dec := json.NewDecoder(pipe)
	if err := dec.Decode(&g.linkStates); err != nil {
		return nil, errGuard
	}
	go func() { // ends with the guard
		defer close(g.guardEnded)
		io.Copy(io.Discard, pipe)
	}()
	return g, nil
}

// errGuard means that the guard has ended before it lent the interfaces.
var errGuard = errors.New("the guard has ended")

// putBack puts the interfaces back and removes the folder of logs, if the guard has ended and cannot do so.
func (g *guarded) putBack(logs string) {
	if !g.hasGuardEnded() {
		return
	}
	if len(g.linkStates) > 0 {
		hostNet, err := os.Open("/proc/self/ns/net")
		if err == nil {
			err = nic.Return(g.linkStates, hostNet, g.machineNet)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gateweigh agent:", err)
		}
	}
	os.RemoveAll(logs)
}

// dyingGuard is how long an agent that ends waits to see whether its guard ends too: whoever kills a guard may kill the
// connection at the same time, and the agent may notice that first.
const dyingGuard = 100 // ms

// hasGuardEnded asks the kernel, because the goroutine that closes guardEnded may not have run yet.
func (g *guarded) hasGuardEnded() (ended bool) {
	raw, err := g.pipe.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always reported
		n, err := unix.Poll(fds, dyingGuard)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds, dyingGuard)
		}
		ended = n > 0 && err == nil
	})
	return ended
}

// watchedInput is a standard input that ends when the lab has sent nothing for a time, or when the guard has ended. A
// connection that was cut off does not end by itself.
type watchedInput struct {
	*os.File
	patience   time.Duration
	guardEnded <-chan struct{}
}

// watchInput returns the standard input as a watchedInput. patience 0 sets no time limit; lost is closed when the guard
// has ended.
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

// Read reads the standard input. It returns io.EOF after the time limit, and once the guard has ended.
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
