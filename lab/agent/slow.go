package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/burn"
)

// Slow says how to slow down CPUs of a machine: a burner, a process that does nothing useful, takes a share of their
// time.
type Slow struct {
	CPUs    []int    `json:"cpus"`  // to slow down
	Speed   float64  `json:"speed"` // share of the CPUs' time that all other programs keep; 1 ends the burner
	OwnCPUs []int    `json:"own"`   // for threads of the burner that take no share
	How     burn.How `json:"how"`   // how the burner competes for CPUs
}

// slowed holds an agent's burner. It is a separate process because its busy threads would hold up Go's garbage
// collection in the agent. It ends with the agent, because its input does.
//
//	agent ── stdin, stdout: JSON lines ──► gateweigh agent-burner
type slowed struct {
	mu     sync.Mutex // guards what follows
	burner *Conn      // nil while nothing is slowed
	exited <-chan struct{}
}

// Slow starts the burner, and returns once the CPUs are slow. They stay so until the agent ends, or until a call with
// speed 1.
func (m *machineAgent) Slow(ctx context.Context, s Slow) error {
	m.slowed.mu.Lock()
	defer m.slowed.mu.Unlock()
	if s.Speed == 1 {
		m.slowed.end()
		return nil
	}
	if m.slowed.burner != nil {
		return errors.New("CPUs of this machine are slowed down already")
	}
	c, err := StartChild([]string{BurnerCommand}, nil, os.Stderr)
	if err != nil {
		return fmt.Errorf("starting the process that slows CPUs down: %w", err)
	}
	conn, exited := c.Connect("the process that slows CPUs down")
	if err := conn.do(ctx, "Burn", s); err != nil {
		conn.Close()
		<-exited
		return err
	}
	m.slowed.burner, m.slowed.exited = conn, exited
	return nil
}

// ReadSlow reads how much time of each CPU the burner has taken so far.
func (m *machineAgent) ReadSlow(ctx context.Context) ([]burn.CPUTime, error) {
	m.slowed.mu.Lock()
	conn := m.slowed.burner
	m.slowed.mu.Unlock()
	if conn == nil {
		return nil, errors.New("no CPU of this machine is slowed down")
	}
	return ask[[]burn.CPUTime](ctx, conn, "Read")
}

// close ends the burner.
func (s *slowed) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// end ends the burner and waits for its end. The caller holds the lock.
func (s *slowed) end() {
	if s.burner != nil {
		s.burner.Close()
		<-s.exited
		s.burner = nil
	}
}

// burnerLockTimeout is how long a new burner waits for another one to end. The burner of a killed run ends sooner, with
// its agent.
const burnerLockTimeout = time.Second

// burner is the state of a burner's process. Its exported methods carry out requests of the agent.
type burner struct {
	b    *burn.Burner
	lock io.Closer // keeps a second burner from the machine until the process ends
}

// Burn begins to take the CPUs' time.
func (r *burner) Burn(_ context.Context, s Slow) error {
	if err := pinThreads(s.OwnCPUs); err != nil {
		return err
	}
	var err error
	if r.lock, err = burn.Lock(burnerLockTimeout); err != nil {
		return err
	}
	var loads []burn.Load
	for _, cpu := range s.CPUs {
		loads = append(loads, burn.Load{CPU: cpu, Share: 1 - s.Speed})
	}
	r.b, err = burn.Start(loads, s.How, 0)
	return err
}

// Read reads how much time was taken, in the order of Slow.CPUs.
func (r *burner) Read(context.Context) ([]burn.CPUTime, error) { return r.b.Read() }

// burnerMain runs a burner until its input ends. The end of the process ends the threads that take the CPUs' time.
func burnerMain(ctx context.Context) error {
	runtime.GOMAXPROCS(maxProcs + runtime.NumCPU())
	debug.SetGCPercent(-1) // a collection would stop the busy threads, and a burner's garbage is a few megabytes
	var b burner
	return serve(ctx, os.Stdin, os.Stdout, burnerVerbs, sameReceiver(&b))
}
