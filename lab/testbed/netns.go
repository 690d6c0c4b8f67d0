package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Netns starts hosts as network namespaces of this machine. The namespaces have
// no names: each lives as long as its agent, so the kernel removes namespace,
// links, mounts and programs however the agent ends, and agents end with the lab.
type Netns struct {
	Run       string // id of the run
	LogDir    string // output of agents and programs, one folder a host
	Placement Placement
}

// Host is a machine of the lab: its agent, and how to end it.
type Host struct {
	*agent.Conn
	Name string // "a/router"
	PID  int    // of the agent, on this machine

	cmd *exec.Cmd
}

// Start starts the agent of one host in new network and mount namespaces and
// waits until it answers.
func (b Netns) Start(ctx context.Context, name string, programCPUs []int) (*Host, error) {
	logDir := filepath.Join(b.LogDir, strings.ReplaceAll(name, "/", "-"))
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(logDir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	opts := agent.Options{Run: b.Run, Host: name, LogDir: logDir, AgentCPUs: b.Placement.Endpoints, ProgramCPUs: programCPUs, Isolated: true}
	cmd := exec.Command("/proc/self/exe", opts.Args()...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS,
		Setpgid:    true, // Ctrl-C reaches the lab, which then ends its agents in order
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: making network namespaces needs root", err)
		}
		return nil, fmt.Errorf("starting host %s: %w", name, err)
	}
	h := &Host{Conn: agent.NewConn(stdout, stdin), Name: name, PID: cmd.Process.Pid, cmd: cmd}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("its agent does not answer"))
	defer cancel()
	if _, err := h.Hello(ctx); err != nil {
		err = fmt.Errorf("starting host %s: %w%s", name, err, lastLines(log.Name()))
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// Stop ends the host: its agent, its programs, its namespaces. Twice is harmless.
func (h *Host) Stop() error {
	h.Conn.Close()
	select {
	case <-h.Done():
	case <-time.After(3 * time.Second):
		h.cmd.Process.Kill()
	}
	h.cmd.Wait() // how an agent ended says nothing: its input was closed
	return nil
}

func lastLines(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, end-500), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	if len(text) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(text))
}
