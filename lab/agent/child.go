package agent

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// Child is another process of this program: an agent, or a helper of an agent. It ends when its standard input is
// closed.
type Child struct {
	*exec.Cmd
	input  io.WriteCloser
	output io.ReadCloser
}

// StartChild starts this program with other arguments. The child writes its messages to stderr. attr sets its
// namespaces and process group, and may be nil.
func StartChild(args []string, attr *syscall.SysProcAttr, stderr *os.File) (*Child, error) {
	c := &Child{Cmd: selfCommand(args)}
	c.SysProcAttr, c.Stderr = attr, stderr
	var err error
	if c.input, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	if c.output, err = c.StdoutPipe(); err != nil {
		c.input.Close()
		return nil, err
	}
	return c, c.Start()
}

// selfCommand is a command that starts this program with other arguments, through the emulator if this process runs in
// one.
func selfCommand(args []string) *exec.Cmd {
	if through := machine.Emulator(); through != "" {
		if file, err := os.Executable(); err == nil {
			return exec.Command(through, append([]string{file}, args...)...)
		}
	}
	return exec.Command("/proc/self/exe", args...)
}

// isolate has a process of this program start in the namespaces of a host, as backend.Netns does.
func isolate(attr *syscall.SysProcAttr) {
	const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	if machine.Emulator() == "" {
		attr.Cloneflags = namespaces
	} else {
		attr.Unshareflags = namespaces // qemu-user's clone takes none of them
	}
}

// childEndTimeout bounds the wait for the end of a process whose output has ended.
const childEndTimeout = time.Second

// Connect returns a connection to a child, and a channel that is closed when the child's process has ended. Errors of
// the connection name the child as given: "the agent of host a/client". Only Connect may wait for the process.
func (c *Child) Connect(name string) (*Conn, <-chan struct{}) {
	exited := make(chan struct{})
	var status string
	go func() { // ends with the process
		defer close(exited)
		if state, err := c.Process.Wait(); err == nil {
			status = state.String()
		}
	}()
	return NewConn(c.output, c.input, fmt.Sprintf("%s (process %d)", name, c.Process.Pid), func() string {
		select {
		case <-exited:
			return status
		case <-time.After(childEndTimeout):
			return "" // the process is still there, though it has closed its output
		}
	}), exited
}
