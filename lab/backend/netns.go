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
// no names, so each exists only as long as its agent. However the agent ends, the
// kernel then removes the namespace with its links, mounts and programs. Agents
// end with the lab's process.
type Netns struct {
	Options
	Placement Placement
	CPUs      int // of the machine
}

var (
	_ Backend = Netns{}
	_ Open    = Local
)

// Local opens a Netns backend that uses the CPUs which this process may use. It is the default backend.
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

// Describe implements Backend. Both labs fit on the machine, and have its clock.
func (b Netns) Describe() Description {
	return Description{AtOnce: 2, Placement: b.Placement, CPUs: b.CPUs, Clock: Clock{Common: true}}
}

// Start implements Backend. It starts this program as an agent in new network, mount
// and UTS namespaces.
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
	cpus := b.Placement.cpusFor(metered)
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

// machineHost is the name of the agent that Machine starts.
const machineHost = "machine"

// Machine implements Backend. The agent has the namespaces of this process.
func (b Netns) Machine(ctx context.Context) (*Host, error) {
	h, err := launch(ctx, agent.Options{Run: b.Run, Host: machineHost, LogDir: b.LogDir}, 0, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting the machine's agent: %w", err)
	}
	return h, nil
}

// Others implements Backend. There are none.
func (Netns) Others(context.Context) ([]*Host, error) { return nil, nil }

// Close implements Backend. There is nothing to close except the hosts.
func (Netns) Close() error { return nil }

// launch starts an agent and returns once it answers. namespaces are clone(2)'s flags for its new namespaces; 0: none.
func launch(ctx context.Context, opts agent.Options, namespaces uintptr, log *os.File) (*Host, error) {
	// The agent gets a session of its own. So Ctrl-C reaches only the lab, which then ends its agents in order, and the
	// kernel does not share out CPU time by the session of the user's shell.
	child, err := agent.StartChild(opts.Args(), &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}, log)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: making network namespaces needs root", err)
	case err != nil:
		return nil, err
	}
	conn, exited := child.Connect("the agent of host " + opts.Host)
	// Open connections would keep a host's namespace alive after its agent. An agent that is
	// killed cannot end them, so this process keeps the namespace open and ends them.
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
		case <-time.After(3 * time.Second): // the agent should have ended with its input
			child.Process.Kill()
			<-exited
		}
		return nil
	}}
	if err := h.awaitHello(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// Connect implements Backend. The agent of a makes a veth pair, whose other end
// it puts into the namespace of b.
func (Netns) Connect(ctx context.Context, a, b End) (aIf, bIf string, err error) {
	peer, err := b.Host.Hello(ctx)
	if err != nil {
		return "", "", fmt.Errorf("connecting %s to %s: %w", a.Host.Name, b.Host.Name, err)
	}
	return a.If, b.If, a.Host.AddVethPair(ctx, agent.VethPair{Name: a.If, Peer: b.If, PeerPID: peer.PID})
}
