package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// no names: each lives as long as its agent, so the kernel removes namespace,
// links, mounts and programs however the agent ends, and agents end with the lab.
type Netns struct {
	Run       string // id of the run
	LogDir    string // output of agents and programs, one folder a host
	Placement Placement
}

var _ Backend = Netns{}

// Start implements Backend: new network and mount namespaces, and in them an
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
	opts := agent.Options{Run: b.Run, Host: name, LogDir: logDir, AgentCPUs: b.Placement.Endpoints, ProgramCPUs: cpus, Isolated: true}
	own := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS,
		Setpgid:    true, // Ctrl-C reaches the lab, which then ends its agents in order
	}
	child, err := agent.StartChild(opts.Args(), own, log)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: making network namespaces needs root", err)
		}
		return nil, fmt.Errorf("starting host %s: %w", name, err)
	}
	conn, gone := child.Talk("the agent of host " + name)
	h := &Host{Conn: conn, Name: name, Metered: metered, CPUs: cpus}
	ns, err := client.NamespaceOf(child.Process.Pid)
	if err != nil {
		err = fmt.Errorf("starting host %s: %w%s", name, err, lastLines(log.Name()))
		return nil, errors.Join(err, conn.Close(), child.Process.Kill())
	}
	let := letGoAfter(h.Done(), ns)
	h.end = func() error {
		defer let()
		endAgent(child.Process, gone)
		return nil
	}
	if err := h.greet(ctx); err != nil {
		err = fmt.Errorf("starting host %s: %w%s", name, err, lastLines(log.Name()))
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// Machine implements Backend: an agent in the namespaces of this process.
func (b Netns) Machine(ctx context.Context) (*Host, error) {
	opts := agent.Options{Run: b.Run, Host: "machine", LogDir: b.LogDir}
	child, err := agent.StartChild(opts.Args(), &syscall.SysProcAttr{Setpgid: true}, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting the machine's agent: %w", err)
	}
	conn, gone := child.Talk("the machine's agent")
	h := &Host{Conn: conn, Name: opts.Host, end: func() error { endAgent(child.Process, gone); return nil }}
	if err := h.greet(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the machine's agent: %w", err), h.Stop())
	}
	return h, nil
}

// letGoAfter ends what would keep a host's namespace, and lets go of it, once its
// agent has: one that was killed could not do so itself. The function it returns
// does it now, and returns when it is done.
func letGoAfter(done <-chan struct{}, ns *client.Namespace) func() {
	let := sync.OnceFunc(func() {
		ns.Do(client.EndConnections)
		ns.Close()
	})
	go func() {
		<-done
		let()
	}()
	return let
}

// endAgent waits for an agent whose input is closed, and kills one that does not
// heed it. Twice is harmless.
func endAgent(proc *os.Process, gone <-chan struct{}) {
	select {
	case <-gone:
	case <-time.After(3 * time.Second):
		proc.Kill()
		<-gone
	}
}

// Connect implements Backend: a veth pair, made by one host's agent with its
// other end directly in the other's namespace. It has the names asked for.
func (Netns) Connect(ctx context.Context, a, b End) (aIf, bIf string, err error) {
	peer, err := b.Host.Hello(ctx)
	if err != nil {
		return "", "", fmt.Errorf("connecting %s to %s: %w", a.Host.Name, b.Host.Name, err)
	}
	return a.If, b.If, a.Host.AddPair(ctx, agent.Pair{Name: a.If, Peer: b.If, PeerPID: peer.PID})
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
