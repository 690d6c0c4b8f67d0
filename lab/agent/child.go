package agent

import (
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Child is this program again as another process: an agent, or one of an agent's own.
// It ends when its standard input does.
type Child struct {
	*exec.Cmd
	input  io.WriteCloser
	output io.ReadCloser
}

// StartChild starts this program with other arguments. What it has to complain of goes
// to stderr; attr, its namespaces and group, may be nil.
func StartChild(args []string, attr *syscall.SysProcAttr, stderr *os.File) (*Child, error) {
	c := &Child{Cmd: exec.Command("/proc/self/exe", args...)}
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

// Talk begins a conversation with a child, under a name as in Peer. The channel is
// closed when its process has ended, for which nobody else may wait.
func (c *Child) Talk(name string) (*Conn, <-chan struct{}) {
	peer, gone := process(name, c.Process)
	return NewConn(c.output, c.input, peer), gone
}
