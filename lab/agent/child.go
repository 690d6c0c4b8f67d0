package agent

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Child is this program again as another process: an agent, or one of an agent's own.
// It ends when its standard input does.
type Child struct {
	*exec.Cmd
	input  io.WriteCloser
	output io.ReadCloser
}

// StartChild starts this program with other arguments. Its messages go to stderr; attr,
// its namespaces and group, may be nil.
func StartChild(args []string, attr *syscall.SysProcAttr, stderr *os.File) (*Child, error) {
	own := []string{"/proc/self/exe"}
	if through := emulator(); through != "" {
		file, err := os.Executable()
		if err != nil {
			return nil, err
		}
		own = []string{through, file}
	}
	c := &Child{Cmd: exec.Command(own[0], append(own[1:], args...)...)}
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

// emulator is the program that runs this process where that is made for another architecture (qemu-user), else
// empty. It shows the process its own file as /proc/self/exe, but not as that of a thread.
func emulator() string {
	runs, err := os.Readlink("/proc/thread-self/exe")
	own, bad := os.Readlink("/proc/self/exe")
	if err != nil || bad != nil || runs == own {
		return ""
	}
	return runs
}

// endsWithin bounds the wait for the end of a process whose output has ended.
const endsWithin = time.Second

// Talk begins a conversation with a child, whose name errors give: "the agent of host
// a/client". It waits for the child's process, which nobody else may do; the channel is
// closed when that has ended.
func (c *Child) Talk(name string) (*Conn, <-chan struct{}) {
	gone := make(chan struct{})
	var how string
	go func() { // ends with the process
		defer close(gone)
		if state, err := c.Process.Wait(); err == nil {
			how = state.String()
		}
	}()
	return NewConn(c.output, c.input, fmt.Sprintf("%s (process %d)", name, c.Process.Pid), func() string {
		select {
		case <-gone:
			return how
		case <-time.After(endsWithin):
			return "" // it lives, and does not answer any more
		}
	}), gone
}
