package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Netns runs hosts as network namespaces of this machine. The namespaces have
// no names: each exists as long as its agent, so the kernel removes namespace,
// links, mounts and programs however the agent ends, and agents end with the lab.
type Netns struct {
	Options
	Placement Placement
	CPUs      int // of the machine
}

var (
	_ Backend = Netns{}
	_ Open    = Local
)

// Local opens the backend of all code that builds labs or asks about their machine, unless it names another: namespaces
// of this machine, placed on the CPUs that its agent may use.
func Local(ctx context.Context, o Options) (Backend, error) {
	b := Netns{Options: o}
	h, err := b.Machine(ctx)
	if err != nil {
		return b, err
	}
	defer h.Stop()
	m, err := h.Machine(ctx)
	b.Placement, b.CPUs = placementOn(m.Usable), m.Online
	if o.SecondCPU {
		b.Placement = b.Placement.WithSecond()
	}
	return b, err
}

// Describe implements Backend: labs share the machine, and its clock.
func (b Netns) Describe() Description {
	return Description{AtOnce: 2, Placement: b.Placement, CPUs: b.CPUs, Clock: Clock{Common: true}}
}

// Start implements Backend: new network, mount and UTS namespaces, and in them an
// agent that is this program itself.
func (b Netns) Start(ctx context.Context, name string, metered bool) (*Host, error) {
	logDir := filepath.Join(b.LogDir, strings.ReplaceAll(name, "/", "-"))
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(logDir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cpus := b.Placement.of(metered)
	opts := agent.Options{
		Run: b.Run, Host: name, LogDir: logDir, AgentCPUs: b.Placement.Endpoints, ProgramCPUs: cpus, Isolated: true}
	h, err := launch(ctx, opts, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS|syscall.CLONE_NEWUTS, log)
	if err != nil {
		err = fmt.Errorf("starting host %s: %w", name, err)
		if text, _ := os.ReadFile(log.Name()); len(text) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text[max(0, len(text)-500):])))
		}
		return nil, err
	}
	h.CPUs = cpus
	return h, nil
}

// machineHost is the name of the machine's agent.
const machineHost = "machine"

// Machine implements Backend: an agent in the namespaces of this process.
func (b Netns) Machine(ctx context.Context) (*Host, error) {
	h, err := launch(ctx, agent.Options{Run: b.Run, Host: machineHost, LogDir: b.LogDir}, 0, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting the machine's agent: %w", err)
	}
	return h, nil
}

// Others implements Backend: there is one machine.
func (Netns) Others(context.Context) ([]*Host, error) { return nil, nil }

// Close implements Backend: all there is ends with its hosts.
func (Netns) Close() error { return nil }

// launch starts an agent in new namespaces and returns once it answers.
func launch(ctx context.Context, opts agent.Options, namespaces uintptr, log *os.File) (*Host, error) {
	// In a session of its own: Ctrl-C reaches the lab, which then ends its agents in order, and the agent's priority is
	// not that of the user's shell.
	child, err := agent.StartChild(opts.Args(), &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}, log)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: making network namespaces needs root", err)
	case err != nil:
		return nil, err
	}
	conn, exited := child.Connect("the agent of host " + opts.Host)
	// Of an isolated host its namespace is held: an agent that is killed cannot end
	// the connections that would keep it.
	release := func() {}
	if opts.Isolated {
		ns, err := client.NamespaceOf(child.Process.Pid)
		if err != nil {
			return nil, errors.Join(err, conn.Close(), child.Process.Kill())
		}
		release = sync.OnceFunc(func() {
			ns.Do(client.EndConnections)
			ns.Close()
		})
		go func() {
			<-conn.Done()
			release()
		}()
	}
	h := &Host{Conn: conn, Name: opts.Host, end: func() error {
		defer release()
		select {
		case <-exited:
		case <-time.After(3 * time.Second): // the agent runs on although its input is closed
			child.Process.Kill()
			<-exited
		}
		return nil
	}}
	if err := h.greet(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// Connect implements Backend: a veth pair, made by one host's agent with its
// other end directly in the other's namespace. It has the names asked for.
func (Netns) Connect(ctx context.Context, a, b End) (aIf, bIf string, err error) {
	peer, err := b.Host.Hello(ctx)
	if err != nil {
		return "", "", fmt.Errorf("connecting %s to %s: %w", a.Host.Name, b.Host.Name, err)
	}
	return a.If, b.If, a.Host.AddVethPair(ctx, agent.VethPair{Name: a.If, Peer: b.If, PeerPID: peer.PID})
}
